-- +goose Up
CREATE TABLE address (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  handle TEXT NOT NULL,
  kind INTEGER NOT NULL,
  description TEXT NOT NULL,
  card BLOB,
  access INTEGER NOT NULL,
  lease_ms INTEGER NOT NULL,
  max_redeliveries INTEGER NOT NULL,
  dedupe INTEGER NOT NULL,
  on_unknown TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  deleted_at INTEGER
) STRICT;
CREATE UNIQUE INDEX address_handle ON address(handle) WHERE deleted_at IS NULL;

CREATE TABLE token (
  id TEXT PRIMARY KEY,
  address INTEGER NOT NULL REFERENCES address(n),
  name TEXT NOT NULL,
  role INTEGER NOT NULL,
  hash BLOB NOT NULL UNIQUE,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX token_address ON token(address);

-- The header of a task; what changes while it is unfinished is in queue. Numbers are
-- never used again, since lines of activity may outlive their task.
CREATE TABLE task (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  context TEXT NOT NULL,
  caller INTEGER NOT NULL,
  callee INTEGER NOT NULL,
  state INTEGER NOT NULL,
  state_at INTEGER NOT NULL,
  status_seq INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  cancel_outcome INTEGER NOT NULL,
  error TEXT,
  tags BLOB,
  metadata BLOB,
  parent_task TEXT,
  parent_call TEXT,
  run TEXT NOT NULL,
  trace TEXT,
  requeue_of TEXT,
  deadline INTEGER,
  created_at INTEGER NOT NULL,
  claimed_at INTEGER,
  ended_at INTEGER,
  read_at INTEGER,
  polled_at INTEGER,
  polls INTEGER NOT NULL
) STRICT;
CREATE INDEX task_callee ON task(callee, state_at);
CREATE INDEX task_caller ON task(caller, state_at);
CREATE INDEX task_context ON task(context);
CREATE INDEX task_question ON task(caller, callee, context, state_at) WHERE state IN (6, 8);
CREATE INDEX task_unread ON task(caller) WHERE read_at IS NULL;
CREATE INDEX task_ended ON task(ended_at) WHERE ended_at IS NOT NULL;

-- One row per unfinished task. It is in the ready order while rank is set, and
-- something is due at due_at: the end of a lease, a backoff or the deadline.
CREATE TABLE queue (
  task INTEGER PRIMARY KEY,
  callee INTEGER NOT NULL,
  caller INTEGER NOT NULL,
  phase INTEGER NOT NULL,
  rank INTEGER,
  due_at INTEGER,
  deadline INTEGER,
  lease_until INTEGER,
  lease_ms INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  -- The newest claim: may it still report, was it only provisional, did it or an
  -- earlier one lapse, and which message has its holder seen last.
  open INTEGER NOT NULL,
  provisional INTEGER NOT NULL,
  lapsed INTEGER NOT NULL,
  seen INTEGER NOT NULL
) STRICT;
CREATE INDEX queue_ready ON queue(callee, rank, task) WHERE rank IS NOT NULL;
CREATE INDEX queue_due ON queue(due_at) WHERE due_at IS NOT NULL;

-- Where a callee's ready order stands: the rank of its last claim.
CREATE TABLE mailbox (
  callee INTEGER PRIMARY KEY,
  floor INTEGER NOT NULL
) STRICT;

-- How far a caller has come in a callee's ready order, and its unfinished tasks.
CREATE TABLE lane (
  callee INTEGER NOT NULL,
  caller INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  open INTEGER NOT NULL,
  PRIMARY KEY (callee, caller)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
  k INTEGER PRIMARY KEY, -- task<<20 | seq
  kind INTEGER NOT NULL,
  at INTEGER NOT NULL,
  state INTEGER NOT NULL,
  artifact TEXT,
  flags INTEGER NOT NULL,
  body BLOB,
  metadata BLOB
) STRICT;

-- seq is set for a question, whose body is its event's.
CREATE TABLE message (
  k INTEGER PRIMARY KEY, -- task<<20 | n
  from_callee INTEGER NOT NULL,
  undelivered INTEGER NOT NULL,
  seq INTEGER,
  body BLOB
) STRICT;

CREATE TABLE artifact (
  task INTEGER NOT NULL,
  id TEXT NOT NULL,
  n INTEGER NOT NULL,
  start INTEGER NOT NULL, -- seq of the event that its content starts with
  PRIMARY KEY (task, id)
) STRICT, WITHOUT ROWID;

-- A claim that has ended, one way or another; outcome is that of attempt* in the code.
CREATE TABLE attempt (
  k INTEGER PRIMARY KEY, -- task<<20 | attempt
  claimed_at INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  digest BLOB,
  late INTEGER NOT NULL
) STRICT;

-- The keys that messages came with; hash is of caller, callee and key, both are halves
-- of SHA-256. All up to meta.keys_indexed are in the index, by the first 8 bytes of
-- their hash: see keys.go.
CREATE TABLE idempotency (
  k INTEGER PRIMARY KEY, -- task<<20 | message
  hash BLOB NOT NULL,
  fingerprint BLOB NOT NULL
) STRICT;
CREATE TABLE idempotency_index (
  mark INTEGER NOT NULL,
  k INTEGER NOT NULL,
  PRIMARY KEY (mark, k)
) STRICT, WITHOUT ROWID;

-- Ids are the writer's and never used again, not even when everything was pruned:
-- cursors hold them. See meta.activity_pruned.
CREATE TABLE activity (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  task INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  actor INTEGER NOT NULL, -- 0: the hub
  attempt INTEGER NOT NULL,
  detail TEXT
) STRICT;

-- Facts about the database itself; oldest_binary is the lowest schema version that
-- a binary must know to use it.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('oldest_binary', '1'), ('application', 'holdfast'), ('activity_pruned', '0'), ('keys_indexed', '0');
