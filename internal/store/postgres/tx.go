package postgres

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// tx is the view that transitions have of a transaction: what was read for them before
// they began, as those before them have left it, and what has to be written.
type tx struct {
	*conn
	s   *Store
	now time.Time
	// xid is the transaction's number, 0 as long as it needs none; for era see doubt.go.
	xid, era int64
	until    time.Time // its time is over then, and with it that of finding out what became of it
	// wrote: there is something to undo if the transition fails.
	wrote bool
	// keep what was written although the transition was refused.
	keep bool

	heads      map[uuid.UUID]*head // nil if there is none
	sent       map[keyHash]*keyRow // idempotency keys; nil if there is none
	lanes      map[laneKey]*lane
	floors     map[int64]*floor
	artifacts  map[artifactKey]bool
	ready      map[int64]*readyList
	accepted   int64         // how many tasks are new
	redelivery map[int64]int // by callee
	// firsts are tasks that were claimed and have their first message only, to be read.
	firsts map[uuid.UUID][]*hub.Task
	// folds complete what was claimed, once it was read.
	folds   []func() error
	wholes  []claimedWhole // all that was claimed
	changed changed
}

// needs is what a transition wants to have locked and read before it begins. It may ask
// for more later, which costs a round trip then.
type needs struct {
	key       *keyHash
	tasks     []string
	lane      *laneKey // of a new task
	question  *question
	artifacts []artifactKey
	claim     int64 // callee whose first ready task is wanted, or 0
	writes    bool  // it writes although it needs none of this
}

// question names a caller's open question at a callee in a context.
type question struct {
	context        string
	caller, callee int64
}

// floor is where a callee's ready order stands.
type floor struct {
	at    int64
	dirty bool
}

type artifactKey struct{ task, id string }

// exec shadows conn's to note that something is written.
func (t *tx) exec(sql string, args ...any) {
	t.wrote = true
	t.conn.exec(sql, args...)
}

func (t *tx) execNow(sql string, args ...any) (int, error) {
	t.wrote = true
	return t.conn.execNow(sql, args...)
}

// all reads what a batch needs and runs its transitions one after another.
func (t *tx) all(batch []*op) error {
	p := gatherNeeds(batch)
	if err := t.prefetch(p); err != nil {
		return err
	}
	for _, o := range batch {
		if o.gone.Load() {
			o.err = context.Canceled
			continue
		}
		t.wrote, t.keep, t.asked = false, false, false
		o.err = protect(o.run, t)
		if o.asked = 0; t.asked {
			o.asked = t.trips
		}
		switch {
		case broken(o.err):
			return o.err
		case o.err != nil && refusedBy(o.err) == nil && t.c.PgConn().TxStatus() == 'E':
			return errors.Join(errUndo, o.err)
		case o.err != nil && t.wrote && !t.keep:
			return errUndo
		}
	}
	return nil
}

func refusedBy(err error) *hub.Error {
	var e *hub.Error
	_ = errors.As(err, &e)
	return e
}

// commit writes what has changed, in the order of the locks, and commits.
func (t *tx) commit() error {
	writeLanes := t.lockLanes()
	t.writeRows()
	writeLanes()
	t.writeFloors()
	t.readFirsts()
	t.conn.exec("COMMIT")
	if err := t.flush(); err != nil {
		return err
	}
	for _, fold := range t.folds {
		if err := fold(); err != nil {
			t.s.opt.Log.Error("the artifacts of a task that was claimed do not fit together", "error", err)
		}
	}
	return nil
}

func (t *tx) writeFloors() {
	var callees, floors []int64
	for _, callee := range sortedKeys(t.floors, cmp.Compare) {
		if f := t.floors[callee]; f.dirty {
			callees, floors = append(callees, callee), append(floors, f.at)
		}
	}
	if len(callees) > 0 {
		t.conn.exec(`INSERT INTO mailbox (callee, floor) SELECT * FROM unnest($1::bigint[], $2::bigint[])
			ON CONFLICT (callee) DO UPDATE SET floor = excluded.floor WHERE excluded.floor > mailbox.floor`, callees, floors)
	}
}

// readFirsts has the messages read of those tasks that have one, in one query.
func (t *tx) readFirsts() {
	if len(t.firsts) == 0 {
		return
	}
	ids := make([]uuid.UUID, 0, len(t.firsts))
	for id := range t.firsts {
		ids = append(ids, id)
	}
	// One by one, so that each is looked for in its own partition only.
	t.later(`SELECT m.* FROM unnest($1::uuid[]) x(task) CROSS JOIN LATERAL
		(SELECT task, undelivered, body FROM message WHERE task = x.task AND n = 1 LIMIT 1) m`, []any{ids}, func(r row) error {
		for _, out := range t.firsts[r.id(0)] {
			out.History = []hub.Message{{N: 1, Undelivered: r.flag(1), Body: r.blob(2)}}
		}
		return nil
	})
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}

// plan is what all transitions of a batch need.
type plan struct {
	keys      []keyHash
	tasks     []uuid.UUID
	lanes     []laneKey
	questions []question
	artifacts []artifactKey
	claims    map[int64]int // by callee, how many
	writes    bool          // some of them write although they lock nothing first
}

func gatherNeeds(batch []*op) *plan {
	p := &plan{claims: map[int64]int{}}
	for _, o := range batch {
		n := &o.needs
		if n.key != nil {
			p.keys = append(p.keys, *n.key)
		}
		for _, s := range n.tasks {
			if id, ok := parseID(s); ok {
				p.tasks = append(p.tasks, id)
			}
		}
		if n.lane != nil {
			p.lanes = append(p.lanes, *n.lane)
		}
		p.writes = p.writes || n.writes || n.lane != nil
		if n.question != nil {
			p.questions = append(p.questions, *n.question)
		}
		p.artifacts = append(p.artifacts, n.artifacts...)
		if n.claim != 0 {
			p.claims[n.claim]++
		}
	}
	slices.SortFunc(p.keys, func(a, b keyHash) int { return cmp.Compare(a.lock(), b.lock()) })
	p.keys = slices.Compact(p.keys)
	slices.SortFunc(p.tasks, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	p.tasks = slices.Compact(p.tasks)
	slices.SortFunc(p.lanes, compareLanes)
	p.lanes = slices.Compact(p.lanes)
	return p
}

// prefetch takes the locks that a batch needs, in order, and reads what it needs, in one
// round trip.
func (t *tx) prefetch(p *plan) error {
	t.heads, t.sent, t.lanes = map[uuid.UUID]*head{}, map[keyHash]*keyRow{}, map[laneKey]*lane{}
	t.floors, t.artifacts, t.ready = map[int64]*floor{}, map[artifactKey]bool{}, map[int64]*readyList{}
	t.changed, t.firsts = changed{}, map[uuid.UUID][]*hub.Task{}
	if len(p.keys) > 0 {
		locks := make([]int64, len(p.keys))
		for i, k := range p.keys {
			locks[i] = k.lock()
		}
		t.conn.exec("SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) k", locks)
	}
	t.lockTasks(p)
	t.readLanes(p.lanes, false)
	t.readTasks(p)
	t.readKeys(p)
	t.readArtifacts(p)
	for callee, n := range p.claims {
		t.readReady(callee, n, t.s.fromFront(callee, frontEvery))
	}
	t.readClock(p.writes)
	if err := t.flush(); err != nil {
		return err
	}
	return t.nameAll()
}

func (t *tx) nameAll() error {
	for _, h := range t.heads {
		if err := t.s.name(t.ctx, h); err != nil {
			return err
		}
	}
	for _, l := range t.ready {
		if err := t.s.name(t.ctx, l.list...); err != nil {
			return err
		}
	}
	return nil
}

// questionsOf finds the tasks with open questions; its parameters are $2 to $4.
const questionsOf = `SELECT t.id FROM task t JOIN unnest($2::bytea[], $3::bigint[], $4::bigint[]) x(context, caller, callee)
	ON t.context = x.context AND t.caller = x.caller AND t.callee = x.callee WHERE t.state IN (6, 8)`

// taskArgs gives the expression for all tasks that are wanted, and its arguments.
func (p *plan) taskArgs() (expr string, args []any) {
	if len(p.questions) == 0 {
		return "$1::uuid[]", []any{p.tasks}
	}
	contexts, callers, callees := make([][]byte, 0), make([]int64, 0), make([]int64, 0)
	for _, q := range p.questions {
		contexts, callers, callees = append(contexts, []byte(q.context)), append(callers, q.caller), append(callees, q.callee)
	}
	return "ARRAY(SELECT unnest($1::uuid[]) UNION " + questionsOf + ")", []any{p.tasks, contexts, callers, callees}
}

// lockTasks locks rows of queue and of ended tasks. A statement that waited for a lock
// sees things as they were when it began, so what is read comes after.
func (t *tx) lockTasks(p *plan) {
	if len(p.tasks)+len(p.questions) == 0 {
		return
	}
	expr, args := p.taskArgs()
	t.conn.exec("SELECT 1 FROM queue WHERE task = ANY("+expr+") ORDER BY task FOR UPDATE", args...)
	if len(p.tasks) > 0 {
		// As an expression, so that no plan reads the index of all that have ended: to one
		// made when hardly any had, it looks small.
		t.conn.exec("SELECT 1 FROM task WHERE id = ANY($1::uuid[]) AND coalesce(ended_at, 0) > 0 ORDER BY id FOR UPDATE", p.tasks)
	}
}

func (t *tx) knowFloor(callee, at int64) {
	if t.floors[callee] == nil {
		t.floors[callee] = &floor{at: at}
	}
}

// floorColumn is the floor of a task's callee, after headColumns and statusColumn.
const (
	floorColumn = ", (SELECT m.floor FROM mailbox m WHERE m.callee = t.callee) "
	txColumns   = headColumns + statusColumn + floorColumn
	txWidth     = headWidth + 2
)

// know keeps a task that was read. One that is locked already may have been changed since;
// one that is not, which a repeated send has read, may have been changed by others.
func (t *tx) know(r row) *head {
	id := r.id(0)
	if h := t.heads[id]; h != nil && h.locked {
		return h
	}
	h := scanStatus(r)
	t.heads[id] = h
	t.knowFloor(h.callee, r.int(headWidth+1))
	return h
}

func (t *tx) readTasks(p *plan) {
	if len(p.tasks)+len(p.questions) == 0 {
		return
	}
	for _, id := range p.tasks {
		t.heads[id] = nil
	}
	expr, args := p.taskArgs()
	t.later("SELECT "+txColumns+headFrom+"WHERE t.id = ANY("+expr+")", args, func(r row) error {
		t.know(r).locked = true
		return nil
	})
}

// head gives a task by its id, locked; nil if there is none.
func (t *tx) head(id string) (*head, error) {
	n, ok := parseID(id)
	if !ok {
		return nil, nil
	}
	if h, known := t.heads[n]; known && (h == nil || h.locked) {
		return h, nil
	}
	p := &plan{tasks: []uuid.UUID{n}}
	t.lockTasks(p)
	t.readTasks(p)
	t.readClock(false)
	if err := t.flush(); err != nil {
		return nil, err
	}
	return t.heads[n], t.nameAll()
}

func (t *tx) readArtifacts(p *plan) {
	if len(p.artifacts) == 0 {
		return
	}
	var tasks []uuid.UUID
	var ids [][]byte
	for _, a := range p.artifacts {
		if id, ok := parseID(a.task); ok {
			tasks, ids = append(tasks, id), append(ids, []byte(a.id))
			t.artifacts[a] = false
		}
	}
	t.later("SELECT a.task, a.id FROM artifact a JOIN unnest($1::uuid[], $2::bytea[]) x(task, id) ON a.task = x.task AND a.id = x.id",
		[]any{tasks, ids}, func(r row) error {
			t.artifacts[artifactKey{r.id(0).String(), r.text(1)}] = true
			return nil
		})
}

// idleTime is how long the database keeps a transaction whose replica has fallen
// silent, and with it the locks.
const idleTime = "10s"

// readClock has it read what time it is, and the transaction's number. It comes after locks
// were taken, each time: what others did to what is locked now was before.
//
// A transaction has a number once it has locked a row; if number is true it gets one if it
// has none yet. It must be known before the commit: see doubt.go.
func (t *tx) readClock(number bool) {
	xid := "pg_current_xact_id_if_assigned()"
	if number {
		xid = "pg_current_xact_id()"
	}
	t.later("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, "+xid+"::text::bigint, set_config('idle_in_transaction_session_timeout', '"+idleTime+"', true)",
		nil, func(r row) error {
			now := r.time(0)
			if t.s.opt.Now != nil {
				now = t.s.opt.Now().Truncate(time.Millisecond).UTC()
			}
			if now.After(t.now) { // as it does unless the clock was set back
				t.now = now
			}
			t.xid = r.int(1)
			return nil
		})
}

// keyHash is what tells a caller's key to a callee from all others.
type keyHash [16]byte

// half is enough of a hash to tell things apart that one client made.
func half(h [32]byte) []byte { return h[:len(keyHash{})] }

func hashKey(caller, callee int64, k *hub.Key) keyHash {
	var in [48]byte
	binary.BigEndian.PutUint64(in[0:], uint64(caller))
	binary.BigEndian.PutUint64(in[8:], uint64(callee))
	copy(in[16:], k.Hash[:])
	return keyHash(half(sha256.Sum256(in[:])))
}

// lock is the advisory lock of a key. That two keys share one costs a wait.
func (k keyHash) lock() int64 { return int64(binary.BigEndian.Uint64(k[:])) }
