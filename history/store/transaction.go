// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// transaction is one of a writer, which is alone: it has locked the totals. It prepares each
// statement once.
type transaction struct {
	*sql.Tx
	store    *Store
	prepared map[string]*sql.Stmt
	// totals are those at the end.
	totals Totals
}

// Totals are how many jobs are recorded, and the bytes of what is recorded of them.
type Totals struct {
	Jobs, Bytes int64
}

// alone runs a transaction that no other writer overlaps.
func (s *Store) alone(ctx context.Context, run func(*transaction) error) error {
	return explained(s.transact(ctx, run))
}

func (s *Store) transact(ctx context.Context, run func(*transaction) error) (err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer func() {
		if err != nil {
			if failed := tx.Rollback(); !errors.Is(failed, sql.ErrTxDone) {
				err = errors.Join(err, failed)
			}
		}
	}()
	t := &transaction{Tx: tx, store: s, prepared: map[string]*sql.Stmt{}}
	if err := tx.QueryRowContext(ctx, "SELECT jobs, bytes FROM totals"+s.dialect.lock).Scan(&t.totals.Jobs, &t.totals.Bytes); err != nil {
		return fmt.Errorf("waiting for other writers: %w", err)
	}
	before := t.totals
	if err := run(t); err != nil {
		return err
	}
	if t.totals != before {
		if _, err := t.exec(ctx, "UPDATE totals SET jobs = ?, bytes = ?", t.totals.Jobs, t.totals.Bytes); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	return nil
}

func (t *transaction) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if known, found := t.prepared[query]; found {
		return known, nil
	}
	statement, err := t.PrepareContext(ctx, t.store.dialect.sql(query))
	if err == nil {
		t.prepared[query] = statement
	}
	return statement, err
}

// exec returns how many rows a statement has changed.
func (t *transaction) exec(ctx context.Context, query string, arguments ...any) (int64, error) {
	statement, err := t.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := statement.ExecContext(ctx, arguments...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// row reads one row, and reports whether there is one.
func (t *transaction) row(ctx context.Context, into []any, query string, arguments ...any) (bool, error) {
	statement, err := t.prepare(ctx, query)
	if err != nil {
		return false, err
	}
	err = statement.QueryRowContext(ctx, arguments...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Totals reads the totals.
func (s *Store) Totals(ctx context.Context) (Totals, error) {
	var totals Totals
	if err := s.read.QueryRowContext(ctx, "SELECT jobs, bytes FROM totals").Scan(&totals.Jobs, &totals.Bytes); err != nil {
		return totals, fmt.Errorf("reading the totals: %w", err)
	}
	return totals, nil
}
