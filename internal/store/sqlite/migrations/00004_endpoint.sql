-- +goose Up
-- Where the hub brings the tasks of an address. A row also goes when the secrets that it
-- needs were dropped; its address pulls then. No name is one of table address.
CREATE TABLE endpoint (
  address INTEGER PRIMARY KEY,
  delivery TEXT NOT NULL,
  url TEXT NOT NULL,
  auth TEXT NOT NULL,
  header TEXT NOT NULL,
  private INTEGER NOT NULL,
  sealed BLOB NOT NULL
) STRICT;
