// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/past"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/test/testkit/figures"
	"opendilab.org/di-orchestrator/test/testkit/postgres"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

const (
	// maxPageTime, maxShowTime and maxHistoryMemory are what users are promised, at the 99th percentile.
	maxPageTime, maxShowTime = 100 * time.Millisecond, 50 * time.Millisecond
	maxHistoryMemory         = 256 << 20
	// pageSize is the default of clients.
	pageSize = 100
	// readOne is how many jobs are read one by one.
	readOne = 2000
	// keepAll keeps what is invented.
	keepAll = "history: {keepFor: 20000h, keepJobs: 100000000, keepBytes: 1Ti}"
)

// History measures how long pages and jobs of a long history take to read, beside plain SQL.
type History struct {
	load     drive.Load
	database string
	seed     uint64
	pages    int
}

// NewHistory returns the measurement.
func NewHistory() *History { return &History{load: drive.Load{Jobs: 1_000_000}} }

// Name implements run.Measurement.
func (*History) Name() string { return "history" }

// Flags implements run.Measurement.
func (h *History) Flags(flags *flag.FlagSet) {
	h.load.Register(flags, "jobs")
	flags.StringVar(&h.database, "database", "sqlite", "sqlite or postgres; POSTGRES names the folder of its programs")
	flags.Uint64Var(&h.seed, "seed", 1, "seed of the invented jobs")
	flags.IntVar(&h.pages, "pages", 1000, "pages that are read of each list, from the first one on; the list of all jobs is read to its end")
}

// archive is a database that is measured.
type archive struct {
	// flags are those of the program, and driver and connection those of plain SQL.
	flags              []string
	driver, connection string
	open               func(context.Context) (*store.Store, error)
	stop               func() error
}

func (h *History) archive(ctx context.Context, folder string) (*archive, error) {
	switch h.database {
	case "sqlite":
		path := filepath.Join(folder, "history.db")
		return &archive{
			flags: []string{"--sqlite", path}, driver: "sqlite", connection: (&url.URL{Scheme: "file", Path: path, OmitHost: true}).String(),
			open: func(ctx context.Context) (*store.Store, error) { return store.OpenSQLite(ctx, path) },
			stop: func() error { return nil },
		}, nil
	case "postgres":
		return postgresArchive(ctx, folder)
	}
	return nil, fmt.Errorf("-database is %q: must be sqlite or postgres", h.database)
}

func postgresArchive(ctx context.Context, folder string) (*archive, error) {
	server, err := postgres.Start(ctx)
	if err != nil {
		return nil, err
	}
	connection, err := server.Create(ctx)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "connection")
	return &archive{
		flags: []string{"--postgres-connection-file", file}, driver: "pgx", connection: connection,
		open: func(ctx context.Context) (*store.Store, error) { return store.OpenPostgres(ctx, connection) },
		stop: func() error { return server.Stop(context.WithoutCancel(ctx)) },
	}, os.WriteFile(file, []byte(connection), 0o600)
}

// Run implements run.Measurement.
func (h *History) Run(ctx context.Context, s *run.Session) (missed figures.Limits, err error) {
	if err := h.load.Check("jobs"); err != nil {
		return nil, err
	}
	from, err := h.archive(ctx, s.Folder)
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, from.stop)
	if err := h.fill(ctx, s, from); err != nil {
		return nil, err
	}
	served, err := past.Serve(ctx, &past.Options{Folder: s.Folder, Binary: s.Binary, Configuration: keepAll, Flags: from.flags})
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, served.Stop)
	plain, err := sql.Open(from.driver, from.connection)
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, plain.Close)
	m := &readings{s: s, reader: served.Reader, plain: past.Plain{DB: plain, Numbered: from.driver == "pgx"}, most: h.pages, missed: &missed}
	if err := m.lists(ctx); err != nil {
		return missed, err
	}
	if err := m.jobs(ctx, h.load.Jobs); err != nil {
		return missed, err
	}
	if err := m.print(served.Process); err != nil {
		return missed, err
	}
	size, err := m.plain.Size(ctx)
	if err == nil {
		fmt.Fprintf(s.Out, "The database has %s, %d bytes for a job.\n", figures.Mebibytes(size), size/int64(h.load.Jobs))
	}
	return missed, err
}

func (h *History) fill(ctx context.Context, s *run.Session, from *archive) (err error) {
	database, err := from.open(ctx)
	if err != nil {
		return err
	}
	defer run.Close(&err, database.Close)
	began, said := time.Now(), time.Now()
	err = past.Fill(ctx, database, h.load.Jobs, h.seed, func(done int) {
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			s.Say("%d of %d jobs are written", done, h.load.Jobs)
		}
	})
	if err == nil {
		fmt.Fprintf(s.Out, "%d invented jobs in %s, seed %d, written at %.0f a second.\n\n", h.load.Jobs, h.database, h.seed,
			float64(h.load.Jobs)/time.Since(began).Seconds())
	}
	return err
}

// readings are the times of all questions.
type readings struct {
	s      *run.Session
	reader *past.Reader
	plain  past.Plain
	most   int
	missed *figures.Limits
	rows   []reading
	// some are jobs of the list of all.
	some []record.Summary
}

// reading is the times of one question, and those of plain SQL.
type reading struct {
	name              string
	jobs              int
	times, references []time.Duration
}

// question is a list, as clients and as plain SQL ask for it.
type question struct {
	name   string
	filter map[string]string
	where  string
	values []any
	// limit is the length of a page, and most how many are read; 0 for the default.
	limit, most int
}

func questions() []question {
	day := time.Now().Add(-30 * 24 * time.Hour).UTC().Truncate(time.Second)
	return []question{
		{name: "all jobs, 500 a page", limit: record.MaxPage, most: 1 << 30},
		{name: "all jobs"},
		{name: "the largest namespace", filter: map[string]string{"namespace": "team-000"}, where: "namespace = ?", values: []any{"team-000"}},
		{name: "a small namespace", filter: map[string]string{"namespace": "team-300"}, where: "namespace = ?", values: []any{"team-300"}},
		{name: "phase Failed", filter: map[string]string{"phase": "Failed"}, where: "phase = ?", values: []any{"Failed"}},
		{name: "a group", filter: map[string]string{"group": "group-00010"}, where: "job_group = ?", values: []any{"group-00010"}},
		{name: "a user", filter: map[string]string{"creator": "user-003@example.com"}, where: "creator = ?", values: []any{"user-003@example.com"}},
		{name: "a reason", filter: map[string]string{"reason": "OutOfMemory"}, where: "reason = ?", values: []any{"OutOfMemory"}},
		{name: "the last 30 days", filter: map[string]string{"since": day.Format(time.RFC3339)}, where: "created >= ?", values: []any{day.UnixMicro()}},
		{
			name: "a namespace, a phase and a user", filter: map[string]string{"namespace": "team-001", "phase": "Failed", "creator": "user-003@example.com"},
			where: "namespace = ? AND phase = ? AND creator = ?", values: []any{"team-001", "Failed", "user-003@example.com"},
		},
		{name: "a common text", filter: map[string]string{"text": "exit code"}, where: "words LIKE ?", values: []any{"%exit code%"}},
		{name: "a rare text", filter: map[string]string{"text": past.Rare}, where: "words LIKE ?", values: []any{"%" + past.Rare + "%"}},
		{
			name: "a rare text in a namespace", filter: map[string]string{"text": past.Rare, "namespace": "team-002"},
			where: "words LIKE ? AND namespace = ?", values: []any{"%" + past.Rare + "%", "team-002"},
		},
	}
}

func (m *readings) lists(ctx context.Context) error {
	for _, asked := range questions() {
		m.s.Say("%s", asked.name)
		limit, most := cmp.Or(asked.limit, pageSize), cmp.Or(asked.most, m.most)
		query := past.Limit(limit)
		for name, value := range asked.filter {
			query.Set(name, value)
		}
		row := reading{name: asked.name}
		var err error
		row.times, err = m.reader.Walk(ctx, query, most, func(page record.Page) {
			row.jobs += len(page.Jobs)
			if asked.limit == record.MaxPage && len(page.Jobs) > 0 {
				m.some = append(m.some, page.Jobs[0])
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", asked.name, err)
		}
		// Plain SQL finds a rare text once in many seconds.
		if row.references, err = m.plain.Walk(ctx, asked.where, asked.values, limit, min(most, 100)); err != nil {
			return fmt.Errorf("%s, by plain SQL: %w", asked.name, err)
		}
		m.missed.Under(figures.Percentile(row.times, 99), maxPageTime, "p99 of a page of "+asked.name)
		m.rows = append(m.rows, row)
	}
	return nil
}

// jobs reads single jobs, and curves.
func (m *readings) jobs(ctx context.Context, jobs int) error {
	show, curves := reading{name: "show a job"}, reading{name: "the curves of a job"}
	chance := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the choice of jobs is no secret
	for range readOne {
		of := m.some[chance.IntN(len(m.some))]
		var job record.Job
		took, err := m.reader.Get(ctx, "/"+of.Namespace+"/"+of.Name, nil, &job)
		if err != nil {
			return err
		}
		show.times, show.jobs = append(show.times, took), show.jobs+1
		if took, err = m.plain.Show(ctx, of.UID); err != nil {
			return err
		}
		show.references = append(show.references, took)
		var found record.CurvePage
		if took, err = m.reader.Get(ctx, "/"+of.Namespace+"/"+of.Name+"/series", nil, &found); err != nil {
			return err
		}
		curves.times, curves.jobs = append(curves.times, took), curves.jobs+1
	}
	for _, row := range []reading{show, curves} {
		m.missed.Under(figures.Percentile(row.times, 99), maxShowTime, "p99 of "+row.name)
		m.rows = append(m.rows, row)
	}
	m.missed.Require(jobs < record.MaxPage || len(m.some) >= jobs/record.MaxPage, "the list of all jobs had %d pages, although there are %d jobs", len(m.some), jobs)
	return nil
}

func (m *readings) print(of *program.Process) error {
	used, err := of.Usage()
	if err != nil {
		return err
	}
	m.missed.Require(used.PeakBytes < maxHistoryMemory, "the program held %s, the limit is %s", figures.Mebibytes(used.PeakBytes), figures.Mebibytes(maxHistoryMemory))
	table := m.s.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "question\tpages\tjobs\tp50\tp99\tslowest\tplain SQL: p50\tp99\t")
	for _, row := range m.rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t\n", row.name, len(row.times), row.jobs,
			figures.Shown(row.times, 50), figures.Shown(row.times, 99), figures.Shown(row.times, 100),
			figures.Shown(row.references, 50), figures.Shown(row.references, 99))
	}
	err = table.Flush()
	fmt.Fprintf(m.s.Out, "\nThe program held at most %s.\n%s", figures.Mebibytes(used.PeakBytes), historyNotes)
	return err
}

const historyNotes = `
A time is that of a client with HTTPS, a token and its decoding. Pages are read one after the other from the newest job on, so that most are deep. A page
of a rare text may be empty and have a next one. Plain SQL reads the same pages (at most 100) by a connection of its own, without the check of rights.
`
