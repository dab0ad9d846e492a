// Package sqlite is the embedded store: one SQLite file in WAL mode with
// synchronous=FULL.
//
// One goroutine writes. It takes every transition that waits, runs them all in one
// transaction and answers them after the commit, so that many share one fsync.
// A transition that is refused has written nothing; should one fail after that, all
// are undone and each gets a transaction of its own. A pool of read-only connections serves reads, which WAL keeps from
// ever waiting for the writer.
//
// Both work on SQLite's own connections with statements prepared once, not through
// database/sql, whose bookkeeping costs more than the statements themselves. The
// engine is modernc.org/sqlite, SQLite in Go; zombiezen.com/go/sqlite gives access to
// it without the mutex around every call that its database/sql driver insists on.
//
// Rows that belong to a task are keyed task<<20 | number, a single integer: one
// B-tree, no second index, and a task's rows lie together in order.
package sqlite
