-- +goose Up
-- The paths of an address that outside services may reach, as a JSON array; NULL for none.
ALTER TABLE address ADD COLUMN relay_paths text;
