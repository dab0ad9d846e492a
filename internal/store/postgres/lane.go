package postgres

import (
	"cmp"
	"fmt"
)

// laneKey names a lane.
type laneKey struct{ callee, caller int64 }

func compareLanes(a, b laneKey) int {
	return cmp.Or(cmp.Compare(a.callee, b.callee), cmp.Compare(a.caller, b.caller))
}

// lane is how far a caller has come at a callee, and how many unfinished tasks it has
// there. What a transaction changes of it is written last, as a difference, and only then
// the lane is locked: replicas that serve the same caller would else wait for each other's
// whole transactions.
type lane struct {
	known, locked bool
	rank, open    int64 // with what this transaction has changed, if known
	base          int64 // rank as it was read
	more          int64 // change of open
}

// laneSlack is how near to its limit a caller's unfinished tasks are counted under a lock:
// as many as some replicas may accept at the same time.
const laneSlack = 8 * batchMax

// count adds to the unfinished tasks of a lane.
func (t *tx) count(k laneKey, more int64) {
	l := t.laneAt(k)
	l.open, l.more = l.open+more, l.more+more
}

func (t *tx) laneAt(k laneKey) *lane {
	l := t.lanes[k]
	if l == nil {
		l = &lane{}
		t.lanes[k] = l
	}
	return l
}

// lane gives a lane, to accept a task of its caller, who may have limit unfinished ones; 0
// for any number.
func (t *tx) lane(k laneKey, limit int64) (*lane, error) {
	l := t.laneAt(k)
	if lock := limit > 0 && l.open >= limit-laneSlack && !l.locked; !l.known || lock {
		t.readLanes([]laneKey{k}, lock)
		if err := t.flush(); err != nil {
			return nil, err
		}
	}
	if !l.known {
		return nil, fmt.Errorf("there is no lane %v", k)
	}
	return l, nil
}

// readLanes has lanes read, which are made if they are not there yet.
func (t *tx) readLanes(keys []laneKey, lock bool) {
	if len(keys) == 0 {
		return
	}
	callees, callers := make([]int64, len(keys)), make([]int64, len(keys))
	known := true
	for i, k := range keys {
		callees[i], callers[i] = k.callee, k.caller
		_, there := t.s.lanes.Load(k)
		known = known && there
	}
	if !known {
		t.conn.exec(`INSERT INTO lane (callee, caller, rank, open) SELECT x.callee, x.caller, 0, 0
			FROM unnest($1::bigint[], $2::bigint[]) x(callee, caller) ON CONFLICT DO NOTHING`, callees, callers)
	}
	sql := `SELECT l.callee, l.caller, l.rank, l.open, m.floor FROM lane l LEFT JOIN mailbox m ON m.callee = l.callee
		WHERE (l.callee, l.caller) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[]))`
	if lock {
		sql += " FOR UPDATE OF l"
	}
	t.later(sql, []any{callees, callers}, func(r row) error {
		k := laneKey{r.int(0), r.int(1)}
		l := t.laneAt(k)
		l.rank, l.base = max(l.rank, r.int(2)), r.int(2)
		l.known, l.locked, l.open = true, lock, r.int(3)+l.more
		t.knowFloor(k.callee, r.int(4))
		t.s.lanes.Store(k, true)
		return nil
	})
}

// lockLanes locks the lanes that changed, in their order; writeLanes has the changes
// written. Where another replica has moved a lane on since it was read, what this one adds
// comes after that: insertTasks does the same with the ranks of new tasks.
func (t *tx) lockLanes() (write func()) {
	var callees, callers, ranks, bases, more []int64
	for _, k := range sortedKeys(t.lanes, compareLanes) {
		if l := t.lanes[k]; l.rank != l.base || l.more != 0 {
			callees, callers = append(callees, k.callee), append(callers, k.caller)
			ranks, bases, more = append(ranks, l.rank), append(bases, l.base), append(more, l.more)
		}
	}
	if len(callees) == 0 {
		return func() {}
	}
	t.queue(`SELECT 1 FROM lane WHERE (callee, caller) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[]))
		ORDER BY callee, caller FOR UPDATE`, callees, callers)
	return func() {
		t.queue(`UPDATE lane l SET rank = CASE WHEN x.rank > x.base THEN x.rank + greatest(l.rank - x.base, 0) ELSE l.rank END, open = l.open + x.more
			FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) x(callee, caller, rank, base, more)
			WHERE l.callee = x.callee AND l.caller = x.caller`, callees, callers, ranks, bases, more)
	}
}
