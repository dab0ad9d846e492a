package postgres

import (
	"context"
	"fmt"
	"time"
)

// A connection that is lost during COMMIT leaves it open whether the transaction took place.
// Who asked for it must not be told that it did not if it did: a send would be made twice,
// or artifacts appended twice. So it is looked up by its number, on another connection.
//
// A number means the same transaction only as long as the server has not crashed: what a
// crash takes with it has its number given out again. The server's cumulative statistics
// begin anew after a crash, a restore and a failover, and only then (or by hand), so when
// they began is what tells. After a crash nobody knows what became of the transaction, and
// that is what the answer says.

// doubtPatience is how long it is asked at least what became of a transaction; those that
// wait for the next one wait for that, too.
const doubtPatience = 2 * time.Second

// eraSQL is when the server's statistics began, in microseconds; NULL if it does not say.
const eraSQL = "(SELECT (extract(epoch FROM stats_reset) * 1000000)::bigint FROM pg_stat_bgwriter)"

// afterCommit finds out what became of a transaction whose commit was not answered: nil if
// it took place. Those of its transitions whose own answers were to come with that get an
// error all the same.
func (s *Store) afterCommit(t *tx, batch []*op, cause error) error {
	if t.xid == 0 {
		return unknown(cause)
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(doubtPatience, time.Until(t.until)))
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		var status string
		err := s.pool.QueryRow(ctx, "SELECT CASE WHEN "+eraSQL+" = $1 THEN coalesce(pg_xact_status($2::text::xid8), '') ELSE '' END",
			t.era, fmt.Sprint(t.xid)).Scan(&status)
		switch {
		case err == nil && status == "committed":
			if err := s.readWholes(ctx, t.wholes); err != nil {
				return unknown(err)
			}
			for _, o := range batch {
				if o.err == nil && o.asked == t.trips-1 {
					o.err = unknown(cause)
				}
			}
			return nil
		case err == nil && status == "aborted":
			return undone(cause)
		case err == nil && status == "":
			return unknown(cause)
		}
		select {
		case <-time.After(pause): // it is under way still, or the database is not back
		case <-ctx.Done():
			return unknown(cause)
		}
	}
}

// undone is the error of a transaction that certainly did not take place: its cause if that
// says nothing about the database, so that it may be run again.
func undone(cause error) error {
	if broken(cause) {
		return unavailable(cause)
	}
	return cause
}
