package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// owns checks which addresses a replica owns after it has asked for some.
func owns(t *testing.T, s *Store, asks, want []string) {
	t.Helper()
	got, err := s.Own(t.Context(), asks)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("replica %d asks for %v and owns %v, want %v", s.replica, asks, got, want)
	}
}

// connected gives the names of the instances that a replica sees, each with the replica
// that it is connected to.
func connected(t *testing.T, s *Store) (names []string) {
	t.Helper()
	list, err := s.Instances(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		names = append(names, i.Name+"@"+i.Replica)
	}
	return names
}

func join(t *testing.T, s *Store, address, name string) {
	t.Helper()
	if err := s.Connect(t.Context(), hub.Instance{Address: address, Name: name, Slots: 1, Since: time.Now(), Replica: "not this one"}); err != nil {
		t.Fatal(err)
	}
}

// at is an instance as connected gives it.
func at(s *Store, name string) string { return name + "@" + strconv.FormatInt(s.replica, 10) }

// silence has a replica fall silent for so long that the others take it for dead.
func silence(t *testing.T, s *Store) {
	t.Helper()
	s.stop()
	s.beside.Wait()
	if _, err := s.pool.Exec(t.Context(), "UPDATE replica SET seen_at = clock_timestamp() - 2 * "+replicaSilence+" WHERE n = $1", s.replica); err != nil {
		t.Fatal(err)
	}
}

func TestAnAddressBelongsToOneReplicaUntilThatGivesItUp(t *testing.T) {
	both := replicas(t, 2, Options{})
	one, two := both[0], both[1]
	x, y, z := address(t, one, "x"), address(t, one, "y"), address(t, one, "z")
	owns(t, one, []string{x, y, x}, []string{x, y, x})
	owns(t, two, []string{x, y, z}, []string{z})
	owns(t, one, []string{x, y, z}, []string{x, y})
	owns(t, one, []string{x}, []string{x})
	owns(t, two, []string{x, y, z}, []string{y, z})
	owns(t, one, nil, nil)
	owns(t, two, []string{x, "nobody's"}, []string{x})
}

func TestReplicasThatAskAtOnceShareTheAddresses(t *testing.T) {
	many := replicas(t, 4, Options{Conns: 4})
	var all []string
	for i := range 20 {
		all = append(all, address(t, many[0], fmt.Sprint("a", i)))
	}
	for range 5 {
		got := make([][]string, len(many))
		var wg sync.WaitGroup
		for i, s := range many {
			wg.Go(func() {
				var err error
				if got[i], err = s.Own(t.Context(), all); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		owned := slices.Concat(got...)
		slices.Sort(owned)
		sorted := slices.Sorted(slices.Values(all))
		if !slices.Equal(owned, sorted) {
			t.Fatalf("the replicas own %v, want each of %v once", got, sorted)
		}
		for _, s := range many {
			owns(t, s, nil, nil)
		}
	}
}

func TestWhatADeadReplicaHeldIsFree(t *testing.T) {
	both := replicas(t, 2, Options{})
	dead, other := both[0], both[1]
	x := address(t, other, "x")
	owns(t, dead, []string{x}, []string{x})
	join(t, dead, x, "laptop")
	silence(t, dead)
	if got := connected(t, other); len(got) != 0 {
		t.Errorf("of a dead replica %v is shown", got)
	}
	owns(t, other, []string{x}, []string{x})
	// It was only slow, and finds that it has lost what it owned; its connections last.
	owns(t, dead, []string{x}, nil)
	if got := connected(t, other); !slices.Equal(got, []string{at(dead, "laptop")}) {
		t.Errorf("connected is %v", got)
	}
}

// A replica that was stopped for a while, and does not know it, begins nothing that
// another one may be at.
func TestAReplicaWithoutAnAddressBeginsNoDispatchToItsEndpoint(t *testing.T) {
	both := replicas(t, 2, Options{})
	late, other := both[0], both[1]
	ann, x := address(t, other, "ann"), address(t, other, "x")
	owns(t, late, []string{x}, []string{x})
	sent, err := late.Send(t.Context(), newSend(ann, x))
	if err != nil {
		t.Fatal(err)
	}
	d := hub.Dispatch{Task: sent.Task.ID, Address: x, Kind: hub.RemoteDelivery, Sent: true}
	claim := func() {
		t.Helper()
		k, err := late.Claim(t.Context(), x, hub.ClaimSpec{Lease: time.Minute})
		if err != nil || k.Task == nil {
			t.Fatal(k.Task, err)
		}
		d.Attempt = k.Task.Attempt
	}
	claim()
	if _, err := late.BeginDispatch(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := late.Release(t.Context(), x, d.Task, d.Attempt); err != nil {
		t.Fatal(err)
	}
	claim()
	silence(t, late)
	owns(t, other, []string{x}, []string{x})
	if _, err := late.BeginDispatch(t.Context(), d); hub.KindOf(err) != hub.Conflict {
		t.Errorf("a dispatch by who does not own the address any more: %v", err)
	}
	page, err := other.ListDispatches(t.Context(), hub.DispatchFilter{Task: d.Task})
	if err != nil || len(page.Dispatches) != 1 || !page.Dispatches[0].EndedAt.IsZero() {
		t.Errorf("what is noted has changed: %v, error %v", page.Dispatches, err)
	}
	d.Instance = "laptop" // which is connected to it, whoever owns the endpoint
	if _, err := late.BeginDispatch(t.Context(), d); err != nil {
		t.Error(err)
	}
	d.Instance = ""
	silence(t, other)
	if _, err := late.BeginDispatch(t.Context(), d); err != nil {
		t.Errorf("a dispatch while the owner is dead: %v", err)
	}
}

// Nor does it with a claim, which is its own all the same.
func TestAReplicaWithoutAnAddressClaimsWithoutADispatch(t *testing.T) {
	both := replicas(t, 2, Options{})
	late, other := both[0], both[1]
	ann, x := address(t, other, "ann"), address(t, other, "x")
	owns(t, late, []string{x}, []string{x})
	silence(t, late)
	owns(t, other, []string{x}, []string{x})
	by := hub.Dispatch{Kind: hub.RemoteDelivery, Sent: true}
	send := newSend(ann, x)
	send.Claim = &hub.ClaimSpec{Lease: time.Minute, Dispatch: &by}
	for _, c := range []struct {
		s    *Store
		want bool
	}{{late, false}, {other, true}} {
		send.TaskID = newSend(ann, x).TaskID
		sent, err := c.s.Send(t.Context(), send)
		if err != nil || sent.Claimed == nil || sent.Claimed.Dispatched != c.want {
			t.Fatalf("claimed %+v, error %v; want one with a dispatch: %v", sent.Claimed, err, c.want)
		}
		page, err := other.ListDispatches(t.Context(), hub.DispatchFilter{Task: sent.Claimed.ID})
		if err != nil || (len(page.Dispatches) == 1) != c.want {
			t.Errorf("dispatches %+v, error %v", page.Dispatches, err)
		}
	}
}

func TestAReplicaThatStopsHoldsNothing(t *testing.T) {
	both := replicas(t, 2, Options{})
	one, two := both[0], both[1]
	x := address(t, one, "x")
	owns(t, one, []string{x}, []string{x})
	join(t, one, x, "laptop")
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	owns(t, two, []string{x}, []string{x})
	if got := connected(t, two); len(got) != 0 {
		t.Errorf("of a replica that has stopped %v is shown", got)
	}
}

func TestAnInstanceThatMovedIsNotTakenAwayByItsOldReplica(t *testing.T) {
	both := replicas(t, 2, Options{})
	one, two := both[0], both[1]
	x := address(t, one, "x")
	join(t, one, x, "laptop")
	join(t, two, x, "laptop")
	if err := one.Disconnect(t.Context(), x, "laptop"); err != nil {
		t.Fatal(err)
	}
	if got := connected(t, one); !slices.Equal(got, []string{at(two, "laptop")}) {
		t.Errorf("connected is %v", got)
	}
	if err := two.Disconnect(t.Context(), x, "laptop"); err != nil {
		t.Fatal(err)
	}
	if got := connected(t, one); len(got) != 0 {
		t.Errorf("connected is %v", got)
	}
}

func TestAReplicaLearnsWhichOfItsInstancesHaveMoved(t *testing.T) {
	both := replicas(t, 2, Options{})
	one, two := both[0], both[1]
	x, y := address(t, one, "x"), address(t, one, "y")
	mine := []hub.Instance{{Address: x, Name: "laptop"}, {Address: x, Name: "desk"}, {Address: y, Name: "laptop"}, {Address: "nobody's", Name: "laptop"}}
	moved := func() (names []string) {
		t.Helper()
		list, err := one.Moved(t.Context(), mine)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			names = append(names, i.Address+"/"+i.Name+"@"+i.Replica)
		}
		return names
	}
	for _, i := range mine[:3] {
		join(t, one, i.Address, i.Name)
	}
	if got := moved(); len(got) != 0 {
		t.Errorf("%v have moved, want none", got)
	}
	join(t, two, x, "laptop")
	if got, want := moved(), []string{x + "/" + at(two, "laptop")}; !slices.Equal(got, want) {
		t.Errorf("%v have moved, want %v", got, want)
	}
	silence(t, two)
	if got := moved(); len(got) != 0 {
		t.Errorf("%v have moved to a dead replica", got)
	}
	join(t, one, x, "laptop")
	if got, err := one.Moved(t.Context(), nil); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
}

func TestAReplicaThatWasForgottenConnectsAndOwnsAgain(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	x := address(t, s, "x")
	for range 2 {
		if _, err := s.pool.Exec(t.Context(), "DELETE FROM replica WHERE n = $1", s.replica); err != nil {
			t.Fatal(err)
		}
		join(t, s, x, "laptop")
		if got := connected(t, s); !slices.Equal(got, []string{at(s, "laptop")}) {
			t.Errorf("connected is %v", got)
		}
	}
	if _, err := s.pool.Exec(t.Context(), "DELETE FROM replica WHERE n = $1", s.replica); err != nil {
		t.Fatal(err)
	}
	owns(t, s, []string{x}, []string{x})
}
