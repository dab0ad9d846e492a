package crash

// tables are the questions that the checker asks a database. Where a task is named, it is
// by whatever the database itself names it.
type tables struct {
	tasks    string // name, id, state, seq, attempt, claimed at, ended
	events   string // task, seq, kind, state, body; in order
	messages string // task, body, of those from callers; in order
	attempts string // task, number, claimed at, ended at; in order
	activity string // task, kind, seq, attempt; in the order of the feed
	queue    string // task, phase
	keys     string // task, and whether whoever sends the key again finds it
}

// sqliteTables: a key is found by the index, or as one of the newest, which a start reads
// from the table.
var sqliteTables = tables{
	tasks:    "SELECT n, id, state, seq, attempt, coalesce(claimed_at, 0), ended_at IS NOT NULL FROM task",
	events:   "SELECT k >> 20, k & 0xfffff, kind, state, coalesce(body, '') FROM event ORDER BY k",
	messages: "SELECT k >> 20, coalesce(body, '') FROM message WHERE from_callee = 0 ORDER BY k",
	attempts: "SELECT k >> 20, k & 0xfffff, claimed_at, ended_at FROM attempt ORDER BY k",
	activity: "SELECT task, kind, seq, attempt FROM activity ORDER BY id",
	queue:    "SELECT task, phase FROM queue",
	keys: `SELECT k >> 20, k > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'keys_indexed'), 0)
		OR EXISTS (SELECT 1 FROM idempotency_index x WHERE x.k = idempotency.k) FROM idempotency`,
}

var postgresTables = tables{
	tasks:    "SELECT id::text, id::text, state, seq, attempt, coalesce(claimed_at, 0), ended_at IS NOT NULL FROM task",
	events:   "SELECT task::text, seq, kind, state, coalesce(body, '') FROM event ORDER BY task, seq",
	messages: "SELECT task::text, coalesce(body, '') FROM message WHERE NOT from_callee ORDER BY task, n",
	attempts: "SELECT task::text, n, claimed_at, ended_at FROM attempt ORDER BY task, n",
	activity: "SELECT task::text, kind, seq, attempt FROM activity ORDER BY xid, id",
	queue:    "SELECT task::text, phase FROM queue",
	keys:     "SELECT task::text, true FROM idempotency",
}
