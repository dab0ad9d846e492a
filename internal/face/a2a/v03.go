package a2a

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// blockingV03 is how long a blocking send of a client older than 1.0 waits at most:
// those clients give up after 30 s, and then do not even know the task's id.
const blockingV03 = 25 * time.Second

// isV03 reports whether a method is one of A2A 0.2 and 0.3. Their names and those of
// 1.0 have none in common.
func isV03(method string) bool {
	for _, prefix := range []string{"message/", "tasks/", "agent/"} {
		if strings.HasPrefix(method, prefix) {
			return true
		}
	}
	return false
}

// namesV03 reports whether a request names 0.3, or a version before it that is much
// the same, as its version.
func namesV03(r *http.Request) bool {
	v := namedVersion(r)
	for _, known := range []string{"0.2", "0.3"} {
		if v == known || strings.HasPrefix(v, known+".") {
			return true
		}
	}
	return false
}

// checkVersionV03 refuses a method of 0.3 in a request that names another version.
func checkVersionV03(r *http.Request) error {
	switch err := checkVersion(r); {
	case namedVersion(r) == "" || namesV03(r):
		return nil
	case err != nil:
		return err
	}
	return &fault{reason: methodNotFound, message: "this is a method of A2A 0.3, and the request says that it is of 1.0; leave A2A-Version out, or use 1.0's methods, such as SendMessage"}
}

// dispatchV03 performs the operation that a request of 0.3 names, by the same handler
// as those of 1.0. Its errors are 0.3's.
func (f *face) dispatchV03(w http.ResponseWriter, r *http.Request, b binding, c *caller, op operation) error {
	in := kinded
	switch b := b.(type) {
	case restV03:
		in = b.form
	case *grpcCall:
		in = proto
	}
	err := f.performV03(w, r, b, in, c, op)
	if err == nil {
		return nil
	}
	return faultV03(translate(r.Context(), f.opt.Log, err))
}

// faultV03 gives an error the words of 0.3 where clients hold on to them: FastA2A's
// take a task that is not there, or cannot be canceled, only in exactly these.
func faultV03(f *fault) *fault {
	old := *f
	switch f.reason {
	case taskNotFound:
		old.message = "Task not found"
	case taskNotCancelable:
		old.message = "Task not cancelable"
	default:
	}
	return &old
}

// performV03 is dispatchV03 before its errors are 0.3's. in is the form of the binding.
func (f *face) performV03(w http.ResponseWriter, r *http.Request, b binding, in form, c *caller, op operation) error {
	h := &f.v03
	switch op.method {
	case "message/send":
		return f.sendV03(w, r, b, in, c, op.params)
	case "message/stream":
		return f.streamV03(w, r, b, in, c, op.params)
	case "tasks/get":
		return onTaskV03(w, r, b, in, c, op.params, h.GetTask)
	case "tasks/cancel":
		return onTaskV03(w, r, b, in, c, op.params, h.CancelTask)
	case "tasks/resubscribe":
		p, err := decodeTask(op.params)
		if err != nil {
			return err
		}
		s, err := h.SubscribeToTask(r.Context(), c, p)
		if err == nil {
			s.v03 = &viewV03{form: in, history: p.history}
		}
		return f.streamOr(w, r, b, s, err)
	case "tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/get",
		"tasks/pushNotificationConfig/list", "tasks/pushNotificationConfig/delete":
		return f.performPushV03(w, r, b, in, c, op)
	case methodExtendedCardV03:
		return f.serveExtendedCardV03(w, b, in, c, op)
	}
	return &fault{reason: methodNotFound, message: "A2A 0.3 has no such method; there are message/send, message/stream, tasks/get, tasks/cancel, tasks/resubscribe, agent/getAuthenticatedExtendedCard and those on push notifications"}
}

func (f *face) sendV03(w http.ResponseWriter, r *http.Request, b binding, in form, c *caller, params []byte) error {
	p, form, err := decodeSendV03(params, in)
	if err != nil {
		return err
	}
	res, err := f.v03.SendMessage(r.Context(), c, p)
	if err != nil {
		return err
	}
	noteLineage(w, res.lineageIgnored)
	if res.message != nil {
		reply(w, b, form.appendReply(b.open(nil), res.message, res.task))
		return nil
	}
	reply(w, b, form.appendSent(b.open(nil), res.task, p.history))
	return nil
}

func (f *face) streamV03(w http.ResponseWriter, r *http.Request, b binding, in form, c *caller, params []byte) error {
	p, form, err := decodeSendV03(params, in)
	if err != nil {
		return err
	}
	s, err := f.v03.SendStreamingMessage(r.Context(), c, p)
	if err == nil {
		s.v03 = &viewV03{form: form, history: p.history, sent: true}
	}
	return f.streamOr(w, r, b, s, err)
}

// onTaskV03 performs an operation that is on one task and gives it.
func onTaskV03(w http.ResponseWriter, r *http.Request, b binding, in form, c *caller, params []byte,
	op func(context.Context, *caller, taskRequest) (*hub.Task, error)) error {
	p, err := decodeTask(params)
	if err != nil {
		return err
	}
	t, err := op(r.Context(), c, p)
	if err != nil {
		return err
	}
	reply(w, b, in.appendTask(b.open(nil), t, p.history))
	return nil
}

// viewV03 is how a stream looks to a client that is older than 1.0.
type viewV03 struct {
	form    form
	history int  // of the task that the stream begins with
	sent    bool // the stream answers a message, rather than following an older task
}

// append appends a frame.
func (v *viewV03) append(dst []byte, s *stream, fr frame) []byte {
	if fr.task != nil {
		return v.form.appendSent(dst, fr.task, v.history)
	}
	return v.form.appendEvent(dst, s.task, s.events.ContextID(), fr.event, fr.final)
}

// cut ends a batch where a stream of 0.3 ends, which is not only with the task but
// also when it waits for its caller: clients of 0.3 answer a question once their
// stream has ended. The last status says that it is final. A question that has
// something behind it has been answered already, and a task that is followed while it
// asks is followed on.
func (v *viewV03) cut(b batch) batch {
	last := len(b.frames) - 1
	if last < 0 {
		return b
	}
	fr := &b.frames[last]
	switch {
	case fr.task != nil:
		b.more = b.more && !(v.sent && fr.task.State.Interrupted())
	case fr.event.Kind == hub.StatusEvent && fr.event.State.Settled():
		fr.final, b.more = true, false
	}
	return b
}

// nextV03 is next, for a client that is older than 1.0.
func (s *stream) nextV03(ctx context.Context) (batch, error) {
	b, err := s.next(ctx)
	if err != nil {
		return b, err
	}
	return s.v03.cut(b), nil
}
