package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	zombie "zombiezen.com/go/sqlite"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// moveID is the key in meta of a number that a hub loses when it runs again: what was
	// copied of it before is of no use then.
	moveID = "move_id"
	// movedAt is the key in meta of when the hub was moved to another store, in
	// milliseconds. No hub starts on what it left behind: see Reopen.
	movedAt = "moved_at"
)

// exportBytes is about how much is read of a table at a time, and exportRows how many
// rows.
const (
	exportBytes = 4 << 20
	exportRows  = 5_000
	// exportGroups is how many groups are read at a time: a task may have 20,000 artifacts.
	exportGroups = 50
)

// exported is how a table is copied: key orders its rows, and is unique unless groups,
// where all rows with one key are read together.
type exported struct {
	name   string
	query  string // up to WHERE; its columns have the names that the target has
	key    string
	groups bool
}

// exports is all tables but meta, what is derived from others, and what only a running
// hub needs. Texts are copied as bytes, for a target may keep them so.
func exports() []exported {
	return []exported{
		{name: "address", key: "n", query: `SELECT n, id, handle, kind, description, card, access, lease_ms, max_redeliveries,
			dedupe <> 0 AS dedupe__bool, on_unknown, created_at, deleted_at, relay_paths FROM address`},
		{name: "token", key: "address", groups: true, query: `SELECT id, address, name, role, hash, created_at, expires_at, revoked_at FROM token`},
		{name: "endpoint", key: "address", query: `SELECT address, delivery, url, auth, header, private <> 0 AS private__bool, sealed FROM endpoint`},
		{name: "secret", key: "rowid", query: `SELECT name, sealed FROM secret`},
		{name: "task", key: "n", query: `SELECT id AS id__uuid, n, context, caller, callee, state, state_at, status_seq, seq, messages, bytes,
			attempt, failures, cancel_outcome, pushes, polls, deadline, created_at, claimed_at, ended_at, read_at, polled_at, error, tags, metadata,
			parent_task, parent_call, run, trace, requeue_of FROM task`},
		{name: "queue", key: "q.task", query: `SELECT t.id AS task__uuid, q.task AS n, q.callee, q.caller, q.phase, q.rank, q.due_at, q.deadline,
			q.lease_until, q.lease_ms, q.attempt, q.failures, q.open <> 0 AS open__bool, q.provisional <> 0 AS provisional__bool,
			q.lapsed <> 0 AS lapsed__bool, q.seen FROM queue q JOIN task t ON t.n = q.task`},
		{name: "mailbox", key: "callee", query: `SELECT callee, floor FROM mailbox`},
		{name: "lane", key: "callee", groups: true, query: `SELECT callee, caller, rank, open FROM lane`},
		{name: "event", key: "e.k", query: `SELECT t.id AS task__uuid, e.k & 1048575 AS seq, e.kind, e.at, e.state, e.flags, e.artifact, e.body, e.metadata
			FROM event e JOIN task t ON t.n = e.k >> 20`},
		{name: "message", key: "m.k", query: `SELECT t.id AS task__uuid, m.k & 1048575 AS n, m.from_callee <> 0 AS from_callee__bool,
			m.undelivered <> 0 AS undelivered__bool, m.seq, m.body FROM message m JOIN task t ON t.n = m.k >> 20`},
		{name: "artifact", key: "a.task", groups: true, query: `SELECT t.id AS task__uuid, a.id, a.n, a.start FROM artifact a JOIN task t ON t.n = a.task`},
		// The upper bits of an attempt are those of its task: see hub.AfterRestore.
		{name: "attempt", key: "a.k", query: `SELECT t.id AS task__uuid, (coalesce(q.attempt, t.attempt) & ~1048575) | (a.k & 1048575) AS n, a.claimed_at,
			a.outcome, a.ended_at, a.digest, a.late <> 0 AS late__bool FROM attempt a JOIN task t ON t.n = a.k >> 20 LEFT JOIN queue q ON q.task = t.n`},
		{name: "idempotency", key: "i.k", query: `SELECT i.hash, t.id AS task__uuid, i.fingerprint FROM idempotency i JOIN task t ON t.n = i.k >> 20`},
		// Lines about tasks that are gone are not shown, and so not copied.
		{name: "activity", key: "a.id", query: `SELECT a.id, a.at, a.kind, t.id AS task__uuid, a.seq, a.actor, a.attempt, a.detail
			FROM activity a JOIN task t ON t.n = a.task`},
		// What is on loan has no lender there, and so its loan ends when a hub starts.
		{name: "push", key: "p.k", query: `SELECT t.id AS task__uuid, p.k & 1048575 AS n, p.id, p.url, p.version, p.scheme, p.sealed, p.created_at, p.cursor,
			p.due_at, p.lent, p.loan, p.tries, p.failed_since, p.last_error, p.failed FROM push p JOIN task t ON t.n = p.k >> 20`},
		{name: "dispatch", key: "d.k", query: `SELECT t.id AS task__uuid, d.attempt AS n, d.address, d.kind, d.instance, d.remote_task, d.remote_context, d.begun_at,
			d.ended_at, d.sent <> 0 AS sent__bool, d.outcome, d.took_us, d.status, d.detail, d.untold_at FROM dispatch d JOIN task t ON t.n = d.k >> 20`},
		{name: "push_failure", key: "f.id", query: `SELECT f.id, t.id AS task__uuid, f.push & 1048575 AS push, f.caller, f.seq, f.at, f.tries, f.reason
			FROM push_failure f JOIN task t ON t.n = f.push >> 20`},
	}
}

// suffixes of column names say what a value is that SQLite has no type for.
const (
	boolSuffix = "__bool"
	uuidSuffix = "__uuid"
)

// Export reads all of a hub that is not running, to copy it to another store. It
// implements transfer.Source.
type Export struct {
	s  *Store
	c  *conn // for reading
	id string
}

// OpenExport opens the hub of a data directory to copy it. Errors are those of Open;
// also Conflict if it was moved before.
func OpenExport(ctx context.Context, opt Options) (*Export, error) {
	if _, err := os.Stat(filepath.Join(opt.Dir, FileName)); err != nil {
		return nil, hub.Wrap(hub.NotFound, err, "there is no hub's data in %s", opt.Dir)
	}
	opt.leaving = true
	s, err := Open(ctx, opt)
	if err != nil {
		return nil, err
	}
	e := &Export{s: s}
	e.id, err = write(ctx, s, func(t *tx) (string, error) {
		if _, err := t.exec("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING", moveID, uuid.NewString()); err != nil {
			return "", err
		}
		r, err := t.one("SELECT value FROM meta WHERE key = ?", moveID)
		if err != nil || r == nil {
			return "", errors.Join(err, errors.New("the id of the move was not kept"))
		}
		return r.text(0), nil
	})
	if err == nil {
		e.c, err = openConn(filepath.Join(opt.Dir, FileName), s.opt.Synchronous, true)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return e, nil
}

// ID implements transfer.Source.
func (e *Export) ID() string { return e.id }

// Tables implements transfer.Source.
func (e *Export) Tables() []string {
	all := exports()
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	return names
}

func exportOf(table string) (exported, error) {
	for _, x := range exports() {
		if x.name == table {
			return x, nil
		}
	}
	return exported{}, fmt.Errorf("there is no table %q to copy", table)
}

// Columns implements transfer.Source.
func (e *Export) Columns(table string) (names []string, err error) {
	x, err := exportOf(table)
	if err != nil {
		return nil, err
	}
	s, err := e.c.prepare(x.query + " LIMIT 0")
	if err != nil {
		return nil, err
	}
	for i := range s.ColumnCount() {
		name := strings.TrimSuffix(strings.TrimSuffix(s.ColumnName(i), boolSuffix), uuidSuffix)
		names = append(names, name)
	}
	return names, nil
}

// Count implements transfer.Source.
func (e *Export) Count(_ context.Context, table string) (int64, error) {
	x, err := exportOf(table)
	if err != nil {
		return 0, err
	}
	r, err := e.c.one("SELECT count(*) FROM (" + x.query + ")")
	if err != nil || r == nil {
		return 0, err
	}
	return r.int(0), nil
}

// Rows implements transfer.Source.
func (e *Export) Rows(ctx context.Context, table string, after int64, f func(row []any) error) (int64, error) {
	x, err := exportOf(table)
	if err != nil {
		return 0, err
	}
	s, err := e.c.prepare(x.page())
	if err != nil {
		return 0, err
	}
	bytes, last, limit := 0, after, exportRows
	if x.groups {
		limit = exportGroups
	}
	err = e.c.each(x.page(), []any{after, limit}, func(r row) (bool, error) {
		out, n, err := exportRow(s, r)
		if err != nil {
			return false, err
		}
		last = r.int(len(r) - 1)
		bytes += n
		// The rows of a group are small, and are read all.
		return x.groups || bytes < exportBytes, errors.Join(f(out), ctx.Err())
	})
	return last, err
}

// page is the query for the rows after a key, with the key as the last column.
func (x *exported) page() string {
	columns, from, _ := strings.Cut(x.query, "FROM")
	where := x.key + " > ?1 ORDER BY " + x.key + " LIMIT ?2"
	if x.groups {
		table := from
		if at := strings.Index(from, " JOIN "); at >= 0 {
			table = from[:at]
		}
		where = x.key + " IN (SELECT DISTINCT " + x.key + " FROM " + table + " WHERE " + x.key + " > ?1 ORDER BY 1 LIMIT ?2) ORDER BY " + x.key
	}
	return columns + ", " + x.key + " AS place FROM" + from + " WHERE " + where
}

// exportRow gives the values of a row but for its place, and about how large it is.
func exportRow(s *stmt, r row) (out []any, size int, err error) {
	out = make([]any, len(r)-1)
	for i := range out {
		v := r[i]
		size += 16 + len(v.s) + len(v.b)
		switch {
		case v.kind == zombie.TypeNull:
		case strings.HasSuffix(s.ColumnName(i), boolSuffix):
			out[i] = v.n != 0
		case strings.HasSuffix(s.ColumnName(i), uuidSuffix):
			id, err := uuid.Parse(v.s)
			if err != nil {
				return nil, 0, fmt.Errorf("the id %s of a task: %w", hex.EncodeToString([]byte(v.s)), err)
			}
			out[i] = [16]byte(id)
		case v.kind == zombie.TypeInteger:
			out[i] = v.n
		case v.kind == zombie.TypeText:
			out[i] = []byte(v.s)
		case v.kind == zombie.TypeBlob:
			out[i] = v.b
		default:
			return nil, 0, fmt.Errorf("a value of type %v cannot be copied", v.kind)
		}
	}
	return out, size, nil
}

// Secret gives a sealed secret of the hub; see hub.Secrets.
func (e *Export) Secret(ctx context.Context, name string) ([]byte, error) {
	return e.s.Secret(ctx, name)
}

// Moved notes that the hub has gone elsewhere: none starts on this data directory any
// more, so that there are no two hubs of one name.
func (e *Export) Moved(ctx context.Context) error {
	_, err := write(ctx, e.s, func(t *tx) (int, error) {
		return t.exec("INSERT OR REPLACE INTO meta VALUES (?, ?)", movedAt, strconv.FormatInt(t.now.UnixMilli(), 10))
	})
	return err
}

// Close closes the hub's files.
func (e *Export) Close() error { return errors.Join(e.c.close(), e.s.Close()) }

// Reopen makes a hub that was moved start again on its old data directory. What the moved
// one has done since is not known here, as if this were restored from a backup; so it is
// fenced in the same way: see Restore. It gives how many claims were open and are taken
// back; NotFound if the hub was not moved.
func Reopen(ctx context.Context, opt Options) (takenBack int, err error) {
	opt.leaving = true
	s, err := Open(ctx, opt)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return write(ctx, s, func(t *tx) (int, error) {
		n, err := t.exec("DELETE FROM meta WHERE key = ?", movedAt)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, hub.Errorf(hub.NotFound, "the hub of %s was not moved; start it as ever", opt.Dir)
		}
		if _, err := t.exec("DELETE FROM meta WHERE key = ?", moveID); err != nil {
			return 0, err
		}
		return t.fence()
	})
}

// stays makes sure that a hub that starts has not been moved, and ends a move that was
// under way.
func (s *Store) stays() error {
	if s.opt.leaving {
		return nil
	}
	r, err := s.w.one("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", movedAt)
	if err != nil {
		return err
	}
	if r != nil {
		return hub.Errorf(hub.Invalid, "the hub of %s was moved to PostgreSQL on %s: start it with --database-url. To go on here all the same, without what has happened there since, run: holdfast migrate --from %s --reopen",
			s.opt.Dir, r.time(0).Format(time.DateOnly), s.opt.Dir)
	}
	_, err = s.w.exec("DELETE FROM meta WHERE key = ?", moveID)
	return err
}
