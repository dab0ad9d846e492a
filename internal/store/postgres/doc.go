// Package postgres is the store for a hub with any number of replicas: one PostgreSQL
// database, version 14 or later.
//
// One goroutine of each replica writes. It takes every transition that waits and runs
// them all in one transaction: a first round trip takes the locks and brings what the
// transitions need to know, then they are decided one after another in memory, and a
// second round trip writes what came of them and commits. Transitions are answered
// after that. One that is refused has written nothing; should one fail after that, or
// the database refuse the transaction, each gets a transaction of its own.
//
// # Locks
//
// Transactions of several replicas meet, so all take their locks in one order:
// idempotency keys (as advisory locks), rows of queue, rows of ended tasks, lanes,
// mailboxes; those of a kind sorted. The row of an unfinished task in queue is its mutex.
// Claims take what nobody else has locked (SKIP LOCKED) and so wait for no one. Where the
// order cannot be kept, a deadlock undoes a transaction, which is then run again.
//
// # Commits that are not answered
//
// A connection that is lost during COMMIT leaves open what became of the transaction; it is
// looked up by its number, and who cannot be told is told so: see doubt.go.
//
// # Time
//
// What replicas compare is told by the database's clock, which is looked at after each lock.
//
// # Partitions
//
// What a task has is partitioned by the week of its id, and goes as a whole once no task of
// the week is left: see partition.go. The rows of task and queue are not.
//
// # PgBouncer
//
// Nothing outlives its transaction on a connection but prepared statements. Behind
// PgBouncer in transaction mode these work since its version 1.21, with
// max_prepared_statements set to 200 or more; for an older one add
// default_query_exec_mode=cache_describe to the URL, at the price of planning each
// statement anew. What listens for other replicas needs a connection of its own to the
// server itself: Options.DirectURL.
package postgres
