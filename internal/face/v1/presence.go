package v1

import (
	"context"
	"net/http"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/wire"
)

// listing is what a list of attempts is asked for.
type listing struct {
	Task   string `query:"task" doc:"Only those of this task."`
	Cursor string `query:"cursor" doc:"The next_cursor of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"Attempts per page."`
}

// attemptsOf is the input of a list of attempts of an address.
type attemptsOf struct {
	Ref string `path:"ref" doc:"Handle or id of the address; me for the caller's own."`
	listing
}

// owns reports whether the deliveries to an address are p's concern.
func owns(p hub.Principal, a *hub.Address) bool {
	return p.Admin() || p.Address == a.ID && p.Role != hub.RoleAnonymous
}

func (f *face) listOwnAttempts(ctx context.Context, p hub.Principal, in *listing) (*answer[wire.List[wire.Attempt]], error) {
	return f.listAttempts(ctx, p, &attemptsOf{Ref: p.Address, listing: *in})
}

func (f *face) listAttempts(ctx context.Context, p hub.Principal, in *attemptsOf) (*answer[wire.List[wire.Attempt]], error) {
	a, err := f.opt.Identity.Owned(ctx, p, in.Ref)
	if err != nil {
		return nil, err
	}
	page, err := f.opt.Engine.Dispatches(ctx, hub.DispatchFilter{Task: in.Task, Address: a.ID, Cursor: in.Cursor, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	list := wire.List[wire.Attempt]{Data: make([]wire.Attempt, 0, len(page.Dispatches))}
	for i := range page.Dispatches {
		list.Data = append(list.Data, attempt(&page.Dispatches[i]))
	}
	if page.Next != "" {
		list.NextCursor = &page.Next
	}
	return &answer[wire.List[wire.Attempt]]{list}, nil
}

// attempt is a dispatch as /v1 shows it.
func attempt(d *hub.Dispatch) wire.Attempt {
	shown := wire.Attempt{
		TaskID: d.Task, Attempt: hub.Handouts(d.Attempt), Delivery: d.Kind, Instance: d.Instance, Outcome: d.Outcome, Sent: d.Sent,
		Status: d.Status, LatencyMS: d.Took.Milliseconds(), Detail: d.Detail,
		BegunAt: wire.Time{Time: d.BegunAt}, EndedAt: timeOrNil(d.EndedAt),
	}
	if d.Outcome == "" {
		shown.Outcome = "open"
	}
	if d.RemoteTask != "" {
		shown.RemoteTaskID = &d.RemoteTask
	}
	return shown
}

// connected gives the connected instances of all addresses.
func (f *face) connected(ctx context.Context) (map[string][]hub.Instance, error) {
	all, err := f.opt.Engine.Connected(ctx, "")
	if err != nil {
		return nil, err
	}
	by := make(map[string][]hub.Instance)
	for _, i := range all {
		by[i.Address] = append(by[i.Address], i)
	}
	return by, nil
}

// presence is who works on the tasks of an address, as lists show it.
func (f *face) presence(a *hub.Address, connected []hub.Instance) *wire.Presence {
	s, _ := f.opt.Engine.Standing(a.ID)
	shown := &wire.Presence{Connected: make([]wire.Instance, 0, len(connected)), Slots: s.Slots, InFlight: s.InFlight, Trouble: trouble(&s)}
	for _, i := range connected {
		one := wire.Instance{Name: i.Name, Slots: i.Slots, Since: wire.Time{Time: i.Since}, Replica: i.Replica}
		if n, ok := s.Busy[i.Name]; ok {
			one.Busy = &n
		} else {
			shown.Slots += i.Slots // of another replica
		}
		shown.Connected = append(shown.Connected, one)
	}
	return shown
}

// wholePresence is also what waits for an address.
func (f *face) wholePresence(ctx context.Context, a *hub.Address) (*wire.Presence, error) {
	connected, err := f.opt.Engine.Connected(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	box, err := f.opt.Engine.Mailbox(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	shown, oldest := f.presence(a, connected), box.OldestReady.Milliseconds()
	shown.Waiting, shown.Unfinished, shown.OldestWaitMS = &box.Ready, &box.Open, &oldest
	return shown, nil
}

// trouble is why nothing is delivered to an address, nil if nothing is wrong.
func trouble(s *hub.Standing) *wire.EndpointTrouble {
	if s.Trouble == "" {
		return nil
	}
	return &wire.EndpointTrouble{Reason: s.Trouble, Since: wire.Time{Time: s.Since}, NextTry: wire.Time{Time: s.NextTry}}
}

// dispatched gives what is known of the hub's own delivery of a task: its state where
// that is not the task's phase, and what the agent calls the task.
func (f *face) dispatched(ctx context.Context, t *hub.Task) (state, remote string, err error) {
	d, err := f.opt.Engine.Dispatch(ctx, t)
	if err != nil || d == nil {
		return "", "", err
	}
	if d.Outcome == "lost" && d.Sent && d.RemoteTask == "" && (t.Phase == hub.Ready || t.State == hub.Failed) {
		state = "unknown"
	}
	return state, d.RemoteTask, nil
}

// redeliver serves POST /v1/agents/me/tasks/{id}/redeliver.
func (f *face) redeliver(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	t, err := f.opt.Engine.DeliverAgain(r.Context(), p, r.PathValue("id"))
	if err != nil {
		return err
	}
	return f.replyTask(w, t, p)
}
