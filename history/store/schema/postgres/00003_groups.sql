-- What the allocator has learned of groups of jobs, as it stores it.
-- +goose Up
CREATE TABLE allocation_groups (
    name    TEXT PRIMARY KEY,
    used    BIGINT NOT NULL,
    learned TEXT NOT NULL
);
CREATE INDEX allocation_groups_by_use ON allocation_groups (used, name);
