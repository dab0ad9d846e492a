package push

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// gather is how long the sender leaves the store alone between two looks, so that
	// what comes together is fetched together.
	gather = 5 * time.Millisecond
	// crowded is how long it does so when a host has more than it may have.
	crowded = 100 * time.Millisecond
	// idle is how long it waits for a hint at the most.
	idle = time.Second
	// settleAfter is how long a job goes on with further events before it is settled:
	// what a crash would repeat.
	settleAfter = time.Second
	// forgetGrace is how long Forget lets a request finish by itself. One that is cut
	// off may still be read by its receiver.
	forgetGrace = 2 * time.Second
	// lookMax is how many configurations one look fetches at the most: each may bring an
	// event of 8 MiB.
	lookMax = 16
	// settleLimit bounds a settlement in a store that stands still.
	settleLimit = time.Minute
)

// Outbox is the part of hub.Pushes that a sender needs.
type Outbox interface {
	LendPushes(ctx context.Context, limit int, loan time.Duration) ([]hub.PushJob, time.Duration, error)
	SettlePush(ctx context.Context, j hub.PushJob, o hub.PushOutcome) error
	ReleasePushes(ctx context.Context) error
}

// Tasks is the part of hub.Reads that a sender needs.
type Tasks interface {
	Task(ctx context.Context, ref hub.TaskRef, by hub.Viewer, load hub.Load) (*hub.Task, error)
}

// Doer sends requests: the client of an egress.Guard, which follows no redirects.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Result is what became of one try.
type Result string

// The results.
const (
	Delivered Result = "delivered"
	Failed    Result = "failed"   // and will be tried again
	GivenUp   Result = "given_up" // and will not
)

// Options are the settings of a Sender. What is zero has the default named with it.
type Options struct {
	Outbox Outbox
	Tasks  Tasks
	Client Doer
	// Sealer opens the secrets of configurations.
	Sealer hub.Sealer
	// Key signs each notification.
	Key ed25519.PrivateKey
	// TaskV03 appends a task in the JSON form of A2A 0.3.
	TaskV03 func(dst []byte, t *hub.Task) []byte
	// Room bounds the memory that large events, and the tasks of 0.3's notifications, take
	// while they are sent. Default: nothing does.
	Room *hub.Room
	// UserAgent is how the hub calls itself. Default: Holdfast.
	UserAgent string
	// Log gets what went wrong, without secrets, paths and queries. Default: nothing is
	// logged.
	Log *slog.Logger
	// Observe learns of each try; it must not block. Default: nobody does.
	Observe func(Result)

	// Timeout bounds one try, its wait for a free slot of the guard included.
	// Default: 30 s.
	Timeout time.Duration
	// BackoffMin and BackoffMax are the bounds for the time before the second try,
	// which doubles with each, and for that before any. Defaults: 1 s and 10 min.
	BackoffMin, BackoffMax time.Duration
	// GiveUp is how long an event is tried. Default: 24 h.
	GiveUp time.Duration
	// Parallel is how many configurations are served at once, PerHost how many of them
	// may have the same host, and PerCaller how many the same caller, who may give many
	// hosts. Half of them at the most failed before. Defaults: 128, 16 and 32.
	Parallel, PerHost, PerCaller int
	// Held is how many bytes of events may be under way until no more are fetched.
	// Default: 64 MiB.
	Held int64
	// Now is the store's clock. Default: time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Result) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.UserAgent = cmp.Or(o.UserAgent, "Holdfast")
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.BackoffMin = cmp.Or(o.BackoffMin, time.Second)
	o.BackoffMax = cmp.Or(o.BackoffMax, 10*time.Minute)
	o.GiveUp = cmp.Or(o.GiveUp, 24*time.Hour)
	o.Parallel = cmp.Or(o.Parallel, 128)
	o.PerHost = cmp.Or(o.PerHost, 16)
	o.PerCaller = cmp.Or(o.PerCaller, 32)
	o.Held = cmp.Or(o.Held, 64<<20)
	return o
}

// loan is how long a job may take: a try that began just before settleAfter, and
// another before it, with time to spare.
func (o *Options) loan() time.Duration { return 2*o.Timeout + settleAfter + time.Minute }

// Sender sends what is due. Make one with New, Start it, and Stop it. It implements
// hub.Pusher.
type Sender struct {
	opt  Options
	wake chan struct{} // holds at most one hint
	// lending is taken from before a loan until its jobs are known, so that Forget
	// misses none.
	lending chan struct{}

	stopping chan struct{} // closed: begin nothing more
	stopOnce sync.Once
	base     context.Context // of every request
	cut      context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	jobs    map[configKey]*job // that may send
	busy    int                // jobs that are not settled yet
	failing int                // those of them that failed before
	held    int64              // bytes of their events
	hosts   map[string]int     // busy ones by host
	callers map[string]int     // and by the caller's address
}

// configKey names a configuration.
type configKey struct{ task, id string }

// job is a loan that is being worked on.
type job struct {
	hub.PushJob
	host string
	size int64 // bytes of its events
	// enough is closed when no further request may begin; cut ends the one under way.
	enough chan struct{}
	once   sync.Once
	ctx    context.Context
	cut    context.CancelFunc
	quiet  chan struct{} // closed once nothing is sent any more
}

func (j *job) stop() { j.once.Do(func() { close(j.enough) }) }

// New makes a sender that does not send yet.
func New(opt Options) *Sender {
	base, cut := context.WithCancel(context.Background())
	return &Sender{
		opt: opt.withDefaults(), base: base, cut: cut,
		wake: make(chan struct{}, 1), lending: make(chan struct{}, 1), stopping: make(chan struct{}),
		jobs: make(map[configKey]*job), hosts: make(map[string]int), callers: make(map[string]int),
	}
}

// Start begins to send, first of all what was on loan to a sender that is no more.
func (s *Sender) Start() { s.running.Go(s.loop) }

// Stop ends the sender: nothing more begins, what is under way may finish until ctx
// ends and is cut off then, and how far all came is settled. What was cut off is sent
// again by the next sender.
func (s *Sender) Stop(ctx context.Context) {
	s.stopOnce.Do(func() { close(s.stopping) })
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.cut()
	<-done
}

// Wake implements hub.Pusher.
func (s *Sender) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Forget implements hub.Pusher. A request that is under way may finish; one that takes
// long is cut off. It may be called for a configuration that was replaced, too: what
// it is now is sent afterwards.
func (s *Sender) Forget(ctx context.Context, task, config string) error {
	// What was lent before the configuration was deleted is known after this; what is
	// lent later no longer has it.
	select {
	case s.lending <- struct{}{}:
		<-s.lending
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	j := s.jobs[configKey{task, config}]
	s.mu.Unlock()
	if j == nil {
		return nil
	}
	j.stop()
	late := time.AfterFunc(forgetGrace, j.cut)
	defer late.Stop()
	select {
	case <-j.quiet:
		return nil
	case <-ctx.Done():
		j.cut()
		return context.Cause(ctx)
	}
}

// Busy is how many configurations are being served just now.
func (s *Sender) Busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

// loop fetches what is due until the sender stops.
func (s *Sender) loop() {
	for released := false; ; {
		rest, wait := idle, time.Duration(0)
		var err error
		if !released {
			err = s.opt.Outbox.ReleasePushes(s.base)
			released = err == nil
		}
		if err == nil {
			rest, wait, err = s.fetch()
		}
		if err != nil {
			s.opt.Log.Error("push notifications could not be fetched; that is tried again", "error", err)
		}
		if !s.pause(rest, nil) || !s.pause(wait, s.wake) {
			return
		}
	}
}

// pause waits for a while, or for a hint; false when the sender stops.
func (s *Sender) pause(d time.Duration, hint <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-hint:
		return true
	case <-t.C:
		return true
	case <-s.stopping:
		return false
	}
}

// fetch borrows what is due and begins to deliver it. It says how long to rest in any
// case, and how long to wait for a hint after that.
func (s *Sender) fetch() (rest, wait time.Duration, err error) {
	s.lending <- struct{}{}
	defer func() { <-s.lending }()
	room := s.room()
	if room <= 0 {
		return gather, idle, nil // the end of a job is a hint
	}
	jobs, next, err := s.opt.Outbox.LendPushes(context.WithoutCancel(s.base), room, s.opt.loan())
	if err != nil {
		return idle, 0, err
	}
	rest, wait = gather, idle
	for _, j := range jobs {
		if !s.begin(j) {
			rest = crowded
		}
	}
	if next >= 0 {
		wait = min(next, idle)
	}
	return rest, wait, nil
}

// room is how many configurations may be fetched now.
func (s *Sender) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held >= s.opt.Held {
		return 0
	}
	return min(s.opt.Parallel-s.busy, lookMax)
}

// begin delivers a job in the background. It is false, and the job is put off, if it
// would crowd out others.
func (s *Sender) begin(p hub.PushJob) bool {
	j := &job{PushJob: p, host: hostOf(p.Config.URL), enough: make(chan struct{}), quiet: make(chan struct{})}
	for i := range p.Events {
		j.size += int64(len(p.Events[i].Body))
	}
	key := configKey{p.Config.Task, p.Config.ID}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[key] != nil {
		return true // what is sent under an older loan takes too long; this one ends by itself
	}
	if s.crowds(j) {
		s.running.Go(func() { s.settle(j, hub.PushOutcome{Retry: putOff(&p)}) })
		return false
	}
	j.ctx, j.cut = context.WithCancel(s.base)
	s.jobs[key] = j
	s.count(j, 1)
	s.running.Go(func() { s.run(key, j) })
	return true
}

// crowds reports whether a job would take more than its host or its caller may have, or
// than there is for what failed before: so neither keeps others waiting. s.mu is held.
func (s *Sender) crowds(j *job) bool {
	return s.hosts[j.host] >= s.opt.PerHost || s.callers[j.Caller.ID] >= s.opt.PerCaller ||
		j.Config.Tries > 0 && s.failing >= max(1, s.opt.Parallel/2)
}

// count counts a job as begun (1) or settled (-1). s.mu is held.
func (s *Sender) count(j *job, by int) {
	s.busy += by
	s.held += int64(by) * j.size
	if j.Config.Tries > 0 {
		s.failing += by
	}
	if s.hosts[j.host] += by; s.hosts[j.host] == 0 {
		delete(s.hosts, j.host)
	}
	if s.callers[j.Caller.ID] += by; s.callers[j.Caller.ID] == 0 {
		delete(s.callers, j.Caller.ID)
	}
}

// run delivers a job and settles it.
func (s *Sender) run(key configKey, j *job) {
	out := s.deliver(j)
	j.cut()
	close(j.quiet)
	s.mu.Lock()
	delete(s.jobs, key) // once it is settled, it may be lent again at any time
	s.mu.Unlock()
	s.settle(j, out)
	s.mu.Lock()
	s.count(j, -1)
	s.mu.Unlock()
	s.Wake() // there is room, and perhaps more to deliver
}

// settle says how far a job came. One that is gone or was replaced needs none.
func (s *Sender) settle(j *job, out hub.PushOutcome) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.base), settleLimit)
	defer cancel()
	err := s.opt.Outbox.SettlePush(ctx, j.PushJob, out)
	if kind := hub.KindOf(err); err == nil || kind == hub.Conflict || kind == hub.NotFound {
		return
	}
	s.opt.Log.Error("what was delivered could not be noted and is sent again", "task", j.Config.Task, "config", j.Config.ID, "error", err)
}

// ended reports whether a job may begin no further request.
func (s *Sender) ended(j *job) bool {
	select {
	case <-j.enough:
		return true
	case <-s.stopping:
		return true
	case <-j.ctx.Done():
		return true
	default:
		return false
	}
}

// hostOf is where a URL leads, for counting and for telling its owner.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

var errSecrets = errors.New("the secrets of the configuration cannot be opened")
