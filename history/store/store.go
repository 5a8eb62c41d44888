// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// ErrNotFound says that no such job is recorded.
var ErrNotFound = errors.New("no such job is recorded")

const (
	// maxReaders bounds the connections that read, and so the memory for caches of pages.
	maxReaders = 4
	// maxIdle is how long a connection is kept unused.
	maxIdle = time.Minute
	// maxConnect bounds how long a connection is tried.
	maxConnect = 10 * time.Second
)

// dialect is in what SQL of the two databases differs, for this package.
type dialect struct {
	goose  goose.Dialect
	schema string
	// numbered says that parameters are $1 and not ?.
	numbered bool
	// lock ends a query that locks what it reads. A transaction of SQLite that writes is alone anyway.
	lock string
	// position is the function that searches a text in another.
	position string
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	dialect dialect
	// SQLite has one writer, which has a connection of its own. In PostgreSQL both are one pool.
	write, read *sql.DB
}

// OpenSQLite opens or creates the database in a file, and brings its schema up to date.
func OpenSQLite(ctx context.Context, path string) (*Store, error) {
	// What was written survives the end of the node: jobs whose end is recorded are let go.
	const common = "_pragma=busy_timeout(10000)&_pragma=auto_vacuum(2)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_pragma=temp_store(2)"
	file := url.URL{Scheme: "file", Path: path, OmitHost: true}
	file.RawQuery = common + "&_txlock=immediate"
	write, err := sql.Open("sqlite", file.String())
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	write.SetMaxOpenConns(1)
	file.RawQuery = common + "&_pragma=query_only(1)"
	read, err := sql.Open("sqlite", file.String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), write.Close())
	}
	read.SetMaxOpenConns(maxReaders)
	read.SetConnMaxIdleTime(maxIdle)
	store := &Store{dialect{goose: goose.DialectSQLite3, schema: "sqlite", position: "instr"}, write, read}
	return store.migrated(ctx, path)
}

// OpenPostgres opens the database of a connection string, and brings its schema up to date.
func OpenPostgres(ctx context.Context, connection string) (*Store, error) {
	config, err := pgx.ParseConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnection, err)
	}
	config.ConnectTimeout = min(cmp.Or(config.ConnectTimeout, maxConnect), maxConnect)
	pool := stdlib.OpenDB(*config)
	pool.SetMaxOpenConns(maxReaders + 1)
	pool.SetConnMaxIdleTime(maxIdle)
	postgres := dialect{goose: goose.DialectPostgres, schema: "postgres", numbered: true, lock: " FOR UPDATE", position: "strpos"}
	return (&Store{postgres, pool, pool}).migrated(ctx, "PostgreSQL")
}

func (s *Store) migrated(ctx context.Context, name string) (*Store, error) {
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the schema of %s: %w", name, explained(err)), s.Close())
	}
	return s, nil
}

// Close closes all connections.
func (s *Store) Close() error {
	err := s.write.Close()
	if s.read != s.write {
		err = errors.Join(s.read.Close(), err)
	}
	return err
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.read.PingContext(ctx); err != nil {
		return fmt.Errorf("the database does not answer: %w", err)
	}
	return nil
}

// sql returns a query with the parameters of the dialect.
func (d dialect) sql(query string) string {
	if !d.numbered {
		return query
	}
	var numbered strings.Builder
	parts := strings.Split(query, "?")
	for i, part := range parts[:len(parts)-1] {
		numbered.WriteString(part + "$" + strconv.Itoa(i+1))
	}
	return numbered.String() + parts[len(parts)-1]
}

// query calls give for each row.
func (s *Store) query(ctx context.Context, in querier, give func(scan) error, query string, arguments ...any) (err error) {
	rows, err := in.QueryContext(ctx, s.dialect.sql(query), arguments...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := give(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// scan reads the columns of a row.
type scan func(into ...any) error

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, arguments ...any) (*sql.Rows, error)
}

// micros returns how a time is stored; 0 for none.
func micros(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

func timeOf(stored int64) time.Time {
	if stored == 0 {
		return time.Time{}
	}
	return time.UnixMicro(stored).UTC()
}
