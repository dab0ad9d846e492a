-- +goose Up
-- The paths that the tunnel of an instance lets through, as a JSON array; NULL for none.
ALTER TABLE instance ADD COLUMN relay text;
