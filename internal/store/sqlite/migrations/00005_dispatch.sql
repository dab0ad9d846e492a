-- +goose Up
-- A try of the hub itself to bring a task to its callee. It is open while ended_at is not
-- set; with an outcome then, if all but the word of a cancel has been said. untold_at is
-- when its task was canceled, until the callee has been told.
CREATE TABLE dispatch (
  k INTEGER PRIMARY KEY, -- task<<20 | hand-out
  attempt INTEGER NOT NULL,
  address INTEGER NOT NULL,
  kind TEXT NOT NULL,
  instance TEXT,
  remote_task TEXT,
  remote_context TEXT,
  begun_at INTEGER NOT NULL,
  ended_at INTEGER,
  sent INTEGER NOT NULL,
  outcome TEXT,
  took_us INTEGER NOT NULL,
  status INTEGER NOT NULL,
  detail TEXT,
  untold_at INTEGER
) STRICT;
CREATE INDEX dispatch_address ON dispatch(address, begun_at);
CREATE INDEX dispatch_untold ON dispatch(address, begun_at) WHERE untold_at IS NOT NULL;
