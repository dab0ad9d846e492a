-- +goose Up
-- Times are milliseconds since the epoch by the database's clock. What people and
-- programs wrote is bytea, since text cannot hold U+0000.

CREATE TABLE address (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C" NOT NULL UNIQUE,
  handle text COLLATE "C" NOT NULL,
  kind smallint NOT NULL,
  description bytea NOT NULL,
  card bytea,
  access smallint NOT NULL,
  lease_ms bigint NOT NULL,
  max_redeliveries integer NOT NULL,
  dedupe boolean NOT NULL,
  on_unknown text NOT NULL,
  created_at bigint NOT NULL,
  deleted_at bigint
);
CREATE UNIQUE INDEX address_handle ON address(handle) WHERE deleted_at IS NULL;

CREATE TABLE token (
  id text COLLATE "C" PRIMARY KEY,
  address bigint NOT NULL REFERENCES address(n),
  name bytea NOT NULL,
  role smallint NOT NULL,
  hash bytea NOT NULL UNIQUE,
  created_at bigint NOT NULL,
  expires_at bigint,
  revoked_at bigint
);
CREATE INDEX token_address ON token(address);

-- Where the hub brings the tasks of an address. A row also goes when the secrets that it
-- needs were dropped; its address pulls then. No name is one of table address.
CREATE TABLE endpoint (
  address bigint PRIMARY KEY REFERENCES address(n),
  delivery text NOT NULL,
  url bytea NOT NULL,
  auth text NOT NULL,
  header bytea NOT NULL,
  private boolean NOT NULL,
  sealed bytea NOT NULL
);

-- The header of a task; what changes while it is unfinished is in queue. n is the order
-- of acceptance.
CREATE TABLE task (
  id uuid PRIMARY KEY,
  n bigint GENERATED ALWAYS AS IDENTITY,
  context bytea NOT NULL,
  caller bigint NOT NULL,
  callee bigint NOT NULL,
  state smallint NOT NULL,
  state_at bigint NOT NULL,
  status_seq integer NOT NULL,
  seq integer NOT NULL,
  messages integer NOT NULL,
  bytes bigint NOT NULL,
  attempt bigint NOT NULL,
  failures integer NOT NULL,
  cancel_outcome smallint NOT NULL,
  pushes integer NOT NULL,
  polls integer NOT NULL,
  deadline bigint,
  created_at bigint NOT NULL,
  claimed_at bigint,
  ended_at bigint,
  read_at bigint,
  polled_at bigint,
  error bytea,
  tags bytea,
  metadata bytea,
  parent_task bytea,
  parent_call bytea,
  run bytea NOT NULL,
  trace bytea,
  requeue_of bytea
) WITH (fillfactor = 80);
CREATE INDEX task_callee ON task(callee, state_at, n);
CREATE INDEX task_caller ON task(caller, state_at, n);
CREATE INDEX task_context ON task(context);
CREATE INDEX task_question ON task(caller, callee, context) WHERE state IN (6, 8);
CREATE INDEX task_unread ON task(caller) WHERE read_at IS NULL;
CREATE INDEX task_ended ON task(ended_at) WHERE ended_at IS NOT NULL;

-- One row per unfinished task, which is also its mutex. It is in the ready order while
-- rank is set, and something is due at due_at: the end of a lease, a backoff or the
-- deadline.
CREATE TABLE queue (
  task uuid PRIMARY KEY,
  n bigint NOT NULL, -- task.n
  callee bigint NOT NULL,
  caller bigint NOT NULL,
  phase smallint NOT NULL,
  rank bigint,
  due_at bigint,
  deadline bigint,
  lease_until bigint,
  lease_ms bigint NOT NULL,
  attempt bigint NOT NULL,
  failures integer NOT NULL,
  -- The newest claim: may it still report, was it only provisional, did it or an
  -- earlier one lapse, and which message has its holder seen last.
  open boolean NOT NULL,
  provisional boolean NOT NULL,
  lapsed boolean NOT NULL,
  seen integer NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX queue_ready ON queue(callee, rank, n) WHERE rank IS NOT NULL;
CREATE INDEX queue_due ON queue(due_at) WHERE due_at IS NOT NULL;

-- Where a callee's ready order stands: the rank of its last claim.
CREATE TABLE mailbox (
  callee bigint PRIMARY KEY,
  floor bigint NOT NULL
) WITH (fillfactor = 50);

-- How far a caller has come in a callee's ready order, and its unfinished tasks; rank 0
-- if it has sent nothing yet.
CREATE TABLE lane (
  callee bigint NOT NULL,
  caller bigint NOT NULL,
  rank bigint NOT NULL,
  open bigint NOT NULL,
  PRIMARY KEY (callee, caller)
) WITH (fillfactor = 50);

-- What a task has, and its dispatches below, is kept by the week in which the task was made,
-- which its id tells, so that it can go as a whole. The partitions of weeks are made by the
-- program, ahead; what fits into none is in that of the rest.
CREATE TABLE event (
  task uuid NOT NULL,
  seq integer NOT NULL,
  kind smallint NOT NULL,
  at bigint NOT NULL,
  state smallint NOT NULL,
  flags smallint NOT NULL,
  artifact bytea,
  body bytea,
  metadata bytea,
  PRIMARY KEY (task, seq)
) PARTITION BY RANGE (task);
CREATE TABLE event_rest PARTITION OF event DEFAULT;

-- seq is set for a question, whose body is its event's.
CREATE TABLE message (
  task uuid NOT NULL,
  n integer NOT NULL,
  from_callee boolean NOT NULL,
  undelivered boolean NOT NULL,
  seq integer,
  body bytea,
  PRIMARY KEY (task, n)
) PARTITION BY RANGE (task);
CREATE TABLE message_rest PARTITION OF message DEFAULT;

CREATE TABLE artifact (
  task uuid NOT NULL,
  id bytea NOT NULL,
  n integer NOT NULL,
  start integer NOT NULL, -- seq of the event that its content starts with
  PRIMARY KEY (task, id)
) PARTITION BY RANGE (task);
CREATE TABLE artifact_rest PARTITION OF artifact DEFAULT;

-- A claim that has ended, one way or another; outcome is that of attempt* in the code.
CREATE TABLE attempt (
  task uuid NOT NULL,
  n bigint NOT NULL,
  claimed_at bigint NOT NULL,
  outcome smallint NOT NULL,
  ended_at bigint NOT NULL,
  digest bytea,
  late boolean NOT NULL,
  PRIMARY KEY (task, n)
) PARTITION BY RANGE (task);
CREATE TABLE attempt_rest PARTITION OF attempt DEFAULT;

-- The keys that messages came with; hash is of caller, callee and key, both are halves
-- of SHA-256.
CREATE TABLE idempotency (
  hash bytea PRIMARY KEY,
  task uuid NOT NULL,
  fingerprint bytea NOT NULL
);
CREATE INDEX idempotency_task ON idempotency(task);

-- Transactions commit in another order than they write, so a reader goes by
-- (xid, id) and stops before the oldest transaction that is still under way. xid is
-- lineOrder in the code; the default serves a hub that is copied here, line by line.
CREATE TABLE activity (
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  id bigint GENERATED ALWAYS AS IDENTITY,
  at bigint NOT NULL,
  kind text NOT NULL,
  task uuid NOT NULL,
  seq integer NOT NULL,
  actor bigint NOT NULL, -- 0: the hub
  attempt bigint NOT NULL,
  detail bytea,
  PRIMARY KEY (xid, id)
);

-- Named secrets, as the vault sealed them. Whatever else has sealed secrets stands in
-- sealedColumns in the code.
CREATE TABLE secret (
  name text COLLATE "C" PRIMARY KEY,
  sealed bytea NOT NULL
);

-- The outbox of notifications: one cursor per configuration over the events of its
-- task. Something is due at due_at while there are events after the cursor; a sender
-- that has it on loan (lent) has until then.
CREATE TABLE push (
  task uuid NOT NULL,
  n integer NOT NULL,
  id bytea NOT NULL,
  url bytea NOT NULL,
  version text NOT NULL,
  scheme bytea,
  sealed bytea,
  created_at bigint NOT NULL,
  cursor integer NOT NULL,
  due_at bigint,
  lent smallint NOT NULL, -- a value of lent* in the code
  loan bigint NOT NULL,
  lender bigint, -- replica.n
  tries integer NOT NULL,
  failed_since bigint,
  last_error bytea,
  failed integer NOT NULL,
  PRIMARY KEY (task, n)
) WITH (fillfactor = 70);
CREATE INDEX push_due ON push(due_at) WHERE due_at IS NOT NULL;
CREATE SEQUENCE push_loan;

-- Notifications that were given up.
CREATE TABLE push_failure (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task uuid NOT NULL,
  push integer NOT NULL, -- push.n
  caller bigint NOT NULL,
  seq integer NOT NULL,
  at bigint NOT NULL,
  tries integer NOT NULL,
  reason bytea NOT NULL
);
CREATE INDEX push_failure_push ON push_failure(task, push);
CREATE INDEX push_failure_caller ON push_failure(caller);

-- A replica of the hub and when it was last alive. What a replica holds ends with it.
CREATE TABLE replica (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seen_at timestamptz NOT NULL
);

-- A try of the hub itself to bring a task to its callee. It is open while ended_at is not
-- set; with an outcome then, if all but the word of a cancel has been said. untold_at is
-- when its task was canceled, until the callee has been told. No other index than these,
-- so that its end is written beside it and touches none.
CREATE TABLE dispatch (
  task uuid NOT NULL,
  n bigint NOT NULL, -- attempt
  address bigint NOT NULL,
  kind text NOT NULL,
  instance bytea,
  remote_task bytea,
  remote_context bytea,
  begun_at bigint NOT NULL,
  ended_at bigint,
  sent boolean NOT NULL,
  outcome bytea,
  took_us bigint NOT NULL,
  status integer NOT NULL,
  detail bytea,
  untold_at bigint,
  PRIMARY KEY (task, n)
) PARTITION BY RANGE (task);
CREATE TABLE dispatch_rest PARTITION OF dispatch DEFAULT WITH (fillfactor = 80);
CREATE INDEX dispatch_address ON dispatch(address, begun_at, task, n);
CREATE INDEX dispatch_untold ON dispatch(address, begun_at) WHERE untold_at IS NOT NULL;

-- Which replica delivers to an address that has an endpoint, and what is connected to
-- which replica. Rows of a replica that is silent count for nothing.
CREATE TABLE owner (
  address bigint PRIMARY KEY,
  replica bigint NOT NULL REFERENCES replica(n) ON DELETE CASCADE
);
CREATE INDEX owner_replica ON owner(replica);
CREATE TABLE instance (
  address bigint NOT NULL,
  name bytea NOT NULL,
  replica bigint NOT NULL REFERENCES replica(n) ON DELETE CASCADE,
  slots integer NOT NULL,
  since bigint NOT NULL,
  url bytea,
  PRIMARY KEY (address, name)
);
CREATE INDEX instance_replica ON instance(replica);

-- Facts about the database itself; oldest_binary is the lowest schema version that
-- a binary must know to use it.
CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL);
INSERT INTO meta VALUES ('oldest_binary', '1'), ('application', 'holdfast'), ('activity_epoch', '1');
