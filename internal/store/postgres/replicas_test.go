package postgres

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/storetest"
)

// spread is a hub behind a load balancer: each call goes to the next of its replicas.
type spread struct {
	replicas []*Store
	calls    atomic.Uint64
}

func (s *spread) next() *Store { return s.replicas[s.calls.Add(1)%uint64(len(s.replicas))] }

// Close closes all replicas.
func (s *spread) Close() (err error) {
	for _, r := range s.replicas {
		if e := r.Close(); err == nil {
			err = e
		}
	}
	return err
}

// Two replicas together are as good a store as one, but for one thing: when both are
// busy at the same moment, what one has locked is passed over by claims of the other, so
// the order of claims is exact within one replica alone. What holds all the same, whoever
// is busy, is in TestReplicasDoNotGetInEachOthersWay.
func TestStoreOfTwoReplicas(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		clock := storetest.NewClock()
		opt := Options{URL: database(t), Now: clock.Now, Conns: 8}
		start := func(t testing.TB) *spread {
			if strings.Contains(t.Name(), "linearizability") {
				return &spread{replicas: []*Store{open(t, opt)}}
			}
			return &spread{replicas: []*Store{open(t, opt), open(t, opt)}}
		}
		s := start(t)
		return storetest.Harness{Store: s, Clock: clock, Reopen: func(t testing.TB) hub.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = start(t)
			return s
		}}
	})
}

func (s *spread) Send(ctx context.Context, in hub.Send) (hub.Sent, error) {
	return s.next().Send(ctx, in)
}
func (s *spread) Claim(ctx context.Context, callee string, c hub.ClaimSpec) (hub.Claimed, error) {
	return s.next().Claim(ctx, callee, c)
}
func (s *spread) Release(ctx context.Context, callee, task string, attempt int) error {
	return s.next().Release(ctx, callee, task, attempt)
}
func (s *spread) Lose(ctx context.Context, l hub.Loss) (*hub.Task, error) {
	return s.next().Lose(ctx, l)
}
func (s *spread) Report(ctx context.Context, r hub.Report) (hub.Reported, error) {
	return s.next().Report(ctx, r)
}
func (s *spread) Heartbeat(ctx context.Context, h hub.Heartbeat) (hub.Beat, error) {
	return s.next().Heartbeat(ctx, h)
}
func (s *spread) Cancel(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (*hub.Task, error) {
	return s.next().Cancel(ctx, ref, by)
}
func (s *spread) Requeue(ctx context.Context, task, newID string) (*hub.Task, error) {
	return s.next().Requeue(ctx, task, newID)
}
func (s *spread) Sweep(ctx context.Context, limit int, leases bool, l hub.Limits) (hub.Swept, error) {
	return s.next().Sweep(ctx, limit, leases, l)
}
func (s *spread) CancelQueued(ctx context.Context, callee string, limit int) (hub.Swept, error) {
	return s.next().CancelQueued(ctx, callee, limit)
}
func (s *spread) Prune(ctx context.Context, before time.Time, limit int) (hub.Pruned, error) {
	return s.next().Prune(ctx, before, limit)
}
func (s *spread) MarkRead(ctx context.Context, marks []hub.ReadMark) error {
	return s.next().MarkRead(ctx, marks)
}
func (s *spread) Task(ctx context.Context, ref hub.TaskRef, by hub.Viewer, load hub.Load) (*hub.Task, error) {
	return s.next().Task(ctx, ref, by, load)
}
func (s *spread) Tasks(ctx context.Context, f hub.TaskFilter) (hub.TaskPage, error) {
	return s.next().Tasks(ctx, f)
}
func (s *spread) Events(ctx context.Context, ref hub.TaskRef, by hub.Viewer, after int64, limit int) (hub.EventPage, error) {
	return s.next().Events(ctx, ref, by, after, limit)
}
func (s *spread) Activity(ctx context.Context, q hub.ActivityQuery) (hub.ActivityPage, error) {
	return s.next().Activity(ctx, q)
}
func (s *spread) QueueStats(ctx context.Context) (hub.QueueStats, error) {
	return s.next().QueueStats(ctx)
}
func (s *spread) MailboxStats(ctx context.Context, address string) (hub.MailboxStats, error) {
	return s.next().MailboxStats(ctx, address)
}
func (s *spread) CreateAddress(ctx context.Context, a hub.Address) error {
	return s.next().CreateAddress(ctx, a)
}
func (s *spread) Address(ctx context.Context, ref string) (*hub.Address, error) {
	return s.next().Address(ctx, ref)
}
func (s *spread) FormerAddress(ctx context.Context, ref string, by hub.Viewer) (*hub.Address, error) {
	return s.next().FormerAddress(ctx, ref, by)
}
func (s *spread) Addresses(ctx context.Context) ([]hub.Address, error) {
	return s.next().Addresses(ctx)
}
func (s *spread) UpdateAddress(ctx context.Context, a hub.Address) error {
	return s.next().UpdateAddress(ctx, a)
}
func (s *spread) SetEndpoint(ctx context.Context, address string, e *hub.Endpoint) error {
	return s.next().SetEndpoint(ctx, address, e)
}
func (s *spread) DeleteAddress(ctx context.Context, id string) error {
	return s.next().DeleteAddress(ctx, id)
}
func (s *spread) DeletedAddresses(ctx context.Context, before time.Time) ([]string, error) {
	return s.next().DeletedAddresses(ctx, before)
}
func (s *spread) CreateToken(ctx context.Context, t hub.Token) error {
	return s.next().CreateToken(ctx, t)
}
func (s *spread) TokenByHash(ctx context.Context, hash [32]byte) (*hub.Token, error) {
	return s.next().TokenByHash(ctx, hash)
}
func (s *spread) Tokens(ctx context.Context, address string) ([]hub.Token, error) {
	return s.next().Tokens(ctx, address)
}
func (s *spread) RevokeToken(ctx context.Context, id string) error {
	return s.next().RevokeToken(ctx, id)
}
func (s *spread) Secret(ctx context.Context, name string) ([]byte, error) {
	return s.next().Secret(ctx, name)
}
func (s *spread) AddSecret(ctx context.Context, name string, sealed []byte) ([]byte, error) {
	return s.next().AddSecret(ctx, name, sealed)
}
func (s *spread) Reseal(ctx context.Context, f func(sealed []byte, about string) ([]byte, error), name string, value []byte) error {
	return s.next().Reseal(ctx, f, name, value)
}
func (s *spread) PutPush(ctx context.Context, ref hub.TaskRef, by hub.Viewer, c hub.PushConfig, l hub.Limits) (hub.PushConfig, error) {
	return s.next().PutPush(ctx, ref, by, c, l)
}
func (s *spread) Push(ctx context.Context, ref hub.TaskRef, by hub.Viewer, id string) (hub.PushConfig, error) {
	return s.next().Push(ctx, ref, by, id)
}
func (s *spread) TaskPushes(ctx context.Context, ref hub.TaskRef, by hub.Viewer) ([]hub.PushConfig, error) {
	return s.next().TaskPushes(ctx, ref, by)
}
func (s *spread) DeletePush(ctx context.Context, ref hub.TaskRef, by hub.Viewer, id string) (bool, error) {
	return s.next().DeletePush(ctx, ref, by, id)
}
func (s *spread) LendPushes(ctx context.Context, limit int, loan time.Duration) ([]hub.PushJob, time.Duration, error) {
	return s.next().LendPushes(ctx, limit, loan)
}
func (s *spread) SettlePush(ctx context.Context, j hub.PushJob, o hub.PushOutcome) error {
	return s.next().SettlePush(ctx, j, o)
}

// ReleasePushes is what a hub does that starts: here, all replicas of it.
func (s *spread) ReleasePushes(ctx context.Context) error {
	for _, r := range s.replicas {
		if err := r.ReleasePushes(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *spread) PushFailures(ctx context.Context, by hub.Viewer, task, cursor string, limit int) ([]hub.PushFailure, string, error) {
	return s.next().PushFailures(ctx, by, task, cursor, limit)
}
func (s *spread) Redeliver(ctx context.Context, by hub.Viewer, failure string) (hub.PushConfig, error) {
	return s.next().Redeliver(ctx, by, failure)
}
func (s *spread) Ping(ctx context.Context) error { return s.next().Ping(ctx) }
func (s *spread) BeginDispatch(ctx context.Context, d hub.Dispatch) (*hub.Dispatch, error) {
	return s.next().BeginDispatch(ctx, d)
}
func (s *spread) LinkDispatch(ctx context.Context, task string, attempt int, remoteTask, remoteContext string) error {
	return s.next().LinkDispatch(ctx, task, attempt, remoteTask, remoteContext)
}
func (s *spread) EndDispatch(ctx context.Context, e hub.DispatchEnd) error {
	return s.next().EndDispatch(ctx, e)
}
func (s *spread) ListDispatches(ctx context.Context, f hub.DispatchFilter) (hub.DispatchPage, error) {
	return s.next().ListDispatches(ctx, f)
}
func (s *spread) CanceledDispatches(ctx context.Context, addresses []string, after time.Duration, limit int) ([]hub.Dispatch, error) {
	return s.next().CanceledDispatches(ctx, addresses, after, limit)
}
func (s *spread) SettleCancel(ctx context.Context, task string, attempt int, o hub.CancelOutcome) error {
	return s.next().SettleCancel(ctx, task, attempt, o)
}

// Own is of the one replica that asks.
func (s *spread) Own(ctx context.Context, addresses []string) ([]string, error) {
	return s.replicas[0].Own(ctx, addresses)
}
func (s *spread) Connect(ctx context.Context, i hub.Instance) error { return s.next().Connect(ctx, i) }

// Disconnect is what the replica says that the instance is connected to.
func (s *spread) Disconnect(ctx context.Context, address, name string) error {
	for _, r := range s.replicas {
		if err := r.Disconnect(ctx, address, name); err != nil {
			return err
		}
	}
	return nil
}

// Moved is of the one replica that asks.
func (s *spread) Moved(ctx context.Context, of []hub.Instance) ([]hub.Instance, error) {
	return s.replicas[0].Moved(ctx, of)
}
func (s *spread) Instances(ctx context.Context, address string) ([]hub.Instance, error) {
	return s.next().Instances(ctx, address)
}
