-- Sums have the queue of the jobs. Of jobs that ended before, it is not known: it is empty, as that of jobs without a queue.
-- +goose Up
ALTER TABLE sums RENAME TO earlier_sums;
CREATE TABLE sums (
    day              BIGINT NOT NULL,
    namespace        TEXT NOT NULL,
    job_group        TEXT NOT NULL,
    queue            TEXT NOT NULL,
    creator          TEXT NOT NULL,
    cause            TEXT NOT NULL, -- empty for jobs that succeeded
    jobs             BIGINT NOT NULL,
    waited           REAL NOT NULL,
    gpu              REAL NOT NULL,
    cpu_requested    REAL NOT NULL,
    cpu_used         REAL NOT NULL,
    memory_requested REAL NOT NULL,
    memory_used      REAL NOT NULL,
    PRIMARY KEY (day, namespace, job_group, queue, creator, cause)
);
INSERT INTO sums (day, namespace, job_group, queue, creator, cause, jobs, waited, gpu, cpu_requested, cpu_used, memory_requested, memory_used)
    SELECT day, namespace, job_group, '', creator, cause, jobs, waited, gpu, cpu_requested, cpu_used, memory_requested, memory_used FROM earlier_sums;
DROP TABLE earlier_sums;
CREATE INDEX sums_by_namespace ON sums (namespace, day);
