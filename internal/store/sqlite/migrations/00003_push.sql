-- +goose Up
-- How many push-notification configurations a task has: whether an event of it has to
-- make any due.
ALTER TABLE task ADD COLUMN pushes INTEGER NOT NULL DEFAULT 0;

-- The outbox of notifications: one cursor per configuration over the events of its
-- task. Something is due at due_at while there are events after the cursor; a sender
-- that has it on loan (lent) has until then.
CREATE TABLE push (
  k INTEGER PRIMARY KEY, -- task<<20 | n
  id TEXT NOT NULL,
  url TEXT NOT NULL,
  version TEXT NOT NULL,
  scheme TEXT,
  sealed BLOB,
  created_at INTEGER NOT NULL,
  cursor INTEGER NOT NULL,
  due_at INTEGER,
  lent INTEGER NOT NULL, -- a value of lent* in the code
  loan INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  failed_since INTEGER,
  last_error TEXT,
  failed INTEGER NOT NULL
) STRICT;
CREATE INDEX push_due ON push(due_at) WHERE due_at IS NOT NULL;

-- Notifications that were given up. Ids are never used again: clients hold them.
CREATE TABLE push_failure (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  push INTEGER NOT NULL, -- push.k
  caller INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  at INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  reason TEXT NOT NULL
) STRICT;
CREATE INDEX push_failure_push ON push_failure(push);
CREATE INDEX push_failure_caller ON push_failure(caller);

-- A configuration also goes when the secret that it needs was dropped, so what goes
-- with it stands here.
-- +goose StatementBegin
CREATE TRIGGER push_gone AFTER DELETE ON push BEGIN
  DELETE FROM push_failure WHERE push = OLD.k;
  UPDATE task SET pushes = pushes - 1 WHERE n = OLD.k >> 20;
END;
-- +goose StatementEnd
