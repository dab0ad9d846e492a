package crash

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// record is what the hub has acknowledged about one task.
type record struct {
	id, caller, callee, payload string
	messages                    []string // texts of acknowledged messages
	asked                       []string // texts of acknowledged questions
	artifacts                   []string // texts of acknowledged artifacts
	canceled                    bool
	end                         string // the terminal state of an acknowledged reply
}

// ledger is everything that was acknowledged, as those who got the answers know it.
type ledger struct {
	mu    sync.Mutex
	tasks map[string]*record
	order []string // ids, oldest first
	// newest is the highest attempt of each task that a worker is known to have.
	newest map[string]int
	counts map[string]int
}

func newLedger() *ledger {
	return &ledger{tasks: map[string]*record{}, newest: map[string]int{}, counts: map[string]int{}}
}

// snapshot is what is acknowledged now; what is acknowledged later does not change it.
func (l *ledger) snapshot() map[string]record {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := make(map[string]record, len(l.tasks))
	for id, r := range l.tasks {
		c := *r
		c.messages, c.asked, c.artifacts = slices.Clone(r.messages), slices.Clone(r.asked), slices.Clone(r.artifacts)
		m[id] = c
	}
	return m
}

func (l *ledger) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

func (l *ledger) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	parts := []string{fmt.Sprintf("%d tasks", len(l.tasks))}
	for _, what := range slices.Sorted(maps.Keys(l.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", l.counts[what], what))
	}
	return strings.Join(parts, ", ")
}

// sent notes an acknowledged new task; false if it is known already.
func (l *ledger) sent(id, caller, callee, payload string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks[id] != nil {
		return false
	}
	l.tasks[id] = &record{id: id, caller: caller, callee: callee, payload: payload}
	l.order = append(l.order, id)
	return true
}

// change notes something else that was acknowledged about a task. A worker may know
// of a task before its caller does: then there is nothing to note it on, and it is
// left out.
func (l *ledger) change(id, what string, f func(r *record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
	if r := l.tasks[id]; r != nil {
		f(r)
	}
}

// recent gives one of the newest tasks, chosen by pick among n; nil if there are
// none.
func (l *ledger) recent(most int, pick func(n int) int) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(most, len(l.order))
	if n == 0 {
		return nil
	}
	r := *l.tasks[l.order[len(l.order)-1-pick(n)]]
	return &r
}

// claimed notes that a worker has a claim.
func (l *ledger) claimed(id string, attempt int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts["claims"]++
	l.newest[id] = max(l.newest[id], attempt)
}

// newestClaim is the highest attempt that a worker is known to have.
func (l *ledger) newestClaim(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest[id]
}
