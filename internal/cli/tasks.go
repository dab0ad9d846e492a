package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/client"
)

// isTaskID tells an id of a task from a handle.
func isTaskID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }

// taskRef is a task on the command line: [@handle] ID.
type taskRef struct {
	c      *client.Client
	to, id string
}

// taskAt finds the task that the arguments name: by address and id, as in A2A, or
// by the id alone.
func (p *program) taskAt(ctx context.Context, args []string) (taskRef, error) {
	if len(args) == 2 {
		c, to, err := p.clientAt(args[0])
		return taskRef{c, to, args[1]}, err
	}
	c, err := p.client()
	if err != nil {
		return taskRef{}, err
	}
	if strings.HasPrefix(args[0], "@") {
		return taskRef{}, usagef("TASK is missing after %s: the id of a task; holdfast list tasks %s shows them", args[0], args[0])
	}
	if !isTaskID(args[0]) {
		return taskRef{}, usagef("%q is no id of a task; holdfast list tasks shows them", args[0])
	}
	to, err := callee(ctx, c, args[0])
	return taskRef{c, to, args[0]}, err
}

// callee finds the address that a task was sent to, among the tasks that this
// credential sent or was sent.
func callee(ctx context.Context, c *client.Client, id string) (string, error) {
	t, err := c.Get(ctx, "", id)
	if errors.Is(err, client.ErrNotFound) {
		return "", &failure{exit: exitNotFound, code: "task_not_found", message: "there is no task " + id + " that you sent or were sent"}
	}
	if err != nil {
		return "", err
	}
	return t.Callee, nil
}

// showTask describes one task.
func (p *program) showTask(t *client.Task) error {
	return p.show(t, t.ID, func() error { return p.describe(t) })
}

// describe prints a task for people: what it is, and what was said and made.
func (p *program) describe(t *client.Task) error {
	err := p.fields(
		field{"Task", t.ID},
		field{"State", t.State},
		field{"From", at(t.Caller)},
		field{"To", at(t.Callee)},
		field{"Why it waits", t.Hint},
		field{"Context", t.ContextID},
		field{"Run", otherThan(t.RunID, t.ID)},
		field{"Part of task", text(t.ParentTaskID)},
		field{"Repeats task", t.RequeueOf},
		field{"Claim", t.ClaimID},
		field{"Attempt", attempt(t)},
		field{"Lease until", moment(t.LeaseExpiresAt)},
		field{"Tags", tags(t.Tags)},
		field{"Sent", moment(&t.CreatedAt)},
		field{"Claimed", moment(t.ClaimedAt)},
		field{"Ended", moment(t.CompletedAt)},
		field{"Error", text(t.Error)},
	)
	if err != nil {
		return err
	}
	for _, m := range t.History {
		if err := p.section(m.Role, m.Parts); err != nil {
			return err
		}
	}
	if len(t.History) == 0 && t.Input != nil {
		if err := p.section("user", t.Input.Message.Parts); err != nil {
			return err
		}
	}
	if m := t.Status.Message; m != nil && !inHistory(t, m) {
		if err := p.section("agent", m.Parts); err != nil {
			return err
		}
	}
	for _, a := range t.Artifacts {
		name := a.Name
		if name == "" {
			name = a.ArtifactID
		}
		if err := p.section("artifact "+name, a.Parts); err != nil {
			return err
		}
	}
	return nil
}

func inHistory(t *client.Task, m *client.Message) bool {
	for _, h := range t.History {
		if h.MessageID == m.MessageID {
			return true
		}
	}
	return false
}

// section prints content under a heading.
func (p *program) section(title string, parts []client.Part) error {
	body := strings.TrimRight(clean(content(parts)), "\n")
	_, err := fmt.Fprintf(p.out, "\n%s:\n    %s\n", oneLine(title), strings.ReplaceAll(body, "\n", "\n    "))
	return err
}

// result prints what a task made, and nothing else: texts as they are, so that a
// shell can take them.
func (p *program) result(parts []client.Part) error {
	body := content(parts)
	if body == "" {
		return nil
	}
	if isTerminal(p.out) {
		body = clean(body)
	}
	_, err := fmt.Fprintln(p.out, strings.TrimSuffix(body, "\n"))
	return err
}

// content is parts for people: texts and data as they are, files described.
func content(parts []client.Part) string {
	var lines []string
	for _, part := range parts {
		switch {
		case part.Text != nil:
			lines = append(lines, *part.Text)
		case len(part.Data) > 0:
			lines = append(lines, string(compact(part.Data)))
		case part.URL != nil:
			lines = append(lines, *part.URL)
		case part.Raw != nil:
			lines = append(lines, fmt.Sprintf("[file %s %s, %d bytes; -o json has it]", part.Filename, part.MediaType, len(*part.Raw)/4*3))
		}
	}
	return strings.Join(lines, "\n")
}

func compact(raw json.RawMessage) json.RawMessage {
	var b strings.Builder
	if writeJSON(&b, raw, false) != nil {
		return raw
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}

// taskList lists tasks.
func (p *program) taskList(tasks []*client.Task, next, empty string, remark func(*client.Task) string) error {
	now := time.Now()
	return showList(p, list[*client.Task]{
		items: tasks, next: next, empty: empty,
		id:   func(t *client.Task) string { return t.ID },
		head: []string{"TASK", "STATE", "FROM", "TO", "AGE", "NOTE"},
		row: func(t *client.Task) []string {
			return []string{t.ID, t.State, at(t.Caller), at(t.Callee), ago(t.CreatedAt.Time, now), remark(t)}
		},
	})
}

// remark is what there is to say of a task in few words.
func remark(t *client.Task) string {
	if s := taskError(&t.Task); s != "" {
		return short(s)
	}
	return short(t.Hint)
}

// unread is remark for a list of pending tasks.
func unread(t *client.Task) string {
	if t.Ended() {
		return "has ended; you have not read it yet"
	}
	return remark(t)
}

func short(s string) string {
	r := []rune(oneLine(s))
	if len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return string(r)
}

func at(handle string) string {
	if handle == "" {
		return ""
	}
	return "@" + handle
}

func attempt(t *client.Task) string {
	switch {
	case t.Attempt == 0:
		return ""
	case t.Failures > 0:
		return fmt.Sprintf("%d, after %d lost", t.Attempt, t.Failures)
	}
	return fmt.Sprint(t.Attempt)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func otherThan(s, other string) string {
	if s == other {
		return ""
	}
	return s
}

func tags(m map[string]string) string {
	pairs := make([]string, 0, len(m))
	for _, k := range sortedKeys(m) {
		pairs = append(pairs, k+"="+m[k])
	}
	return strings.Join(pairs, ", ")
}
