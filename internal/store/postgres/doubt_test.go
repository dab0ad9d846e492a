package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// cutter is a network between the store and its server that breaks at the next COMMIT.
type cutter struct {
	to string
	mu sync.Mutex
	// at, if not nil, is called once, for the connection that COMMIT comes on, and says
	// whether the server gets it. Its answer is lost in any case.
	at func(c *cutConn) (pass bool)
}

// cutConn is a connection through a cutter.
type cutConn struct {
	client, server net.Conn
	pid            int // of the server's process
}

// newCutter makes a cutter in front of a database, and gives that one's URL through it.
func newCutter(t *testing.T, direct string) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &cutter{to: u.Host}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { k.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("default_query_exec_mode", "cache_describe") // which sends the text each time
	u.RawQuery = q.Encode()
	return k, u.String()
}

func (k *cutter) serve(client net.Conn) {
	server, err := net.Dial("tcp", k.to)
	if err != nil {
		client.Close()
		return
	}
	c := &cutConn{client: client, server: server}
	defer c.client.Close()
	defer c.server.Close()
	lost := make(chan struct{}) // closed when the server's answers are to be lost
	answers := make(chan []byte)
	done := make(chan struct{})
	defer close(done)
	go c.answers(lost, answers, done)
	b := make([]byte, 1<<20)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if at := k.take(b[:n]); at != nil {
			close(lost)
			if at(c) {
				_, _ = server.Write(b[:n])
				for answer := range answers {
					if bytes.Contains(answer, []byte("Z\x00\x00\x00\x05")) { // all is done
						break
					}
				}
			}
			return
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
	}
}

// answers passes on what the server says, until that is to be lost.
func (c *cutConn) answers(lost chan struct{}, to chan []byte, done chan struct{}) {
	defer close(to)
	defer c.client.Close()
	b := make([]byte, 1<<20)
	for {
		n, err := c.server.Read(b)
		if err != nil {
			return
		}
		if i := bytes.Index(b[:n], []byte("K\x00\x00\x00\x0c")); i >= 0 && c.pid == 0 {
			c.pid = int(binary.BigEndian.Uint32(b[i+5:]))
		}
		select {
		case <-lost:
			select {
			case to <- bytes.Clone(b[:n]):
			case <-done:
				return
			}
		default:
			_, _ = c.client.Write(b[:n])
		}
	}
}

// next has the next COMMIT met.
func (k *cutter) next(at func(c *cutConn) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = at
}

func (k *cutter) take(said []byte) (at func(c *cutConn) bool) {
	if !bytes.Contains(said, []byte("COMMIT\x00")) {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at, k.at = k.at, nil
	return at
}

// met reports whether that COMMIT was met.
func (k *cutter) met() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at == nil
}

// isDoubtful: it is said that it may have happened.
func isDoubtful(err error) bool {
	e := refusedBy(err)
	return e != nil && e.Kind == hub.Unavailable && e.Code == hub.Doubtful(nil, "").Code
}

// isUndone: it is said that nothing happened.
func isUndone(err error) bool { return hub.KindOf(err) == hub.Unavailable && !isDoubtful(err) }

// doubtful is something that is kept, and may meet a COMMIT that is not answered.
type doubtful struct {
	before func() // what has to be there first
	do     func() error
	kept   string // of which one row more is there if it happened
	// needs: what it gives comes with the answer to COMMIT, so that it cannot do without.
	needs bool
}

// doubtfuls are those of a store.
func doubtfuls(t *testing.T, s *Store) map[string]doubtful {
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	handle := 0
	var held *hub.Task
	send := func(in hub.Send) error { _, err := s.Send(t.Context(), in); return err }
	claim := func(lease time.Duration) error {
		got, err := s.Claim(t.Context(), dev, hub.ClaimSpec{Lease: lease})
		if held = got.Task; err == nil && (held == nil || len(held.History) != 1) {
			return fmt.Errorf("the claim got %+v", held)
		}
		return err
	}
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]doubtful{
		"a send":  {kept: "task", do: func() error { return send(newSend(ann, dev)) }},
		"a claim": {kept: "queue WHERE phase = 2", before: func() { must(send(newSend(ann, dev))) }, do: func() error { return claim(time.Hour) }},
		"a sweep": {kept: "attempt", before: func() { must(send(newSend(ann, dev)), claim(-time.Second)) }, do: func() error {
			_, err := s.Sweep(t.Context(), 1, true, hub.DefaultLimits())
			return err
		}},
		"a new address": {kept: "address", do: func() error {
			handle++
			return s.CreateAddress(t.Context(), hub.Address{
				ID: newID(), Handle: fmt.Sprint("new-", handle), Kind: hub.KindAgent, OnUnknown: "resend", CreatedAt: time.Now(),
			})
		}},
		"a heartbeat that hears of a message": {kept: "queue WHERE seen > 1", needs: true, before: func() {
			must(send(newSend(ann, dev)), claim(time.Hour))
			more := newSend(ann, dev)
			more.FollowUp = held.ID
			must(send(more))
		}, do: func() error {
			_, err := s.Heartbeat(t.Context(), hub.Heartbeat{Callee: dev, Task: held.ID, Attempt: held.Attempt, After: -1})
			return err
		}},
	}
}

// Whatever becomes of a COMMIT and its answer: who asked for something is told that it
// happened, or that it did not, as it is, and that nobody knows only where nobody does.
func TestNobodyIsToldThatNothingHappenedWhenItDid(t *testing.T) {
	k, through := newCutter(t, database(t))
	s := open(t, Options{URL: through, Conns: 1})
	for name, d := range doubtfuls(t, s) {
		if d.before == nil {
			d.before = func() {}
		}
		count := func() (n int) {
			t.Helper()
			if err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+d.kept).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		t.Run(name, func(t *testing.T) {
			d.before()
			if err := d.do(); err != nil { // which makes its statements known
				t.Fatal(err)
			}
			for _, arrives := range []bool{true, false} {
				d.before()
				was := count()
				k.next(func(*cutConn) bool { return arrives })
				err := d.do()
				if !k.met() {
					t.Fatal("no COMMIT was met")
				}
				if grew := count() - was; (grew == 1) != arrives {
					t.Errorf("COMMIT arrived: %v, and there are %d more", arrives, grew)
				}
				if arrives && d.needs && !isDoubtful(err) || arrives && !d.needs && err != nil || !arrives && !isUndone(err) {
					t.Errorf("COMMIT arrived: %v, and it is said: %v", arrives, err)
				}
			}
		})
	}
}

// A crash of the server gives the numbers of transactions out again that it took with it.
func TestAfterACrashNobodyKnowsWhatBecameOfACommit(t *testing.T) {
	server(t) // which skips where there is none
	srv, err := pgtest.Start(t.Context(), pgtest.Options{Durable: true})
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
	k, through := newCutter(t, srv.URL("hub"))
	s := open(t, Options{URL: through, Conns: 4})
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	send := func() (hub.Sent, error) { return s.Send(t.Context(), newSend(ann, dev)) }
	if _, err := send(); err != nil {
		t.Fatal(err)
	}
	era := func() (n int64) {
		await(t, "the server says since when it counts", func() bool {
			return s.countPeers(t.Context()) == nil
		})
		return s.era.Load()
	}
	began := era()
	if err := srv.Down(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if era() != began || began == 0 {
		t.Errorf("it has counted since %d, and after a good end since %d", began, era())
	}
	k.next(func(c *cutConn) bool {
		if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		return true
	})
	if _, err := send(); !isDoubtful(err) {
		t.Errorf("when its process was killed, a send got %v", err)
	}
	if era() == began {
		t.Error("it has not begun to count anew after a crash")
	}
	await(t, "a send is taken", func() bool { _, err := send(); return err == nil })
}
