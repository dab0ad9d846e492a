package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/client"
)

// The addresses of the demo that do no work in its story.
const (
	demoYou    = "you"
	demoNobody = "nobody"
)

// demoAgent is an agent of the demo.
type demoAgent struct {
	handle, does string
	work         client.Handler
	// expect checks how the story's task should have ended; nil for agents that the
	// story does not call directly.
	expect func(text string, e demoEnd) error
}

// demoEnd is a task of the story after its end.
type demoEnd struct {
	agent demoAgent
	task  *client.Task
	// asked counts its questions, progress what was told of the work.
	asked, progress int
	took            time.Duration
}

const (
	clerkAnswer  = "yes, shout"
	slowestWords = 12
	slowPace     = 200 * time.Millisecond
	refusal      = "there is no ink left"
)

// demoAgents is the cast. Their results follow from the text, so that each can be
// checked.
func demoAgents() []demoAgent {
	return []demoAgent{
		{"writer", "has @counter count the words and reports", writeReport, expectReport},
		{"clerk", "asks before it does anything", askFirst, expectAsked},
		{"slow", "takes its time, and tells how far it is", spellSlowly, expectSpelled},
		{"printer", "fails", failToPrint, expectFailed},
		{"counter", "counts words", countWords, nil},
		{demoNobody, "has no worker", nil, nil},
	}
}

func wordsOf(s string) int { return len(strings.Fields(s)) }

func countWords(_ context.Context, t *client.Task) (any, error) {
	return map[string]int{"words": wordsOf(t.Text())}, nil
}

// writeReport delegates; the sub-task becomes part of the same run by itself.
func writeReport(ctx context.Context, t *client.Task) (any, error) {
	c, ok := ctx.Value(demoClient{}).(*client.Client)
	if !ok {
		return nil, errors.New("the writer has no client")
	}
	sub, err := c.SendAndWait(ctx, "counter", t.Text())
	if err != nil {
		return nil, err
	}
	var counted struct{ Words int }
	if err := errors.Join(sub.Err(), sub.DecodeResult(&counted)); err != nil {
		return nil, err
	}
	return report(t.Text(), counted.Words), nil
}

func report(text string, words int) string {
	return fmt.Sprintf("words: %d, the longest of them %q", words, longest(text))
}

func longest(text string) string {
	best := ""
	for w := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if utf8.RuneCountInString(w) > utf8.RuneCountInString(best) {
			best = w
		}
	}
	return best
}

func expectReport(text string, e demoEnd) error {
	return expectResult(e, report(text, wordsOf(text)))
}

func askFirst(ctx context.Context, t *client.Task) (any, error) {
	answer := t.AnswerText()
	if answer == "" {
		return nil, t.Ask(ctx, "Shall I shout it?")
	}
	if strings.HasPrefix(answer, "yes") {
		return strings.ToUpper(t.Text()), nil
	}
	return strings.ToLower(t.Text()), nil
}

func expectAsked(text string, e demoEnd) error {
	if e.asked != 1 {
		return fmt.Errorf("@clerk asked %d times, not once", e.asked)
	}
	return expectResult(e, strings.ToUpper(text))
}

// spellSlowly gives its result word by word.
func spellSlowly(ctx context.Context, t *client.Task) (any, error) {
	words := slowWords(t.Text())
	pace := time.NewTicker(slowPace)
	defer pace.Stop()
	for i, w := range words {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-pace.C:
		}
		if err := t.AppendText(ctx, "backwards", backwards(w)+" ", i == len(words)-1); err != nil {
			return nil, err
		}
		if err := t.Progress(ctx, fmt.Sprintf("%d of %d words", i+1, len(words))); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func slowWords(text string) []string {
	words := strings.Fields(text)
	return words[:min(len(words), slowestWords)]
}

func backwards(w string) string {
	r := []rune(w)
	for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 {
		r[i], r[j] = r[j], r[i]
	}
	return string(r)
}

func expectSpelled(text string, e demoEnd) error {
	words := slowWords(text)
	if e.progress < len(words) {
		return fmt.Errorf("of @slow's work %d steps were told, not %d", e.progress, len(words))
	}
	var b strings.Builder
	for _, w := range words {
		b.WriteString(backwards(w) + " ")
	}
	return expectResult(e, b.String())
}

func failToPrint(context.Context, *client.Task) (any, error) { return nil, errors.New(refusal) }

func expectFailed(_ string, e demoEnd) error {
	if e.task.State != client.StateFailed || !strings.Contains(taskError(&e.task.Task), refusal) {
		return fmt.Errorf("the task of @printer is %s, and should have failed with %q", e.task.State, refusal)
	}
	return nil
}

func expectResult(e demoEnd, want string) error {
	if e.task.State != client.StateCompleted {
		return fmt.Errorf("the task of @%s is %s, not completed: %s", e.agent.handle, e.task.State, taskError(&e.task.Task))
	}
	// Texts in several parts are one text that came in pieces.
	got := strings.Join(texts(resultParts(e.task)), "")
	if got != want {
		return fmt.Errorf("the result of @%s is %q, not %q", e.agent.handle, got, want)
	}
	return nil
}

func texts(parts []client.Part) []string {
	var all []string
	for _, part := range parts {
		if part.Text != nil {
			all = append(all, *part.Text)
		}
	}
	return all
}

// demoClient is where a handler's context has the agent's client.
type demoClient struct{}

// hire starts a worker for each agent. They work until ctx ends.
func (d *demo) hire(ctx context.Context) {
	for _, a := range demoAgents() {
		if a.work == nil {
			continue
		}
		c := d.client(a.handle)
		work := func(ctx context.Context, t *client.Task) (any, error) {
			return a.work(context.WithValue(ctx, demoClient{}, c), t)
		}
		d.crew.Go(func() {
			if _, err := c.Serve(ctx, work, client.Drain(time.Second)); err != nil {
				d.p.note("The worker of @%s has given up: %v", a.handle, err)
			}
		})
	}
	d.say("Now workers come and ask for tasks: @writer, @clerk, @slow, @printer and @counter.")
}
