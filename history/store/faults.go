// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
)

var (
	// ErrRefused says that the database never stores what was written.
	ErrRefused = errors.New("the database refuses it")
	// ErrFull says that a disk is full.
	ErrFull = errors.New("the disk of the database is full: enlarge it, or lower history.keepBytes")
	// ErrConnection says that a connection string is not one.
	ErrConnection = errors.New("not a connection string of PostgreSQL")
)

// The results of SQLite, in the lower byte of its codes.
const (
	liteFull       = 13
	liteTooBig     = 18
	liteConstraint = 19
	liteMismatch   = 20
)

// explained returns an error of the database, and what it means for who writes.
func explained(err error) error {
	kind := error(nil)
	if postgres := (*pgconn.PgError)(nil); errors.As(err, &postgres) {
		kind = kindOfState(postgres.Code)
	} else if lite := (*sqlite.Error)(nil); errors.As(err, &lite) {
		kind = kindOfResult(lite.Code() & 0xff)
	}
	if kind == nil {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// kindOfState reads the SQLSTATE, whose first two characters are its class.
func kindOfState(state string) error {
	if state == "53100" {
		return ErrFull
	}
	switch state[:min(len(state), 2)] {
	case "22", "23", "54", "P0":
		// Data, constraints, limits of the program, and what triggers raise.
		return ErrRefused
	}
	return nil
}

func kindOfResult(result int) error {
	switch result {
	case liteFull:
		return ErrFull
	case liteTooBig, liteConstraint, liteMismatch:
		return ErrRefused
	}
	return nil
}
