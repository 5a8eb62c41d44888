-- Times are microseconds since 1970, spans are seconds.
-- +goose Up
CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY,
    uid          TEXT NOT NULL UNIQUE,
    namespace    TEXT NOT NULL,
    name         TEXT NOT NULL,
    job_group    TEXT NOT NULL,
    creator      TEXT NOT NULL,
    phase        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    message      TEXT NOT NULL,
    created      BIGINT NOT NULL,
    started      BIGINT NOT NULL, -- 0 before that
    ended        BIGINT NOT NULL, -- 0 before that
    is_unseen    INTEGER NOT NULL,
    restarts     BIGINT NOT NULL,
    words        TEXT NOT NULL,   -- what a text is searched in, in lower case
    record_bytes BIGINT NOT NULL,
    other_bytes  BIGINT NOT NULL, -- of samples and tails
    thin_at      BIGINT NOT NULL  -- when samples are next thinned, 0 for never
);
CREATE INDEX jobs_by_time ON jobs (created, id);
CREATE INDEX jobs_by_name ON jobs (namespace, name, created, id);
CREATE INDEX jobs_by_namespace ON jobs (namespace, created, id);
CREATE INDEX jobs_by_group ON jobs (job_group, created, id);
CREATE INDEX jobs_by_creator ON jobs (creator, created, id);
CREATE INDEX jobs_by_reason ON jobs (reason, created, id);
CREATE INDEX jobs_by_phase ON jobs (phase, created, id);
CREATE INDEX jobs_by_end ON jobs (ended, id) WHERE ended > 0;
CREATE INDEX jobs_open ON jobs (id) WHERE ended = 0;
CREATE INDEX jobs_to_thin ON jobs (thin_at) WHERE thin_at > 0;

CREATE TABLE records (
    job    BIGINT PRIMARY KEY REFERENCES jobs ON DELETE CASCADE,
    record TEXT NOT NULL
);

CREATE TABLE samples (
    job     BIGINT NOT NULL REFERENCES jobs ON DELETE CASCADE,
    span    BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    sampled TEXT NOT NULL,
    PRIMARY KEY (job, span, at)
) WITHOUT ROWID;

CREATE TABLE tails (
    job       BIGINT NOT NULL REFERENCES jobs ON DELETE CASCADE,
    pod_uid   TEXT NOT NULL,
    container TEXT NOT NULL,
    restarts  BIGINT NOT NULL,
    ended     BIGINT NOT NULL,
    tail      TEXT NOT NULL,
    PRIMARY KEY (job, pod_uid, container, restarts)
);

-- One row, so that nothing counts all jobs. Each writer locks it first.
CREATE TABLE totals (
    id    INTEGER PRIMARY KEY,
    jobs  BIGINT NOT NULL,
    bytes BIGINT NOT NULL
);
INSERT INTO totals VALUES (1, 0, 0);
