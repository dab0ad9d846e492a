package delivery

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAnAddressRestsForGrowingTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rest
		woken := make(chan time.Time, 1)
		wake := func() { woken <- time.Now() }
		begun := time.Now()
		for try, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			bound := time.Duration(seconds) * time.Second
			at := time.Now()
			r.fail("it is away", time.Second, time.Minute, wake)
			if !r.on() || r.why != "it is away" || !r.since.Equal(begun) || r.tries != try+1 {
				t.Fatalf("after %d tries: %+v", try+1, r)
			}
			until := r.until
			r.fail("what was sent before", time.Second, time.Minute, wake)
			if r.until != until || r.tries != try+1 || r.why != "it is away" {
				t.Errorf("what was sent before counts: %+v", r)
			}
			if took := (<-woken).Sub(at); took < bound/2 || took > bound || r.on() {
				t.Errorf("the rest after %d tries took %v, want at most %v and half of it", try+1, took, bound)
			}
		}
		r.end()
		if r.on() || r.why != "" || r.tries != 0 {
			t.Errorf("after its end: %+v", r)
		}
	})
}

func TestAPauseOfTheHubsOwnIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rest
		woken := make(chan struct{}, 1)
		r.pause(time.Second, func() { woken <- struct{}{} })
		if !r.on() || r.why != "" || r.tries != 0 {
			t.Errorf("%+v", r)
		}
		<-woken
		r.pause(time.Second, func() { t.Error("it was stopped") })
		r.stop()
		time.Sleep(time.Minute)
	})
}
