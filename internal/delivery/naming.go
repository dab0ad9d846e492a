package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// nameAfter is how long after an agent has said what it calls a task that is noted. One
// that has the answer sooner is spared the commit: its dispatch ends with the name. A hub
// that is killed meanwhile knows as little of the task as one that is killed before the
// agent said anything.
const nameAfter = 5 * time.Millisecond

// naming notes what the agent of a flight calls its task.
type naming struct {
	mu    sync.Mutex // one notes at a time, and notes what it is called by then
	noted bool       // a name is

	timer *time.Timer // guarded by the flight's mu, as due is
	due   bool        // it was named since that was noted
}

// nameSoon has it noted what the agent calls the task, unless the flight ends soon.
func (f *flight) nameSoon() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.naming.due = true
	if f.naming.timer == nil {
		f.naming.timer = time.AfterFunc(nameAfter, f.name)
	} else {
		f.naming.timer.Reset(nameAfter)
	}
}

// name notes what the agent calls the task, if that is due. It goes with the end of the
// dispatch once more, so that nothing is lost where it cannot be noted just now.
func (f *flight) name() {
	f.naming.mu.Lock()
	defer f.naming.mu.Unlock()
	task, remote, due := f.named()
	if !due {
		return
	}
	t := f.x.Task
	err := f.d.opt.Store.LinkDispatch(context.WithoutCancel(f.d.sending), t.ID, t.Attempt, task, remote)
	if err != nil && hub.KindOf(err) != hub.NotFound { // which it is if the task is gone
		f.d.opt.Log.Warn("it could not be noted what an agent calls a task", "task", t.ID, "error", err)
		return
	}
	f.naming.noted = true
}

// named gives what the agent calls the task, and whether that was still to be noted, which
// is the caller's from then on.
func (f *flight) named() (remoteTask, remoteContext string, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	due, f.naming.due = f.naming.due, false
	if due {
		f.naming.timer.Stop()
	}
	return f.remoteTask, f.remoteContext, due
}

// lastName gives what the agent calls the task, to be noted with the end of its dispatch.
// A name that was noted before stays there, so that is made the same first.
func (f *flight) lastName() (remoteTask, remoteContext string) {
	f.naming.mu.Lock()
	noted := f.naming.noted
	f.naming.mu.Unlock()
	if noted {
		f.name()
	}
	remoteTask, remoteContext, _ = f.named()
	return remoteTask, remoteContext
}
