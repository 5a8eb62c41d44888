-- What the jobs that ended on a day took together. Days are since 1970, times are hours.
-- +goose Up
CREATE TABLE sums (
    day              BIGINT NOT NULL,
    namespace        TEXT NOT NULL,
    job_group        TEXT NOT NULL,
    creator          TEXT NOT NULL,
    cause            TEXT NOT NULL, -- empty for jobs that succeeded
    jobs             BIGINT NOT NULL,
    waited           REAL NOT NULL,
    gpu              REAL NOT NULL,
    cpu_requested    REAL NOT NULL,
    cpu_used         REAL NOT NULL,
    memory_requested REAL NOT NULL,
    memory_used      REAL NOT NULL,
    PRIMARY KEY (day, namespace, job_group, creator, cause)
);
CREATE INDEX sums_by_namespace ON sums (namespace, day);
