-- +goose Up
-- Named secrets, as the vault sealed them. Whatever else has sealed secrets stands in
-- sealedColumns in the code.
CREATE TABLE secret (
  name TEXT NOT NULL UNIQUE,
  sealed BLOB NOT NULL
) STRICT;
