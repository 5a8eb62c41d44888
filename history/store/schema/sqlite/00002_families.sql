-- Jobs of one family are compared with each other. Older jobs without a group have their whole name.
-- +goose Up
ALTER TABLE jobs ADD COLUMN family TEXT NOT NULL DEFAULT '';
UPDATE jobs SET family = CASE WHEN job_group = '' THEN 'name/' || name ELSE 'group/' || job_group END;
CREATE INDEX jobs_by_family ON jobs (namespace, family, ended, id) WHERE ended > 0;
