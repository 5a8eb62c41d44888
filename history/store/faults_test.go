// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/history/record"
)

func TestAFullDiskIsNamed(t *testing.T) {
	s, err := OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.write.ExecContext(t.Context(), "PRAGMA max_page_count = 40"); err != nil {
		t.Fatal(err)
	}
	job := &record.Job{UID: "uid", Created: time.Unix(1, 0), Manifest: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}
	if err := s.Write(t.Context(), []Change{{UID: job.UID, Job: job}}); !errors.Is(err, ErrFull) || errors.Is(err, ErrRefused) {
		t.Errorf("%v, want %v", err, ErrFull)
	}
	job.Manifest = nil
	if err := s.Write(t.Context(), []Change{{UID: job.UID, Job: job}}); err != nil {
		t.Error(err)
	}
}
