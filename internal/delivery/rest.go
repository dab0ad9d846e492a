package delivery

import (
	"math/rand/v2"
	"time"
)

// rest is the time in which nothing is taken for an address: the circuit breaker of an
// endpoint that cannot be reached, or has asked to be left alone.
type rest struct {
	// tries is how many in a row could not be sent.
	tries int
	// why is for the owner; empty while nothing is wrong with the endpoint.
	why          string
	since, until time.Time
	timer        *time.Timer
}

// on reports whether nothing is to be taken just now.
func (r *rest) on() bool { return time.Now().Before(r.until) }

// fail lets an address rest for longer than the time before, and reports whether it
// does: what fails while it rests was sent before and tells nothing new.
func (r *rest) fail(why string, least, most time.Duration, wake func()) {
	if r.on() && r.tries > 0 {
		return
	}
	bound := least
	for range r.tries {
		bound = min(2*bound, most)
	}
	r.tries++
	r.ask(why, bound/2+rand.N(bound/2+1), wake)
}

// ask lets an address rest for a time that it asked for itself.
func (r *rest) ask(why string, d time.Duration, wake func()) {
	if r.why == "" {
		r.since = time.Now()
	}
	r.why = why
	r.pause(d, wake)
}

// pause lets an address rest for a reason that is none of its own.
func (r *rest) pause(d time.Duration, wake func()) {
	r.stop()
	r.until = time.Now().Add(d)
	r.timer = time.AfterFunc(d, wake)
}

// end says that the endpoint was reached, or is another one.
func (r *rest) end() {
	r.stop()
	*r = rest{}
}

// stop ends the timer, as nobody is to be woken any more.
func (r *rest) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}
