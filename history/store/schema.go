// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// ErrNewer says that a later release has written the database.
var ErrNewer = errors.New("the database is newer than this program")

//go:embed schema
var schema embed.FS

// migrate applies the steps of the schema that the database lacks. Programs that start together take
// turns.
func (s *Store) migrate(ctx context.Context) error {
	steps, err := fs.Sub(schema, "schema/"+s.dialect.schema)
	if err != nil {
		return err
	}
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if s.dialect.goose == goose.DialectPostgres {
		turns, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return err
		}
		options = append(options, goose.WithSessionLocker(turns))
	}
	provider, err := goose.NewProvider(s.dialect.goose, s.write, steps, options...)
	if err != nil {
		return err
	}
	has, knows, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("reading which steps it has: %w", err)
	}
	if has > knows {
		return fmt.Errorf("%w: it has step %d, and this release knows %d steps; run the later release, or restore an earlier backup", ErrNewer, has, knows)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("applying its steps: %w", err)
	}
	return nil
}
