package delivery_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
	"github.com/holdfast-hub/holdfast/internal/store/postgres"
)

// none is no deliverer for endpoints.
func none(context.Context, delivery.Delivery) delivery.Outcome {
	return delivery.Outcome{Kind: delivery.Refused, Reason: "it is called by mistake"}
}

// well is a deliverer whose agent does everything.
func well(context.Context, delivery.Delivery) delivery.Outcome { return done() }

// connect connects an instance of an address.
func (b *bed) connect(address, instance string, slots int, by delivery.Deliverer) (leave func()) {
	b.Helper()
	leave, _, err := b.d.Connect(delivery.Connection{
		Address: address, Instance: instance, Slots: slots, Deliverer: by, Endpoint: hub.Endpoint{Kind: hub.TunnelDelivery},
	})
	if err != nil {
		b.Fatal(err)
	}
	return leave
}

// within waits for something to come.
func within[T any](b *bed, what string, c <-chan T) (v T) {
	b.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		b.Fatalf("%s never came", what)
	}
	return v
}

// becomes waits until something is so.
func (b *bed) becomes(what string, so func() bool) {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !so() {
		select {
		case <-tick.C:
		case <-end:
			b.Fatalf("it never came to be that %s", what)
		}
	}
}

// say sends a message to a task.
func (b *bed) say(t *hub.Task, id, text string) {
	b.Helper()
	if _, err := b.engine.Send(b.Context(), caller(), engine.SendRequest{
		To: t.Callee.ID, TaskID: t.ID, Message: canon.TextMessage(id, false, text),
	}); err != nil {
		b.Fatal(err)
	}
}

func caller() hub.Principal {
	return hub.Principal{Address: "caller", Handle: "caller", Role: hub.RoleAgent}
}

func TestTasksSpreadOverInstancesByFreeSlots(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	b.d.Start(b.engine)
	free := make(chan struct{})
	begun := make(chan string, 10)
	at := func(name string) deliverer {
		return func(context.Context, delivery.Delivery) delivery.Outcome {
			begun <- name
			<-free
			return done()
		}
	}
	defer b.connect("dev", "one", 1, at("one"))()
	defer b.connect("dev", "two", 3, at("two"))()
	var tasks []*hub.Task
	for n := range 6 {
		tasks = append(tasks, b.send("dev", n))
	}
	var got []string
	for range 4 {
		got = append(got, within(b, "a delivery", begun))
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"one", "two", "two", "two"}) {
		t.Errorf("the tasks went to %v", got)
	}
	s, ok := b.d.Standing("dev")
	if !ok || s.Kind != hub.TunnelDelivery || s.Slots != 4 || s.InFlight != 4 || s.Busy["one"] != 1 || s.Busy["two"] != 3 {
		t.Errorf("the standing is %+v", s)
	}
	if len(begun) != 0 {
		t.Error("there are more deliveries than slots")
	}
	close(free)
	for _, task := range tasks {
		if got := b.settled(task); got.State != hub.Completed {
			t.Errorf("the task is %+v", got)
		}
	}
}

// breaking is a deliverer whose connection breaks as soon as broken is closed.
func (b *bed) breaking(begun chan<- struct{}, broken <-chan struct{}) deliverer {
	return func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		d.Link("remote-1", "context-1")
		begun <- struct{}{}
		<-broken
		return delivery.Outcome{Kind: delivery.Lost, Reason: "its connection broke"}
	}
}

// A connection that breaks and comes back takes its task along: the same claim, without
// a failure, and the agent is asked for what it has.
func TestATaskGoesOnWithItsInstance(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	b.d.Start(b.engine)
	begun, broken := make(chan struct{}, 1), make(chan struct{})
	leave := b.connect("dev", "one", 1, b.breaking(begun, broken))
	task := b.send("dev", 1)
	within(b, "the delivery", begun)
	leave()
	close(broken)
	defer b.connect("dev", "two", 1, deliverer(none))()
	earlier := make(chan *hub.Dispatch, 1)
	defer b.connect("dev", "one", 1, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		earlier <- d.Earlier
		return done()
	}))()
	if x := within(b, "the delivery", earlier); x == nil || x.RemoteTask != "remote-1" || x.RemoteContext != "context-1" || !x.Sent {
		t.Errorf("the earlier dispatch is %+v", x)
	}
	if got := b.settled(task); got.State != hub.Completed || got.Attempt != 1 || got.Failures != 0 {
		t.Errorf("the task is %+v", got)
	}
}

// An attempt is one send: where nobody knows what the agent calls the task, a connection that
// comes back gets it as another attempt, which counts. So a task that ends its own tunnel is
// not sent for ever.
func TestATaskWithoutANameIsSentOnceAnAttempt(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	b.d.Start(b.engine)
	begun := make(chan int, 10)
	var task *hub.Task
	for n := range 2 {
		broken := make(chan struct{})
		leave := b.connect("dev", "one", 1, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
			begun <- d.Task.Attempt
			<-broken
			return delivery.Outcome{Kind: delivery.Lost, Reason: "its connection broke"}
		}))
		if task == nil {
			task = b.send("dev", 1)
		}
		if attempt := within(b, "the delivery", begun); attempt != n+1 {
			t.Fatalf("send %d is attempt %d", n+1, attempt)
		}
		leave()
		close(broken)
	}
	defer b.connect("dev", "one", 1, deliverer(well))()
	if got := b.settled(task); got.State != hub.Completed || got.Attempt != 3 || got.Failures != 2 {
		t.Errorf("the task is %+v", got)
	}
}

func TestATaskOfAnInstanceThatStaysAwayIsDeliveredAgain(t *testing.T) {
	b := open(t, deliverer(none), func(o *delivery.Options) { o.Comeback = 50 * time.Millisecond })
	b.address("dev")
	b.d.Start(b.engine)
	begun, broken := make(chan struct{}, 1), make(chan struct{})
	leave := b.connect("dev", "one", 1, b.breaking(begun, broken))
	task := b.send("dev", 1)
	within(b, "the delivery", begun)
	defer b.connect("dev", "two", 1, deliverer(well))()
	leave()
	close(broken)
	if got := b.settled(task); got.State != hub.Completed || got.Attempt != 2 || got.Failures != 1 {
		t.Errorf("the task is %+v", got)
	}
	b.becomes("both deliveries are noted", func() bool { return slices.Equal(b.outcomes(task), []string{"lost", "answered"}) })
}

func TestAnAnswerGoesToTheInstanceThatAsked(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	b.d.Start(b.engine)
	at := func(name string) deliverer {
		return func(_ context.Context, d delivery.Delivery) delivery.Outcome {
			if d.Task.Attempt > 1 {
				out := done()
				out.Report.Message = canon.TextMessage("r", true, name)
				return out
			}
			return delivery.Outcome{Kind: delivery.Answered, Report: hub.Report{
				State: hub.InputRequired, Message: canon.TextMessage("r", true, name),
			}}
		}
	}
	for _, name := range []string{"one", "two", "three"} {
		defer b.connect("dev", name, 1, at(name))()
	}
	who := map[string]bool{}
	for n := range 9 {
		asked := b.settled(b.send("dev", n))
		b.say(asked, "a", "that")
		got := b.settled(asked)
		if string(got.StatusMessage) != string(asked.StatusMessage) {
			t.Errorf("%s asked, and this is the answer: %s", asked.StatusMessage, got.StatusMessage)
		}
		who[string(asked.StatusMessage)] = true
	}
	if len(who) < 2 {
		t.Errorf("all tasks went to one instance, which shows nothing: %v", who)
	}
}

func TestAConnectionTakesThePlaceOfTheOneBefore(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	b.d.Start(b.engine)
	leave := b.connect("dev", "one", 1, deliverer(none))
	defer b.connect("dev", "one", 1, deliverer(well))()
	leave() // of the old one, which says nothing of the new one
	for n := range 3 {
		if got := b.settled(b.send("dev", n)); got.State != hub.Completed {
			t.Errorf("the task is %+v", got)
		}
	}
	tunnel := hub.Endpoint{Kind: hub.TunnelDelivery}
	if _, _, err := b.d.Connect(delivery.Connection{Address: "nobody", Instance: "x", Slots: 1, Deliverer: deliverer(none), Endpoint: tunnel}); hub.KindOf(err) != hub.NotFound {
		t.Errorf("a connection of nobody: %v", err)
	}
	if _, _, err := b.d.Connect(delivery.Connection{Address: "dev", Instance: "x", Deliverer: deliverer(none), Endpoint: tunnel}); hub.KindOf(err) != hub.Invalid {
		t.Errorf("a connection without slots: %v", err)
	}
}

func TestProgressIsReportedAndWhatDoesNotFitFailsTheTask(t *testing.T) {
	said := make(chan struct{})
	b := open(t, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		if err := d.Progress(hub.Report{State: hub.Working, Message: canon.TextMessage("p", true, "halfway")}); err != nil {
			t.Error(err)
		}
		<-said
		err := d.Progress(hub.Report{Events: []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", Append: true, Body: []byte(`{"artifactId":"a","parts":[{"text":"x"}]}`)}}})
		if hub.KindOf(err) != hub.Invalid {
			t.Errorf("an append to nothing: %v", err)
		}
		return delivery.Outcome{Kind: delivery.Lost, Reason: "it was cut off"}
	}))
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	b.becomes("the progress is seen", func() bool {
		got, err := b.store.Task(t.Context(), hub.TaskRef{ID: task.ID}, hub.Viewer{All: true}, hub.Load{})
		return err == nil && string(got.StatusMessage) == string(canon.TextMessage("p", true, "halfway"))
	})
	close(said)
	if got := b.settled(task); got.State != hub.Failed || got.Attempt != 1 {
		t.Errorf("the task is %+v", got)
	}
}

func TestMessagesArePassedOnAndThenSeen(t *testing.T) {
	begun, got := make(chan struct{}, 1), make(chan hub.Message, 5)
	b := open(t, deliverer(func(ctx context.Context, d delivery.Delivery) delivery.Outcome {
		begun <- struct{}{}
		for range 2 {
			select {
			case m := <-d.Messages:
				got <- m
			case <-ctx.Done():
			}
		}
		return done()
	}))
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	within(b, "the delivery", begun)
	b.say(task, "more-1", "and that")
	b.say(task, "more-2", "and this")
	for n := range 2 {
		if m := within(b, "a message", got); m.N != n+2 || m.FromCallee {
			t.Errorf("the message is %+v", m)
		}
	}
	b.settled(task)
	full, err := b.store.Task(t.Context(), hub.TaskRef{ID: task.ID}, hub.Viewer{All: true}, hub.Load{History: -1})
	if err != nil {
		t.Fatal(err)
	}
	if full.History[1].Undelivered {
		t.Errorf("the first one passed on is %+v", full.History[1])
	}
}

// replicas are two stores of one database. Tests close the first one themselves.
func replicas(t *testing.T) (here, other *postgres.Store) {
	t.Helper()
	srv, err := pgtest.Start(t.Context(), pgtest.Options{})
	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := srv.Create(t.Context(), "hub", ""); err != nil {
		t.Fatal(err)
	}
	if here, err = postgres.Open(t.Context(), postgres.Options{URL: srv.URL("hub")}); err != nil {
		t.Fatal(err)
	}
	if other, err = postgres.Open(t.Context(), postgres.Options{URL: srv.URL("hub")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	return here, other
}

// An answer for an instance of another replica is left to that for a moment, and taken
// all the same if nobody there does.
func TestAnAnswerIsLeftToTheReplicaThatHasItsInstance(t *testing.T) {
	here, other := replicas(t)
	b := openOn(t, here, deliverer(none), func(o *delivery.Options) { o.Comeback = time.Minute })
	b.address("dev")
	b.d.Start(b.engine)
	leave := b.connect("dev", "one", 1, deliverer(func(context.Context, delivery.Delivery) delivery.Outcome {
		return delivery.Outcome{Kind: delivery.Answered, Report: hub.Report{State: hub.InputRequired, Message: canon.TextMessage("q", true, "which?")}}
	}))
	asked := b.settled(b.send("dev", 1))
	leave()
	delivery.Forget(b.d, "dev", "one")
	if err := other.Connect(t.Context(), hub.Instance{Address: "dev", Name: "one", Slots: 1, Since: time.Now()}); err != nil {
		t.Fatal(err)
	}
	defer b.connect("dev", "two", 1, deliverer(well))()
	b.say(asked, "a", "that")
	if got := b.settled(asked); got.State != hub.Completed || got.Attempt != 3 || got.Failures != 0 {
		t.Errorf("the task is %+v, want it given back once and then done", got)
	}
}

// An instance that connects elsewhere leaves here: what it was at is given back at once, and
// counts as nobody's failure.
func TestAnInstanceThatMovesToAnotherReplicaLeavesThisOne(t *testing.T) {
	here, other := replicas(t)
	b := openOn(t, here, deliverer(none), func(o *delivery.Options) { o.Shared, o.Comeback = true, time.Hour })
	b.address("dev")
	b.d.Start(b.engine)
	begun, replaced := make(chan string, 1), make(chan struct{})
	leave, _, err := b.d.Connect(delivery.Connection{
		Address: "dev", Instance: "one", Slots: 1, Endpoint: hub.Endpoint{Kind: hub.TunnelDelivery}, Replaced: func() { close(replaced) },
		Deliverer: deliverer(func(_ context.Context, x delivery.Delivery) delivery.Outcome {
			begun <- x.Task.ID
			<-replaced
			return delivery.Outcome{Kind: delivery.Lost, Reason: "the connection is gone"}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	task := b.send("dev", 1)
	within(b, "the delivery", begun)
	if err := other.Connect(t.Context(), hub.Instance{Address: "dev", Name: "one", Slots: 1, Since: time.Now()}); err != nil {
		t.Fatal(err)
	}
	within(b, "the end of the connection here", replaced)
	b.becomes("the task waits again", func() bool { return b.released()[task.ID] == 1 })
	leave()
	if _, ok := b.d.Standing("dev"); ok {
		t.Error("it delivers to the address still")
	}
	list, err := here.Instances(t.Context(), "dev")
	if err != nil || len(list) != 1 || list[0].Name != "one" {
		t.Errorf("connected is %v, error %v", list, err)
	}
	defer b.connect("dev", "two", 1, deliverer(well))()
	if got := b.settled(task); got.State != hub.Completed || got.Failures != 0 {
		t.Errorf("the task is %+v", got)
	}
}

// A connection that finishes gets no more tasks, and is waited for until it has done those
// that it has.
func TestAConnectionThatFinishesTakesNoMore(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	b.d.Start(b.engine)
	begun, free := make(chan string, 10), make(chan struct{})
	leave, finish, err := b.d.Connect(delivery.Connection{
		Address: "dev", Instance: "one", Slots: 3, Endpoint: hub.Endpoint{Kind: hub.TunnelDelivery},
		Deliverer: deliverer(func(_ context.Context, x delivery.Delivery) delivery.Outcome {
			begun <- x.Task.ID
			<-free
			return done()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	first := b.send("dev", 1)
	within(b, "the delivery", begun)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		finish(t.Context())
	}()
	b.becomes("nothing more is taken", func() bool { return delivery.Finishing(b.d, "dev", "one") })
	second := b.send("dev", 2)
	close(free)
	if got := b.settled(first); got.State != hub.Completed {
		t.Errorf("the task that was under way is %+v", got)
	}
	within(b, "the end", finished)
	finish(t.Context()) // nothing is under way
	if len(begun) > 0 {
		t.Error("another task was given out")
	}
	defer b.connect("dev", "two", 1, deliverer(well))()
	if got := b.settled(second); got.State != hub.Completed {
		t.Errorf("the other task is %+v", got)
	}
}

func TestOnlyWhatIsOwnedIsDelivered(t *testing.T) {
	here, other := replicas(t)
	called := make(chan string, 10)
	b := openOn(t, here, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		called <- d.Task.Callee.ID
		return done()
	}))
	for _, a := range []string{"dev", "ops"} {
		b.address(a)
		b.endpoint(a)
	}
	takes := func(want ...string) {
		t.Helper()
		if mine, err := other.Own(t.Context(), want); err != nil || !slices.Equal(mine, want) {
			t.Fatalf("the other replica owns %v: %v", mine, err)
		}
	}
	takes("ops")
	b.d.Start(b.engine)
	b.d.Refresh(t.Context(), "ops")
	ops, dev := b.send("ops", 1), b.send("dev", 2)
	if got := b.settled(dev); got.State != hub.Completed {
		t.Errorf("the task is %+v", got)
	}
	if a := within(b, "a delivery", called); a != "dev" || len(called) > 0 {
		t.Errorf("%s was called, and %d more", a, len(called))
	}
	takes()
	b.d.Refresh(t.Context(), "ops")
	b.settled(ops)
	if a := within(b, "a delivery of what was given up", called); a != "ops" {
		t.Errorf("%s was called", a)
	}
}

// While it is not known what is owned, nothing is delivered; it is asked again.
func TestNothingIsDeliveredThatMayBeAnothersOwn(t *testing.T) {
	called := make(chan string, 10)
	b := open(t, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		called <- d.Task.Callee.ID
		return done()
	}))
	b.address("dev")
	b.endpoint("dev")
	b.store.owns.Store(1 << 30)
	b.d.Start(b.engine)
	b.d.Refresh(t.Context(), "dev")
	dev := b.send("dev", 1)
	if s, ok := b.d.Standing("dev"); !ok || s.InFlight != 0 || len(called) != 0 {
		t.Errorf("it stands at %+v, and was called %d times", s, len(called))
	}
	b.store.owns.Store(0)
	if a := within(b, "a delivery, once it is asked again", called); a != "dev" {
		t.Errorf("%s was called", a)
	}
	b.settled(dev)
}
