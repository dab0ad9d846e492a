package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/client"
)

// fatalProgress is after how many steps of @slow the hub is killed again: in the
// middle of the work, if the text has a middle.
func (d *demo) fatalProgress() int { return (len(slowWords(d.text)) + 2) / 3 }

// watch follows all tasks to their ends, answers the question and kills the hub once
// more in the middle of the work.
func (d *demo) watch(ctx context.Context, sent []*client.Task) ([]demoEnd, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends, errs := make([]demoEnd, len(sent)), make([]error, len(sent)+1)
	fatal, over := make(chan struct{}, len(sent)), make(chan struct{})
	var all sync.WaitGroup
	for i, t := range sent {
		all.Go(func() {
			ends[i], errs[i] = d.follow(ctx, d.agent(t.Callee), t, fatal)
			if errs[i] != nil {
				cancel()
			}
		})
	}
	go func() { all.Wait(); close(over) }()
	select {
	case <-fatal:
		if errs[len(sent)] = d.crash(ctx); errs[len(sent)] != nil {
			cancel()
		} else {
			d.say("Workers and listeners have come back by themselves.")
		}
	case <-over:
	}
	<-over
	return ends, errors.Join(errs...)
}

func (d *demo) agent(handle string) demoAgent {
	for _, a := range demoAgents() {
		if a.handle == handle {
			return a
		}
	}
	return demoAgent{handle: handle}
}

// follow tells what happens to a task, and gives its end. Its events have to come in
// order, without gap or duplicate.
func (d *demo) follow(ctx context.Context, a demoAgent, t *client.Task, fatal chan<- struct{}) (demoEnd, error) {
	e := demoEnd{agent: a}
	var last int64
	for ev, err := range d.you.Subscribe(ctx, a.handle, t.ID, client.After(0)) {
		if err != nil {
			return e, fmt.Errorf("follow the task of @%s: %w", a.handle, err)
		}
		if ev.Seq != last+1 {
			return e, fmt.Errorf("after event %d of @%s's task came event %d", last, a.handle, ev.Seq)
		}
		last = ev.Seq
		before := e.progress
		if err := d.react(ctx, &e, t, ev); err != nil {
			return e, err
		}
		if e.progress > before && e.progress == d.fatalProgress() {
			fatal <- struct{}{}
		}
	}
	var err error
	if e.task, err = d.you.Get(ctx, a.handle, t.ID); err != nil {
		return e, fmt.Errorf("read the result of @%s: %w", a.handle, err)
	}
	if e.task.CompletedAt != nil {
		e.took = e.task.CompletedAt.Sub(e.task.CreatedAt.Time)
	}
	return e, nil
}

// react tells of an event, and answers if it is a question.
func (d *demo) react(ctx context.Context, e *demoEnd, t *client.Task, ev client.Event) error {
	handle, words := e.agent.handle, oneLine(ev.Text())
	switch {
	case ev.Artifact != nil:
		return nil // shown at the end
	case ev.State() == client.StateWorking && words == "":
		d.say("@%s works on it.", handle)
	case ev.State() == client.StateWorking:
		e.progress++
		d.say("@%s: %s.", handle, words)
	case ev.State() == client.StateInputRequired:
		e.asked++
		d.say("@%s asks: %s  You answer: %s", handle, words, clerkAnswer)
		if _, err := d.you.Answer(ctx, t, clerkAnswer); err != nil {
			return fmt.Errorf("answer @%s: %w", handle, err)
		}
	case client.Ended(ev.State()):
		d.say("@%s: %s.", handle, ev.State())
	}
	return nil
}

// verdict shows all results and checks them.
func (d *demo) verdict(ends []demoEnd) error {
	var errs []error
	rows := make([][]string, 0, len(ends))
	for _, e := range ends {
		errs = append(errs, e.agent.expect(d.text, e))
		said := strings.Join(texts(resultParts(e.task)), "")
		rows = append(rows, []string{at(e.agent.handle), e.task.State, e.took.Round(time.Millisecond).String(), short(first(said, taskError(&e.task.Task)))})
	}
	fmt.Fprintln(d.p.out)
	if err := d.p.table([]string{"AGENT", "STATE", "TOOK", "RESULT"}, rows); err != nil {
		return err
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(d.p.out, "\nAll %d tasks ended as they should, each once, with every event in order,\nalthough the hub was killed twice. Nothing was lost.\n", len(ends))
	return nil
}
