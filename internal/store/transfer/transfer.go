package transfer

import (
	"context"
	"fmt"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Source is a hub that is copied. Nobody changes it meanwhile.
type Source interface {
	// ID names this state of the hub: it is another one once a hub has run on it.
	ID() string
	// Tables lists the tables in the order in which they are to be copied.
	Tables() []string
	// Columns are those of a table that are copied, by the names that the target has.
	Columns(table string) ([]string, error)
	// Count is how many rows of a table are copied.
	Count(ctx context.Context, table string) (int64, error)
	// Rows calls f for the rows of a table that come after a place, some megabytes of
	// them, and gives the place of the last one; the first place is before 0. Values are
	// int64, bool, []byte, [16]byte for an id, or nil. It gives after itself when there is
	// no more. f keeps what it gets.
	Rows(ctx context.Context, table string, after int64, f func(row []any) error) (last int64, err error)
}

// Target is where a hub is copied to.
type Target interface {
	// Begin makes the target ready for a source with that id, or for more of it if some
	// has arrived; arrived says that all has, and was verified. It refuses a place that has another hub (Exists), or a part of another
	// one (Conflict), unless restart is set, which throws such a part away.
	Begin(ctx context.Context, id string, restart bool) (arrived bool, err error)
	// Reached is the place of the last row of a table that has arrived, and -1 before the
	// first.
	Reached(ctx context.Context, table string) (int64, error)
	// Write adds rows, and notes the place of the last one, in one transaction.
	Write(ctx context.Context, table string, columns []string, rows [][]any, last int64) error
	// All calls f for every row of a table, in any order, with the values as a Source has
	// them. f must not keep them.
	All(ctx context.Context, table string, columns []string, f func(row []any) error) error
	// Finish makes a hub of what has arrived.
	Finish(ctx context.Context) error
}

// Steps of a Copy, as Progress is told of them.
const (
	Copying   = "copy"
	Verifying = "verify"
)

// Progress is told how many rows of how many of a table are done.
type Progress func(step, table string, done, total int64)

// Count is how many rows of a table were copied.
type Count struct {
	Table string
	Rows  int64
}

// Copy copies a hub, and verifies it. It may be called again after an error, and gives no
// counts if all had arrived before.
func Copy(ctx context.Context, from Source, to Target, restart bool, p Progress) ([]Count, error) {
	if p == nil {
		p = func(string, string, int64, int64) {}
	}
	if arrived, err := to.Begin(ctx, from.ID(), restart); arrived || err != nil {
		return nil, err
	}
	for _, table := range from.Tables() {
		if err := copyTable(ctx, from, to, table, p); err != nil {
			return nil, fmt.Errorf("copy the table %s: %w", table, err)
		}
	}
	var counts []Count
	for _, table := range from.Tables() {
		n, err := verify(ctx, from, to, table, p)
		if err != nil {
			return nil, fmt.Errorf("verify the table %s: %w", table, err)
		}
		counts = append(counts, Count{table, n})
	}
	return counts, to.Finish(ctx)
}

// copyTable copies what of a table has not arrived.
func copyTable(ctx context.Context, from Source, to Target, table string, p Progress) error {
	total, err := from.Count(ctx, table)
	if err != nil {
		return err
	}
	columns, err := from.Columns(table)
	if err != nil {
		return err
	}
	reached, err := to.Reached(ctx, table)
	if err != nil {
		return err
	}
	for done := int64(0); ; {
		p(Copying, table, done, total)
		var rows [][]any
		last, err := from.Rows(ctx, table, reached, func(row []any) error {
			rows = append(rows, row)
			return nil
		})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		if err := to.Write(ctx, table, columns, rows, last); err != nil {
			return err
		}
		reached = last
		done += int64(len(rows))
	}
}

// verify compares a table with its copy, and gives how many rows it has.
func verify(ctx context.Context, from Source, to Target, table string, p Progress) (int64, error) {
	columns, err := from.Columns(table)
	if err != nil {
		return 0, err
	}
	sent, err := sumSource(ctx, from, table, p)
	if err != nil {
		return 0, err
	}
	var arrived sum
	err = to.All(ctx, table, columns, func(row []any) error {
		p(Verifying, table, arrived.rows, sent.rows)
		return arrived.add(row)
	})
	if err != nil {
		return 0, err
	}
	switch {
	case sent.rows != arrived.rows:
		return 0, differs("%d rows of %s were to be copied, and %d are there", sent.rows, table, arrived.rows)
	case sent != arrived:
		return 0, differs("the %d rows of %s do not have the checksum of those that were to be copied", sent.rows, table)
	}
	return sent.rows, nil
}

func differs(format string, args ...any) error {
	return hub.Errorf(hub.Conflict, format+"; the copy is of no use, so begin again with --restart", args...)
}

func sumSource(ctx context.Context, from Source, table string, p Progress) (s sum, err error) {
	total, err := from.Count(ctx, table)
	if err != nil {
		return s, err
	}
	for place := int64(-1); ; {
		p(Verifying, table, s.rows, total)
		last, err := from.Rows(ctx, table, place, s.add)
		if err != nil || last == place {
			return s, err
		}
		place = last
	}
}
