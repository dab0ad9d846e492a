package hub

import "time"

// Limits bound what one task, caller or request may take. All are defaults that
// the operator can change.
type Limits struct {
	// Events, Bytes and Messages bound one task; a status-only terminal reply is
	// accepted beyond them.
	Events   int64
	Bytes    int64
	Messages int
	// Attempts is how often one task is handed out at the most, given back or not; then
	// it fails.
	Attempts int
	// Pushes bounds the push-notification configurations of one task.
	Pushes int
	// OpenTasks bounds the unfinished tasks of one caller at one address.
	OpenTasks int
	// Lease is how long a claim lasts; LeaseMax bounds what a callee may ask for.
	Lease, LeaseMax time.Duration
	// Redeliveries is how often a lost delivery is repeated.
	Redeliveries int
	// BackoffMin and BackoffMax bound the wait before a redelivery, which doubles
	// with each failure.
	BackoffMin, BackoffMax time.Duration
}

// DefaultLimits are the limits of a hub that was told nothing else.
func DefaultLimits() Limits {
	return Limits{
		Events: 20_000, Bytes: 64 << 20, Messages: 1_000, Attempts: 10_000, Pushes: 16, OpenTasks: 10_000,
		Lease: 600 * time.Second, LeaseMax: 24 * time.Hour, Redeliveries: 5,
		BackoffMin: time.Second, BackoffMax: time.Minute,
	}
}

// Backoff is the wait before the failures-th redelivery, failures counted from 1.
func (l Limits) Backoff(failures int) time.Duration {
	d := l.BackoffMin
	for i := 1; i < failures && d < l.BackoffMax; i++ {
		d *= 2
	}
	return min(d, l.BackoffMax)
}
