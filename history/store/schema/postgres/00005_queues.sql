-- Sums have the queue of the jobs. Of jobs that ended before, it is not known: it is empty, as that of jobs without a queue.
-- +goose Up
ALTER TABLE sums ADD COLUMN queue TEXT NOT NULL DEFAULT '';
ALTER TABLE sums DROP CONSTRAINT sums_pkey;
ALTER TABLE sums ADD PRIMARY KEY (day, namespace, job_group, queue, creator, cause);
