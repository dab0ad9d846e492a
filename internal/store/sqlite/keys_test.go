package sqlite

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// keyed sends a task with a key and gives it.
func keyed(t *testing.T, s *Store, key string) hub.Sent {
	t.Helper()
	out, err := s.Send(t.Context(), hub.Send{
		Caller: "id-ann", Callee: "id-dev", TaskID: "t-" + key, ContextID: "c-" + key, Message: []byte(`{}`),
		Key:    &hub.Key{Hash: sha256.Sum256([]byte(key)), Fingerprint: sha256.Sum256([]byte("f" + key))},
		Limits: hub.DefaultLimits(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func withAnnAndDev(t *testing.T, s *Store) {
	t.Helper()
	for _, handle := range []string{"ann", "dev"} {
		if err := s.CreateAddress(t.Context(), address(handle)); err != nil {
			t.Fatal(err)
		}
	}
}

func count(t *testing.T, s *Store, table string) (n int64) {
	t.Helper()
	err := s.read(t.Context(), func(c *conn) error {
		r, err := c.one("SELECT count(*) FROM " + table)
		n = r.int(0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Keys are found wherever they are just then: in memory, on the way to the index, in
// it, and after a start.
func TestKeysAreFoundWhileTheyMoveToTheIndex(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	withAnnAndDev(t, s)
	s.keyMemory.enough = 100
	const sends, rounds = 50, 20
	for round := range rounds {
		var wg sync.WaitGroup
		for i := range sends {
			wg.Go(func() {
				key := fmt.Sprintf("%d-%d", round, i)
				if out := keyed(t, s, key); !out.Created {
					t.Errorf("the first send with key %s was not a new one", key)
				}
				if out := keyed(t, s, key); !out.Replayed || out.Task.ID != "t-"+key {
					t.Errorf("the second send with key %s gave %+v", key, out)
				}
			})
		}
		wg.Wait()
	}
	indexed := count(t, s, "idempotency_index")
	if indexed < sends*rounds/2 {
		t.Errorf("%d keys of %d are in the index", indexed, sends*rounds)
	}
	keyed(t, s, "last")
	recent := len(s.keyMemory.recent)
	if recent == 0 || recent > sends*rounds/4 {
		t.Errorf("%d keys are in memory", recent)
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openIn(t, dir)
			if got := len(s.keyMemory.recent); got != recent {
				t.Errorf("%d keys are in memory after a start, and before it there were %d", got, recent)
			}
		}
		for i := range sends * rounds {
			key := fmt.Sprintf("%d-%d", i/sends, i%sends)
			if out := keyed(t, s, key); !out.Replayed || out.Task.ID != "t-"+key {
				t.Errorf("key %s gave %+v (reopened: %t)", key, out, reopened)
			}
		}
	}
}

// A key of a transaction that was undone is not there, in memory either: the number of
// its row is the next task's.
func TestKeysOfWhatWasUndoneAreFreeAgain(t *testing.T) {
	s := openTemp(t)
	withAnnAndDev(t, s)
	caller, callee := s.parties.n("id-ann"), s.parties.n("id-dev")
	sent := &hub.Key{Hash: sha256.Sum256([]byte("k"))}
	failed := errors.New("failed")
	err := s.write(t.Context(), func(tx *tx) error {
		h := newHead(&hub.Send{TaskID: "undone", ContextID: "c"}, caller, callee, tx.now)
		if err := tx.insertTask(h, []byte(`{}`)); err != nil {
			return err
		}
		return errors.Join(tx.addKey(h, hashKey(caller, callee, sent), sent), failed)
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if n := len(s.keyMemory.recent); n != 0 {
		t.Errorf("%d keys are in memory", n)
	}
	if out := keyed(t, s, "k"); !out.Created {
		t.Errorf("the send after it gave %+v", out)
	}
	if out := keyed(t, s, "k"); !out.Replayed {
		t.Errorf("the same again gave %+v", out)
	}
}

func TestTheFilterMissesNoKeyAndFewOthers(t *testing.T) {
	f := make(filter, filterBits/64)
	mark := func(kind string, i int) int64 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, i))
		return markOf(sum[:])
	}
	const keys = 100_000
	for i := range keys {
		f.add(mark("there", i))
	}
	wrong := 0
	for i := range keys {
		if !f.may(mark("there", i)) {
			t.Fatalf("key %d is missed", i)
		}
		if f.may(mark("not there", i)) {
			wrong++
		}
	}
	if wrong > keys/1000 {
		t.Errorf("%d of %d keys that are not there may be", wrong, keys)
	}
}
