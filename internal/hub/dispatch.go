package hub

import (
	"context"
	"time"
)

// The kinds of delivery that the hub makes itself, beside WebhookDelivery.
const (
	// RemoteDelivery is the kind of an endpoint that is an A2A server somewhere.
	RemoteDelivery = "a2a"
	// TunnelDelivery is the delivery of an address whose agent has a tunnel open.
	TunnelDelivery = "tunnel"
)

// Dispatch is one try of the hub itself to bring a task to its callee: under one claim,
// to a webhook, a remote agent or through a tunnel. It is written before the first byte
// leaves, and stays open until all that is to be said to the callee has been said, the
// word of a cancel included.
type Dispatch struct {
	Task    string
	Attempt int    // of the claim; for people: Handouts
	Address string // the callee's id
	Kind    string // of the delivery
	// Instance is which of an address's tunnels it goes through; empty elsewhere.
	Instance string
	// RemoteTask and RemoteContext are what the agent calls the task; empty while, or
	// because, that is not known.
	RemoteTask, RemoteContext string
	BegunAt, EndedAt          time.Time // by the store's clock; EndedAt is zero while it is open
	// Sent: some of the task may have left the hub.
	Sent bool
	// Outcome is a word such as answered, accepted, refused, lost or unsent; empty while
	// it is not known. What was open when its hub died is DispatchLost once its task is
	// dispatched again or has ended a while ago.
	Outcome string
	// Took is how long it lasted until its outcome was known.
	Took time.Duration
	// Status is the HTTP status of the answer, 0 if there was none.
	Status int
	// Detail says more where the outcome alone does not tell, for the address's owner.
	Detail string
}

const (
	// DispatchLost is the outcome of a dispatch of which nothing more was heard.
	DispatchLost = "lost"
	// DispatchUnsent is that of one of which nothing has left the hub.
	DispatchUnsent = "unsent"
)

// dispatchPatience is how long after the end of its task a hub may take to note what
// became of a dispatch.
const dispatchPatience = time.Minute

// EndWithTask is for a store that reads an open dispatch with nothing left to be said to
// its callee, whose task ended at some time. Once that is over a minute ago, the hub that
// was at it has died, and the dispatch is given as one that ended with its task.
func (d *Dispatch) EndWithTask(ended, now time.Time) {
	if !d.EndedAt.IsZero() || ended.IsZero() || now.Sub(ended) <= dispatchPatience {
		return
	}
	d.EndedAt = ended
	if d.Outcome == "" {
		d.Outcome, d.Sent = DispatchLost, true
	}
}

// SettledCancel says for the activity what an agent has made of a cancel that it was told
// of.
func SettledCancel(o CancelOutcome) string {
	if o == CancelAlreadyFinished {
		return "the agent had finished the task already"
	}
	return ""
}

// DispatchEnd is what became of a dispatch.
type DispatchEnd struct {
	Task    string
	Attempt int
	Outcome string
	Took    time.Duration
	Sent    bool
	Status  int
	Detail  string
	// RemoteTask and RemoteContext are what an earlier dispatch knows of the agent. They are
	// kept with this one, too, unless it was linked, and say nothing of its being Sent.
	RemoteTask, RemoteContext string
	// Keep leaves the dispatch open, for a cancel that the callee has not been told of,
	// or an answer that it gives later; the rest is noted all the same. One that has ended,
	// since its task was dispatched again, stays so.
	Keep bool
}

// DispatchFilter selects dispatches.
type DispatchFilter struct {
	// Task, or Address, or both; there are none without either.
	Task, Address string
	Cursor        string
	Limit         int // 0 for 50
}

// DispatchPage is one page of dispatches.
type DispatchPage struct {
	Dispatches []Dispatch
	Next       string // empty on the last page
}

// Dispatches keeps the hub's own deliveries. They go with their task. A cancel finds the
// open dispatch of its task, and is CancelUnconfirmed then until SettleCancel.
type Dispatches interface {
	// BeginDispatch notes a dispatch before anything is sent, and gives the newest
	// earlier one of the task that was Sent or has a RemoteTask; nil if there is none. It
	// ends earlier ones of the task that are open; those without an outcome are Sent then,
	// as far as anybody knows, and DispatchLost. Begun again under the same claim, by
	// somebody who does not know whether that took place, it goes on. BegunAt, EndedAt and
	// what is known only later count for nothing. Conflict unless that claim holds the
	// task, NotFound unless it is addressed to Address.
	BeginDispatch(ctx context.Context, d Dispatch) (earlier *Dispatch, err error)
	// LinkDispatch notes what the agent calls the task, and that it was Sent. NotFound if
	// there is no such dispatch.
	LinkDispatch(ctx context.Context, task string, attempt int, remoteTask, remoteContext string) error
	// EndDispatch notes what became of a dispatch; one that was linked was Sent, whatever
	// it says. NotFound if there is no such one.
	EndDispatch(ctx context.Context, e DispatchEnd) error
	// ListDispatches lists dispatches, the newest first, for the owner of the address
	// and the administrator; who asks was authorised before. Invalid for a cursor that the
	// store did not make.
	ListDispatches(ctx context.Context, f DispatchFilter) (DispatchPage, error)
	// CanceledDispatches gives the open dispatches of canceled tasks of these addresses,
	// whose agents have not been told: of each address at most limit, the oldest, so that
	// one agent that cannot be told does not stand before others. Those that were begun
	// less than after ago are left out, since somebody may be at them.
	CanceledDispatches(ctx context.Context, addresses []string, after time.Duration, limit int) ([]Dispatch, error)
	// SettleCancel notes the outcome of the cancel of a dispatch, in Task.CancelOutcome
	// too, and ends the dispatch. What was confirmed or already finished stays so; what
	// becomes so is ActCancelSeen. NotFound if there is no such dispatch, Conflict unless
	// the task was canceled.
	SettleCancel(ctx context.Context, task string, attempt int, o CancelOutcome) error
}

// Instance is one connected copy of an address's agent: a tunnel.
type Instance struct {
	Address string // id
	// Name tells the copies of an address apart, and stays the same when one connects
	// again.
	Name  string
	Slots int
	Since time.Time
	// Replica names the replica of the hub that it is connected to, and URL is where the
	// other replicas reach that, if it said so.
	Replica, URL string
	// Relay are the prefixes of the paths that it lets outside services reach.
	Relay []string
}

// Presence keeps what replicas of the hub must know of each other. What a replica holds
// ends with it: at once when it closes, and within about 15 s when it dies.
type Presence interface {
	// Own makes this replica the one that delivers to these addresses, unless another one
	// that is alive is, and gives those of them that are its own now. It gives up the
	// others that it owned. With an error the replica has to take it that it owns nothing.
	// What it gives holds for 10 s from the call on; so that it stays this replica's, ask
	// again every few seconds.
	Own(ctx context.Context, addresses []string) ([]string, error)
	// Connect notes an instance of an address that is connected to this replica, whatever
	// Replica says. One of the same name is replaced, wherever it was connected. NotFound
	// if there was never such an address.
	Connect(ctx context.Context, i Instance) error
	// Disconnect notes that an instance is gone, unless it is connected to another replica
	// by now. That there is none is no error.
	Disconnect(ctx context.Context, address, name string) error
	// Moved gives those of these instances that are connected to another replica that is
	// alive, with its Replica; of these only Address and Name count.
	Moved(ctx context.Context, of []Instance) ([]Instance, error)
	// Instances lists the connected instances of an address, or of all if it is empty,
	// oldest first, by name where they are of the same millisecond.
	Instances(ctx context.Context, address string) ([]Instance, error)
}
