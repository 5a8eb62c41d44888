// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/pace"
)

// fill writes a file until its file system is full.
func fill(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for zeros := make([]byte, 4096); ; {
		if _, err := file.Write(zeros); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// It mounts a file system of 16 MiB, for which it needs root.
func TestTheHistoryWhoseDiskIsFullTwiceRecordsEachJobOnceAsItEnded_Slow(t *testing.T) {
	folder := t.TempDir()
	if err := syscall.Mount("history", folder, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatalf("mounting a small file system, which needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h := newHunted(t, "--sqlite="+filepath.Join(folder, "history.db"))
	program, address := h.start()
	from := time.Now()
	h.under(func(ctx context.Context) error {
		for range 2 {
			filler := filepath.Join(folder, "filler")
			if err := errors.Join(pace.Pause(ctx, 5*time.Second), fill(filler), pace.Pause(ctx, 10*time.Second), os.Remove(filler)); err != nil {
				return err
			}
		}
		return pace.Pause(ctx, 5*time.Second)
	})
	h.recording = []span{{from, time.Now()}}
	h.verify(address)
	program.kill(t)
}
