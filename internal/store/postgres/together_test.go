package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// replicas opens n stores on one database.
func replicas(t *testing.T, n int, opt Options) []*Store {
	t.Helper()
	opt.URL = database(t)
	list := make([]*Store, n)
	for i := range list {
		list[i] = open(t, opt)
	}
	return list
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// address makes an address and gives its id.
func address(t *testing.T, s *Store, handle string) string {
	t.Helper()
	a := hub.Address{ID: newID(), Handle: handle, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1, OnUnknown: "resend", CreatedAt: time.Now()}
	if err := s.CreateAddress(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return a.ID
}

func newSend(caller, callee string) hub.Send {
	return hub.Send{
		Caller: caller, Callee: callee, TaskID: newID(), ContextID: newID(), Limits: hub.DefaultLimits(),
		Message: []byte(`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`),
	}
}

func completed(k *hub.Task) hub.Report {
	return hub.Report{
		Callee: k.Callee.ID, Task: k.ID, Attempt: k.Attempt, State: hub.Completed, Limits: hub.DefaultLimits(),
		Message: []byte(`{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"done"}]}`), Digest: sha256.Sum256([]byte(k.ID)),
	}
}

// crowd is callers and callees that use several replicas at once.
type crowd struct {
	t        *testing.T
	replicas []*Store
	callers  []string
	callees  []string

	mu     sync.Mutex
	sent   []string
	claims map[string]bool // by claim id
}

func (c *crowd) any(r *rand.Rand) *Store { return c.replicas[r.IntN(len(c.replicas))] }

// expected says that a refusal is one that races bring about.
func (c *crowd) expected(err error) bool {
	if err == nil {
		return true
	}
	switch hub.KindOf(err) {
	case hub.Conflict, hub.NotCancelable, hub.Ended:
		return true
	default:
		c.t.Errorf("unexpected: %v", err)
		return false
	}
}

func (c *crowd) step(r *rand.Rand) {
	ctx, caller, callee := c.t.Context(), c.callers[r.IntN(len(c.callers))], c.callees[r.IntN(len(c.callees))]
	switch n := r.IntN(10); {
	case n < 4:
		in := newSend(caller, callee)
		in.Key = &hub.Key{Hash: sha256.Sum256([]byte(in.TaskID))}
		var both [2]hub.Sent
		var wg sync.WaitGroup
		for i := range both { // a client that repeats itself meets another replica
			s := c.any(r)
			wg.Go(func() {
				var err error
				if both[i], err = s.Send(ctx, in); err != nil {
					c.t.Errorf("send: %v", err)
				}
			})
		}
		wg.Wait()
		if both[0].Created == both[1].Created || both[0].Replayed == both[1].Replayed {
			c.t.Errorf("of two sends with one key, not exactly one made the task: %+v", both)
		}
		c.mu.Lock()
		c.sent = append(c.sent, in.TaskID)
		c.mu.Unlock()
	case n < 9:
		got, err := c.any(r).Claim(ctx, callee, hub.ClaimSpec{Lease: time.Minute})
		if !c.expected(err) || got.Task == nil {
			return
		}
		c.claimed(got.Task)
		c.work(r, got.Task)
	default:
		if _, err := c.any(r).Sweep(ctx, 10, true, hub.DefaultLimits()); err != nil {
			c.t.Errorf("sweep: %v", err)
		}
	}
}

// claimed notes a claim, which nobody else may have had.
func (c *crowd) claimed(k *hub.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims[k.ClaimID()] {
		c.t.Errorf("the claim %s was handed out twice", k.ClaimID())
	}
	c.claims[k.ClaimID()] = true
}

// work does something with a claim, while others do things to its task.
func (c *crowd) work(r *rand.Rand, k *hub.Task) {
	ctx := c.t.Context()
	switch r.IntN(4) {
	case 0:
		c.expected(c.any(r).Release(ctx, k.Callee.ID, k.ID, k.Attempt))
		return
	case 1:
		s := c.any(r)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := s.Cancel(ctx, hub.TaskRef{ID: k.ID}, hub.Viewer{Address: k.Caller.ID})
			c.expected(err)
		}()
		defer func() { <-done }()
	case 2:
		in := newSend(k.Caller.ID, k.Callee.ID)
		in.FollowUp = k.ID
		_, err := c.any(r).Send(ctx, in)
		c.expected(err)
		_, err = c.any(r).Heartbeat(ctx, hub.Heartbeat{Callee: k.Callee.ID, Task: k.ID, Attempt: k.Attempt, After: -1})
		c.expected(err)
	}
	report := completed(k)
	report.Events = []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", Body: []byte(`{"artifactId":"a","parts":[{"text":"x"}]}`)}}
	_, err := c.any(r).Report(ctx, report)
	c.expected(err)
}

func TestReplicasDoNotGetInEachOthersWay(t *testing.T) {
	c := &crowd{t: t, replicas: replicas(t, 3, Options{Conns: 6}), claims: map[string]bool{}}
	for i := range 3 {
		c.callers = append(c.callers, address(t, c.replicas[i%3], fmt.Sprint("caller", i)))
	}
	for i := range 2 {
		c.callees = append(c.callees, address(t, c.replicas[i%3], fmt.Sprint("callee", i)))
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range 60 {
				c.step(r)
			}
		})
	}
	wg.Wait()
	c.finish()
	c.check()
}

// finish does what is left. A claim may miss what another replica has locked or offered
// just now, so it asks again for a while.
func (c *crowd) finish() {
	c.t.Helper()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for _, callee := range c.callees {
		for misses := 0; misses < 20; {
			got, err := c.replicas[0].Claim(c.t.Context(), callee, hub.ClaimSpec{Lease: time.Minute})
			if err != nil {
				c.t.Fatal(err)
			}
			if got.Task == nil {
				misses++
				<-every.C
				continue
			}
			c.claimed(got.Task)
			if _, err := c.replicas[1].Report(c.t.Context(), completed(got.Task)); err != nil {
				c.t.Errorf("report: %v", err)
			}
		}
	}
}

// check looks at all that came of it, through another replica each time.
func (c *crowd) check() {
	c.t.Helper()
	s := c.replicas[2]
	for _, id := range c.sent {
		page, err := s.Events(c.t.Context(), hub.TaskRef{ID: id}, hub.Viewer{All: true}, 0, 1000)
		if err != nil {
			c.t.Fatal(err)
		}
		ends := 0
		for i, e := range page.Events {
			if e.Seq != int64(i+1) {
				c.t.Errorf("event %d of %s has the number %d", i+1, id, e.Seq)
			}
			if e.Kind == hub.StatusEvent && e.State.Terminal() {
				ends++
			}
		}
		if ends != 1 || !page.State.Terminal() {
			c.t.Errorf("task %s has %d terminal events and is %v", id, ends, page.State)
		}
	}
	var open, queued int64
	err := s.pool.QueryRow(c.t.Context(), "SELECT (SELECT coalesce(sum(open), 0) FROM lane)::bigint, (SELECT count(*) FROM queue)").Scan(&open, &queued)
	if err != nil || open != 0 || queued != 0 {
		c.t.Errorf("lanes count %d unfinished tasks and the queue has %d; error %v", open, queued, err)
	}
	sentLines := map[string]int{}
	for _, l := range feed(c.t, s, "") {
		if l.Kind == hub.ActSent {
			sentLines[l.Task]++
		}
	}
	for _, id := range c.sent {
		if sentLines[id] != 1 {
			c.t.Errorf("the feed tells %d times that %s was sent", sentLines[id], id)
		}
	}
}

// feed reads the activity to its end.
func feed(t *testing.T, s *Store, after string) (all []hub.Activity) {
	t.Helper()
	for {
		p, err := s.Activity(t.Context(), hub.ActivityQuery{By: hub.Viewer{All: true}, After: after, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p.Lines...)
		if p.Next == after {
			return all
		}
		after = p.Next
	}
}

func TestAReaderOfTheFeedMissesNothingThatCommitsLate(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	s.horizonPatience = 20 * time.Millisecond // there will be others under way all the time
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	first, err := s.Send(t.Context(), newSend(ann, dev))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"sent 1"}
	var got []string
	after := ""
	read := func() {
		t.Helper()
		p, err := s.Activity(t.Context(), hub.ActivityQuery{By: hub.Viewer{All: true}, After: after, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.Lines {
			got = append(got, fmt.Sprint(l.Kind, " ", l.Seq))
		}
		after = p.Next
	}
	read()
	for round := range 3 {
		// Slow transactions write their lines first and commit last, in another order.
		var slow []pgx.Tx
		for i := range 3 {
			conn, err := pgx.Connect(t.Context(), s.opt.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			seq := 100*round + 10 + i
			if _, err := tx.Exec(t.Context(), "INSERT INTO activity (xid, at, kind, task, seq, actor, attempt) VALUES ("+lineOrder+", 0, 'slow', $1, $2, 0, 0)", first.Task.ID, seq); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprint("slow ", seq))
			slow = append(slow, tx)
		}
		if _, err := s.Send(t.Context(), newSend(ann, dev)); err != nil {
			t.Fatal(err)
		}
		want = append(want, "sent 1")
		for _, i := range []int{1, 2, 0} {
			read()
			if err := slow[i].Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		read()
	}
	read()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("a reader saw\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReplicasThatStartAtOnceAgree(t *testing.T) {
	url := emptyDatabase(t)
	const n = 6
	var secrets [n]string
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := Open(t.Context(), Options{URL: url, Conns: 2})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			kept, err := s.AddSecret(t.Context(), "key", []byte{byte(i)})
			if err != nil {
				t.Error(err)
			}
			secrets[i] = string(kept)
		})
	}
	wg.Wait()
	for _, x := range secrets {
		if x != secrets[0] {
			t.Errorf("replicas keep different secrets: %q", secrets)
		}
	}
}

// hints collects changes.
type hints struct{ c chan hub.Change }

func (h hints) wait(t *testing.T, what string, within time.Duration, is func(hub.Change) bool) {
	t.Helper()
	late := time.After(within)
	for {
		select {
		case c := <-h.c:
			if is(c) {
				return
			}
		case <-late:
			t.Fatalf("%s: no hint within %s", what, within)
		}
	}
}

// told reports whether a notification tells of a task.
func (h hints) told(task string, within time.Duration) bool {
	late := time.After(within)
	for {
		select {
		case c := <-h.c:
			if slices.Contains(c.Tasks, task) && !c.Pushes {
				return true
			}
		case <-late:
			return false
		}
	}
}

func TestAReplicaHearsOfWhatOthersCommit(t *testing.T) {
	url := database(t)
	h := hints{make(chan hub.Change, 10_000)}
	here := open(t, Options{URL: url, Changed: func(c hub.Change) { h.c <- c }})
	there := open(t, Options{URL: url, Changed: func(hub.Change) {}})
	h.wait(t, "another replica starts", 5*time.Second, func(c hub.Change) bool { return c.Everything })
	ann, dev := address(t, there, "ann"), address(t, there, "dev")
	send := func() (task string) {
		t.Helper()
		sent, err := there.Send(t.Context(), newSend(ann, dev))
		if err != nil {
			t.Fatal(err)
		}
		return sent.Task.ID
	}
	for range 5 {
		task := send()
		h.wait(t, "a send", 5*time.Second, func(c hub.Change) bool { return slices.Contains(c.Tasks, task) && slices.Contains(c.Ready, dev) })
	}
	// Without the connection that listens, it looks by itself.
	if _, err := there.pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast listener' AND datname = current_database()"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		task := send()
		h.wait(t, "a send while nobody listens", 5*time.Second, func(c hub.Change) bool { return slices.Contains(c.Tasks, task) || c.Everything })
	}
	// Sooner or later it is told again; what it finds by looking also says Pushes.
	for until := time.Now().Add(20 * time.Second); ; {
		task := send()
		if h.told(task, time.Second) {
			break
		}
		if time.Now().After(until) {
			t.Fatal("it does not listen again")
		}
	}
	if err := here.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestACallerThatStopsWaitingIsToldSo(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	begun, finish := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.write(ctx, needs{}, func(t *tx) error {
			close(begun)
			<-finish
			t.exec("INSERT INTO meta VALUES ('a', 'x')")
			return nil
		})
	}()
	<-begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	close(finish)
	var kept string
	err := s.write(t.Context(), needs{}, func(t *tx) error {
		r, err := t.one("SELECT value FROM meta WHERE key = 'a'")
		if r != nil {
			kept = r.text(0)
		}
		t.exec("DELETE FROM meta WHERE key = 'a'")
		return err
	})
	if err != nil || kept != "x" {
		t.Errorf("a transition that has begun is carried through; kept %q, error %v", kept, err)
	}
}

func TestOneTransitionThatFailsFailsNoOther(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	refused := errors.New("refused")
	put := func(key string, then error) func(*tx) error {
		return func(t *tx) error {
			t.exec("INSERT INTO meta VALUES ($1, 'x')", key)
			return then
		}
	}
	batch := []*op{
		{run: put("a", nil)}, {run: put("b", refused)}, {run: put("c", nil)}, {run: func(*tx) error { panic("bug") }},
		{run: put("d", nil)}, {run: func(t *tx) error { t.exec("SELECT 1/0"); return nil }},
	}
	s.commit(batch)
	for i, o := range batch {
		if failed := i == 1 || i == 3 || i == 5; failed != (o.err != nil) {
			t.Errorf("transition %d ended with %v", i, o.err)
		}
	}
	var keys string
	if err := s.pool.QueryRow(t.Context(), "WITH x AS (DELETE FROM meta WHERE value = 'x' RETURNING key) SELECT string_agg(key, ',' ORDER BY key) FROM x").Scan(&keys); err != nil || keys != "a,c,d" {
		t.Errorf("kept %s, want a,c,d; error %v", keys, err)
	}
}

// A replica that died before it told the others is made up for by looking.
func TestAReplicaFindsWhatItWasNotTold(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	ann, dev, ops := address(t, s, "ann"), address(t, s, "dev"), address(t, s, "ops")
	_, since, err := s.lookOnce(t.Context(), place{})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 20 {
		sent, err := s.Send(t.Context(), newSend(ann, []string{dev, ops}[i%2]))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, sent.Task.ID)
	}
	var got, ready []string
	await(t, "all is found", func() bool { // others are under way on the same server
		var c hub.Change
		if c, since, err = s.lookOnce(t.Context(), since); err != nil {
			t.Fatal(err)
		}
		got, ready = append(got, c.Tasks...), c.Ready
		return len(got) >= len(want)
	})
	slices.Sort(got)
	slices.Sort(want)
	slices.Sort(ready)
	if !slices.Equal(got, want) {
		t.Errorf("it found %v, want %v", got, want)
	}
	addresses := []string{dev, ops}
	slices.Sort(addresses)
	if !slices.Equal(ready, addresses) {
		t.Errorf("ready at %v, want %v", ready, addresses)
	}
}

func TestTheFeedGoesOnAfterTheDatabaseWasMovedToAnotherServer(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	send := func(s *Store) {
		t.Helper()
		if _, err := s.Send(t.Context(), newSend(ann, dev)); err != nil {
			t.Fatal(err)
		}
	}
	send(s)
	send(s)
	p, err := s.Activity(t.Context(), hub.ActivityQuery{By: hub.Viewer{All: true}, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	// As on a server that has not counted as far.
	if _, err := s.pool.Exec(t.Context(), "UPDATE activity SET xid = (xid::text::bigint + 1000000000)::text::xid8"); err != nil {
		t.Fatal(err)
	}
	moved := open(t, Options{URL: s.opt.URL})
	send(moved)
	if lines := feed(t, moved, ""); len(lines) != 3 {
		t.Errorf("the feed has %d lines, want 3", len(lines))
	}
	if _, err := moved.Activity(t.Context(), hub.ActivityQuery{By: hub.Viewer{All: true}, Limit: 1, After: p.Next}); hub.KindOf(err) != hub.Invalid {
		t.Errorf("a cursor from before was answered with %v", err)
	}
	if _, err := moved.pool.Exec(t.Context(), "UPDATE meta SET value = '1' WHERE key = 'activity_epoch'"); err != nil {
		t.Error(err) // the database is used again
	}
}

// A claim begins after the one before has ended, also by the clock, however long ago its
// transaction began.
func TestAClaimIsNotDatedBeforeTheEndOfTheOneBefore(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	ann, dev, ops := address(t, s, "ann"), address(t, s, "dev"), address(t, s, "ops")
	send := func(callee string) string {
		t.Helper()
		sent, err := s.Send(t.Context(), newSend(ann, callee))
		if err != nil {
			t.Fatal(err)
		}
		return sent.Task.ID
	}
	callee, err := s.parties.n(t.Context(), dev)
	if err != nil {
		t.Fatal(err)
	}
	claims := old(t, s, send(ops))
	task := send(dev)
	first, err := s.Claim(t.Context(), dev, hub.ClaimSpec{Lease: time.Minute})
	if err != nil || first.Task == nil {
		t.Fatalf("claimed %+v, error %v", first.Task, err)
	}
	if _, err := s.pool.Exec(t.Context(), "SELECT pg_sleep(0.02)"); err != nil { // so that the clock tells the two apart
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), dev, task, first.Task.Attempt); err != nil {
		t.Fatal(err)
	}
	second, err := claims.claim(callee, hub.ClaimSpec{Lease: time.Minute})
	if err != nil || second.Task == nil {
		t.Fatalf("claimed %+v, error %v", second.Task, err)
	}
	if err := claims.commit(); err != nil {
		t.Fatal(err)
	}
	var ended int64
	if err := s.pool.QueryRow(t.Context(), "SELECT ended_at FROM attempt WHERE task = $1", task).Scan(&ended); err != nil {
		t.Fatal(err)
	}
	if at := second.Task.ClaimedAt; at.UnixMilli() < ended {
		t.Errorf("the second claim is of %s, and the first ended at %s", at, time.UnixMilli(ended).UTC())
	}
}

// What a repeated send has read without a lock is not taken for what is there once it is
// locked: another replica may have changed it in between.
func TestAClaimDoesNotGoByWhatARepeatedSendHasRead(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	in := newSend(ann, dev)
	in.Key = &hub.Key{Hash: sha256.Sum256([]byte("key"))}
	sent, err := s.Send(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	caller, callee := s.parties.knownN(ann), s.parties.knownN(dev)
	c, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	x := newTx(t.Context(), s, c.Conn())
	if err := x.prefetch(&plan{keys: []keyHash{hashKey(caller, callee, in.Key)}}); err != nil {
		t.Fatal(err)
	}
	more := newSend(ann, dev)
	more.FollowUp = sent.Task.ID
	if _, err := s.Send(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	got, err := s.Claim(t.Context(), dev, hub.ClaimSpec{Lease: time.Minute})
	if err != nil || got.Task == nil {
		t.Fatalf("claimed %+v, error %v", got.Task, err)
	}
	if err := s.Release(t.Context(), dev, sent.Task.ID, got.Task.Attempt); err != nil {
		t.Fatal(err)
	}
	got, err = x.claim(callee, hub.ClaimSpec{Lease: time.Minute})
	if err == nil {
		err = x.commit()
	}
	if err != nil || got.Task == nil || got.Task.Attempt != 2 || len(got.Task.History) != 2 {
		t.Fatalf("claimed %+v, want the second claim, with both messages; error %v", got.Task, err)
	}
	more.TaskID = newID()
	if _, err := s.Send(t.Context(), more); err != nil {
		t.Errorf("a further message is answered with %v", err)
	}
}
