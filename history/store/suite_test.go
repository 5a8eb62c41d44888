// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/test/testkit/postgres"
)

// database opens a new database, and again the same one.
type database struct {
	t    *testing.T
	open func(ctx context.Context) (*store.Store, error)
	// connection is what database/sql opens.
	driver, connection string
}

func (d database) store() *store.Store {
	d.t.Helper()
	opened, err := d.open(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			d.t.Error(err)
		}
	})
	return opened
}

// refuse adds a trigger that refuses each record with an image of that name, in PostgreSQL by a state.
func (d database) refuse(state string) {
	d.t.Helper()
	trigger := "CREATE TRIGGER refuse BEFORE INSERT ON records WHEN NEW.record LIKE '%\"refused\"%' BEGIN SELECT RAISE(ABORT, 'refused'); END"
	if d.driver == "pgx" {
		trigger = `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '` + state + `'; END $$;
			CREATE TRIGGER refuse BEFORE INSERT ON records FOR EACH ROW WHEN (NEW.record LIKE '%"refused"%') EXECUTE FUNCTION refuse()`
	}
	raw, err := sql.Open(d.driver, d.connection)
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = raw.ExecContext(d.t.Context(), trigger)
	if err := errors.Join(err, raw.Close()); err != nil {
		d.t.Fatal(err)
	}
}

// server is nil if PostgreSQL did not start, and failure says why.
var (
	server  *postgres.Server
	failure error
)

func TestMain(m *testing.M) {
	server, failure = postgres.Start(context.Background())
	code := m.Run()
	if server != nil {
		if err := server.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(database)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "with space?#%.db")
		test(database{t, func(ctx context.Context) (*store.Store, error) { return store.OpenSQLite(ctx, path) }, "sqlite", (&url.URL{Scheme: "file", Path: path, OmitHost: true}).String()})
	})
	t.Run("PostgreSQL", onPostgres(test))
}

func onPostgres(test func(database)) func(*testing.T) {
	return func(t *testing.T) {
		if failure != nil {
			t.Fatal(failure)
		}
		connection, err := server.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(database{t, func(ctx context.Context) (*store.Store, error) { return store.OpenPostgres(ctx, connection) }, "pgx", connection})
	}
}

func at(seconds int) time.Time {
	return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// job returns a running job that was created so many seconds after the first.
func job(number int, change ...func(*record.Job)) *record.Job {
	made := &record.Job{
		UID: fmt.Sprintf("uid-%06d", number), Namespace: "team", Name: fmt.Sprintf("job-%d", number), Version: "v2alpha1",
		Manifest: []byte(`{"kind":"DIJob"}`), Created: at(number), Started: at(number + 1), Phase: "Running",
	}
	for _, c := range change {
		c(made)
	}
	return made
}

func ended(phase, reason string) func(*record.Job) {
	return func(j *record.Job) {
		j.Phase, j.Reason, j.Ended = phase, reason, j.Created.Add(time.Minute)
	}
}

func write(t *testing.T, to *store.Store, jobs ...*record.Job) {
	t.Helper()
	for len(jobs) > 0 {
		batch := jobs[:min(len(jobs), store.MaxChanges)]
		jobs = jobs[len(batch):]
		changes := make([]store.Change, len(batch))
		for i, one := range batch {
			changes[i] = store.Change{UID: one.UID, Job: one}
		}
		if err := to.Write(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
}
