package v1

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/wire"
)

// The inputs of the routes about push notifications, in huma's terms.
type (
	// PushTask names a task; exported, since huma reads no embedded type that is not.
	PushTask struct {
		Callee string `path:"callee" doc:"Handle or id of the address that was called; me for the caller's own."`
		ID     string `path:"id" doc:"The task's id."`
	}
	pushAdd struct {
		PushTask
		Body wire.PushRequest
	}
	pushOne struct {
		PushTask
		Config string `path:"config" doc:"The configuration's id."`
	}
	pushFailures struct {
		Task   string `query:"task" doc:"Only those of this task."`
		Cursor string `query:"cursor" doc:"The next_cursor of the page before."`
		Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"Failures per page."`
	}
	pushFailure struct {
		ID string `path:"id" doc:"The failure's id."`
	}
)

// registerPush adds the routes about push notifications.
func (f *face) registerPush() {
	op := func(id, method, path string, status int, summary, description string) huma.Operation {
		o := f.operation(id, method, path, "Push notifications", summary, status, f.authenticated)
		o.Description = description
		return o
	}
	const ofTask = "/v1/agents/{callee}/tasks/{id}/push"
	serve(f, op("list-push", "GET", ofTask, 200, "List where the events of a task are sent.",
		"Each configuration, oldest first, with how far its deliveries have come. For who sent the task, and the administrator."), f.listPush)
	serve(f, op("add-push", "POST", ofTask, 201, "Have the events of a task sent to a URL.",
		"Those that come from now on; of a task that has ended, its end. A configuration with the same id is replaced. No answer has the token or the credentials."), f.addPush)
	serve(f, op("delete-push", "DELETE", ofTask+"/{config}", 204, "Have no more events of a task sent.",
		"Nothing is sent for the configuration once this is answered. That there is none is no error."), f.deletePush)
	serve(f, op("list-push-failures", "GET", "/v1/push/failures", 200, "List the notifications that were given up.",
		"Newest first: of the tasks that the caller sent, or for the administrator of all."), f.listPushFailures)
	serve(f, op("redeliver-push", "POST", "/v1/push/failures/{id}/redeliver", 200, "Send a notification that was given up again.",
		"The events that followed it are sent once more after it. The answer is the configuration; the failure is no longer listed."), f.redeliverPush)
}

// ref is the task that the path names.
func (in *PushTask) ref(p hub.Principal) engine.Ref {
	if in.Callee == "me" {
		return engine.Ref{Callee: p.Address, Task: in.ID}
	}
	return engine.Ref{Callee: in.Callee, Task: in.ID}
}

func (f *face) listPush(ctx context.Context, p hub.Principal, in *PushTask) (*answer[wire.List[wire.Push]], error) {
	all, err := f.opt.Engine.Pushes(ctx, p, in.ref(p))
	if err != nil {
		return nil, err
	}
	list := wire.List[wire.Push]{Data: make([]wire.Push, 0, len(all))}
	for i := range all {
		list.Data = append(list.Data, push(&all[i]))
	}
	return &answer[wire.List[wire.Push]]{list}, nil
}

func (f *face) addPush(ctx context.Context, p hub.Principal, in *pushAdd) (*answer[wire.Push], error) {
	c := hub.PushConfig{ID: in.Body.ID, URL: in.Body.URL, Token: in.Body.Token, Version: "1.0"}
	if auth := in.Body.Authentication; auth != nil {
		c.Scheme, c.Credentials = auth.Scheme, auth.Credentials
	}
	return pushAnswer(f.opt.Engine.SetPush(ctx, p, in.ref(p), c))
}

func (f *face) deletePush(ctx context.Context, p hub.Principal, in *pushOne) (*none, error) {
	return &none{}, f.opt.Engine.DeletePush(ctx, p, in.ref(p), in.Config)
}

func (f *face) listPushFailures(ctx context.Context, p hub.Principal, in *pushFailures) (*answer[wire.List[wire.PushFailure]], error) {
	all, next, err := f.opt.Engine.PushFailures(ctx, p, in.Task, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	list := wire.List[wire.PushFailure]{Data: make([]wire.PushFailure, 0, len(all))}
	for _, x := range all {
		list.Data = append(list.Data, wire.PushFailure{
			ID: x.ID, TaskID: x.Task, ConfigID: x.Config, URL: x.URL, Seq: x.Seq,
			At: wire.Time{Time: x.At}, Tries: x.Tries, Reason: x.Reason,
		})
	}
	if next != "" {
		list.NextCursor = &next
	}
	return &answer[wire.List[wire.PushFailure]]{list}, nil
}

func (f *face) redeliverPush(ctx context.Context, p hub.Principal, in *pushFailure) (*answer[wire.Push], error) {
	return pushAnswer(f.opt.Engine.Redeliver(ctx, p, in.ID))
}

func pushAnswer(c hub.PushConfig, err error) (*answer[wire.Push], error) {
	if err != nil {
		return nil, err
	}
	return &answer[wire.Push]{push(&c)}, nil
}

// push is a configuration as /v1 shows it. What the hub was told to keep secret is
// not looked at.
func push(c *hub.PushConfig) wire.Push {
	shown := wire.Push{
		ID: c.ID, TaskID: c.Task, URL: c.URL, Version: c.Version, CreatedAt: wire.Time{Time: c.CreatedAt},
		DoneSeq: c.Cursor, Tries: c.Tries, FailingSince: timeOrNil(c.FailedSince), NextTry: timeOrNil(c.NextTry),
		Failed: c.Failed,
	}
	if c.Scheme != "" {
		shown.Authentication = &wire.PushAuth{Scheme: c.Scheme}
	}
	if c.LastError != "" {
		shown.LastError = &c.LastError
	}
	return shown
}
