package sqlite

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// keyLife is how long an idempotency key counts after the end of its task.
const keyLife = 24 * time.Hour

// keys finds idempotency keys.
//
// The keys of clients are spread over all that there can be, so an index of them gets
// each new one in another place: with a million tasks, every send would write a page
// of its own. So new keys go to the end of their table alone, and are found in memory
// until there are enough to go into the index together, in its order, many to a page.
// After a start the memory is filled from the table again.
//
// What the memory says is only where to look; the table has the last word.
type keys struct {
	recent map[int64]int64 // from a key's mark to its row
	added  []markedRow     // to recent, by the transaction that is under way
	moving []markedRow     // what is on its way to the index, by mark; moved says how far
	moved  int             // committed
	ready  int             // moved, once the transaction is committed
	enough int             // recent keys to move; keysRecent but in tests
	filter filter          // what may be in the index
}

// markedRow is a line of the index.
type markedRow struct{ mark, row int64 }

const (
	// keysRecent is how many keys are kept in memory before they go to the index: some
	// for each of its pages when a million are there.
	keysRecent = 1 << 15
	// keysPerOp is how many go there with each transition, so that they are moved
	// faster than new ones come and no transaction is much longer for it.
	keysPerOp = 4
	// keysAtLeast is the fewest in one transaction.
	keysAtLeast = 64
)

// filter is a Bloom filter: it knows most of the keys that the index does not have, so
// that a new key costs no look at a page of it. What is no more in the index may stay in
// here. Its 1 MiB is for a million or two of keys; with many more it is of less and less
// use.
type filter []uint64

const filterBits = 1 << 23

// places are where a mark, which is a part of a hash, has its bits.
func places(mark int64) [3]uint64 {
	m := uint64(mark)
	return [3]uint64{m % filterBits, m >> 23 % filterBits, (m ^ m>>32) * 0x9E3779B97F4A7C15 >> 41}
}

func (f filter) add(mark int64) {
	for _, p := range places(mark) {
		f[p/64] |= 1 << (p % 64)
	}
}

func (f filter) may(mark int64) bool {
	for _, p := range places(mark) {
		if f[p/64]&(1<<(p%64)) == 0 {
			return false
		}
	}
	return true
}

// sum128 is the first half of a hash.
type sum128 [16]byte

// half is enough of a hash to tell things apart that one client made.
func half(h [32]byte) []byte { return h[:len(sum128{})] }

// hashKey is what tells a caller's key to a callee from all others.
func hashKey(caller, callee int64, k *hub.Key) sum128 {
	var in [48]byte
	binary.BigEndian.PutUint64(in[0:], uint64(caller))
	binary.BigEndian.PutUint64(in[8:], uint64(callee))
	copy(in[16:], k.Hash[:])
	return sum128(half(sha256.Sum256(in[:])))
}

// markOf is what the index has of a hash.
func markOf(hash []byte) int64 { return int64(binary.BigEndian.Uint64(hash)) }

// load fills the memory with the keys that are not in the index yet, and the filter with
// those that are.
func (k *keys) load(c *conn) error {
	k.recent, k.enough, k.filter = make(map[int64]int64), keysRecent, make(filter, filterBits/64)
	err := c.each("SELECT mark FROM idempotency_index", nil, func(r row) (bool, error) {
		k.filter.add(r.int(0))
		return true, nil
	})
	if err != nil {
		return err
	}
	return c.each("SELECT k, hash FROM idempotency WHERE k > (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'keys_indexed')", nil,
		func(r row) (bool, error) {
			if len(r.blob(1)) != len(sum128{}) {
				return false, fmt.Errorf("row %d of idempotency has a hash of %d bytes", r.int(0), len(r.blob(1)))
			}
			k.recent[markOf(r.blob(1))] = r.int(0)
			return true, nil
		})
}

// keyRow is what is kept with a key, and of its task.
type keyRow struct {
	k           int64
	fingerprint []byte
	task        string
	ended       time.Time
}

const keyColumns = `SELECT i.k, i.fingerprint, t.id, t.ended_at FROM `

// findKey finds a key, nil if it is not there.
func (t *tx) findKey(hash sum128) (*keyRow, error) {
	mark := markOf(hash[:])
	var r row
	var err error
	if k, ok := t.s.keyMemory.recent[mark]; ok {
		r, err = t.one(keyColumns+"idempotency i JOIN task t ON t.n = i.k >> 20 WHERE i.k = ? AND i.hash = ?", k, hash[:])
	}
	if err == nil && r == nil && t.s.keyMemory.filter.may(mark) {
		r, err = t.one(keyColumns+`idempotency_index x JOIN idempotency i ON i.k = x.k JOIN task t ON t.n = i.k >> 20
			WHERE x.mark = ? AND i.hash = ?`, mark, hash[:])
	}
	if err != nil || r == nil {
		return nil, err
	}
	return &keyRow{k: r.int(0), fingerprint: r.blob(1), task: r.text(2), ended: r.time(3)}, nil
}

// replayed gives the task of an earlier send with the same key, nil if there was
// none or its key has expired.
func (t *tx) replayed(hash sum128, sent *hub.Key) (*head, error) {
	found, err := t.findKey(hash)
	if err != nil || found == nil {
		return nil, err
	}
	if !found.ended.IsZero() && t.now.Sub(found.ended) >= keyLife {
		return nil, t.dropKey(found.k, hash[:])
	}
	if !bytes.Equal(found.fingerprint, half(sent.Fingerprint)) {
		return nil, hub.Errorf(hub.KeyReused, "this idempotency key came before with another request; use a new key for a new request")
	}
	r, err := t.one(headByID, found.task)
	if err != nil || r == nil {
		return nil, err
	}
	return t.s.scanHead(r), nil
}

// addKey keeps the key of a task's newest message.
func (t *tx) addKey(h *head, hash sum128, sent *hub.Key) error {
	k, mark := key(h.n, int64(h.Messages)), markOf(hash[:])
	if _, err := t.exec("INSERT INTO idempotency (k, hash, fingerprint) VALUES (?,?,?)", k, hash[:], half(sent.Fingerprint)); err != nil {
		return err
	}
	// The memory is filled from the end of the table: what is not at its end, and the
	// second of two with one mark, is for the index at once.
	if _, taken := t.s.keyMemory.recent[mark]; taken || h.Messages > 1 {
		return t.indexKey(mark, k)
	}
	t.s.keyMemory.recent[mark] = k
	t.s.keyMemory.added = append(t.s.keyMemory.added, markedRow{mark, k})
	return nil
}

func (t *tx) indexKey(mark, k int64) error {
	t.s.keyMemory.filter.add(mark)
	_, err := t.exec("INSERT OR IGNORE INTO idempotency_index (mark, k) VALUES (?,?)", mark, k)
	return err
}

// dropKey forgets a key that has expired.
func (t *tx) dropKey(k int64, hash []byte) error {
	mark := markOf(hash)
	if t.s.keyMemory.recent[mark] == k {
		delete(t.s.keyMemory.recent, mark)
	}
	if _, err := t.exec("DELETE FROM idempotency_index WHERE mark = ? AND k = ?", mark, k); err != nil {
		return err
	}
	_, err := t.exec("DELETE FROM idempotency WHERE k = ?", k)
	return err
}

// dropKeys forgets the keys of a task.
func (t *tx) dropKeys(task int64) error {
	type expired struct {
		k    int64
		hash []byte
	}
	var list []expired
	err := t.each("SELECT k, hash FROM idempotency WHERE k >= ? AND k <= ?", []any{key(task, 0), key(task, maxNumber)}, func(r row) (bool, error) {
		list = append(list, expired{r.int(0), r.blob(1)})
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := t.dropKey(e.k, e.hash); err != nil {
			return err
		}
	}
	return nil
}

// move brings some of the recent keys into the index, within the transaction of ops
// transitions.
func (k *keys) move(c *conn, ops int) error {
	k.ready = k.moved
	if k.moving == nil {
		return nil
	}
	last := int64(0)
	for end := min(len(k.moving), k.moved+max(keysAtLeast, keysPerOp*ops)); k.ready < end; k.ready++ {
		m := k.moving[k.ready]
		if k.recent[m.mark] != m.row {
			continue // forgotten since
		}
		k.filter.add(m.mark)
		if _, err := c.exec("INSERT OR IGNORE INTO idempotency_index (mark, k) VALUES (?,?)", m.mark, m.row); err != nil {
			return err
		}
	}
	if k.ready < len(k.moving) {
		return nil
	}
	for _, m := range k.moving {
		last = max(last, m.row)
	}
	_, err := c.exec("UPDATE meta SET value = ? WHERE key = 'keys_indexed'", fmt.Sprint(last))
	return err
}

// committed notes that the transaction with the last move is committed. What is in the
// index is forgotten here, and enough new keys are the next to go.
func (k *keys) committed() {
	k.added, k.moved = k.added[:0], k.ready
	if k.moving != nil && k.moved == len(k.moving) {
		for _, m := range k.moving {
			if k.recent[m.mark] == m.row {
				delete(k.recent, m.mark)
			}
		}
		k.moving, k.moved, k.ready = nil, 0, 0
	}
	if k.moving != nil || len(k.recent) < k.enough {
		return
	}
	k.moving = make([]markedRow, 0, len(k.recent))
	for mark, row := range k.recent {
		k.moving = append(k.moving, markedRow{mark, row})
	}
	slices.SortFunc(k.moving, func(a, b markedRow) int { return cmp.Compare(a.mark, b.mark) })
}

// undone takes back what the transaction that is undone has added. Numbers of rows that
// never came to be are used again, so none of them may stay.
func (k *keys) undone() {
	for _, m := range k.added {
		if k.recent[m.mark] == m.row {
			delete(k.recent, m.mark)
		}
	}
	k.added = k.added[:0]
}
