// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAMoveThatFailsUndoesThoseBefore lets the third of four moves fail: two
// of them replaced a file, one made one.
func TestAMoveThatFailsUndoesThoseBefore(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	for _, name := range []string{"a.yaml", "c.yaml", "d.yaml"} {
		writeFile(t, filepath.Join(at, name), "old "+name)
	}
	before := contents(t, at)
	var files []file
	for _, name := range []string{"a.yaml", "b.yaml", "c.yaml", "d.yaml"} {
		files = append(files, file{path: filepath.Join(at, name), content: []byte("new")})
	}
	move := func(from, to string) error {
		content, err := os.ReadFile(from)
		if err == nil && filepath.Base(to) == "c.yaml" && string(content) == "new" {
			return errors.New("the disk is gone")
		}
		return errors.Join(err, os.Rename(from, to))
	}
	err := replaceFiles(files, move)
	if err == nil || err.Error() != "the disk is gone\nnothing was written" {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, contents(t, at)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatCannotBeTakenBackIsNamed(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	first, second := filepath.Join(at, "a.yaml"), filepath.Join(at, "b.yaml")
	writeFile(t, first, "old")
	writeFile(t, second, "old")
	moves := 0
	err := replaceFiles([]file{{path: first, content: []byte("new")}, {path: second, content: []byte("new")}}, func(from, to string) error {
		if moves++; moves > 1 {
			return errors.New("the disk is gone")
		}
		return os.Rename(from, to)
	})
	if err == nil || !strings.HasSuffix(err.Error(), "written nevertheless: "+first) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(map[string]string{"a.yaml": "new", "b.yaml": "old"}, contents(t, at)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFileThatIsReadOnlyStays(t *testing.T) {
	t.Parallel()
	at := folder(t)
	before := contents(t, at)
	locked := filepath.Join(at, "deep", "b.yml")
	if err := os.Chmod(locked, 0o400); err != nil {
		t.Fatal(err)
	}
	got := kubectlDI(t, "", "convert", "-f", at, "-R", "-w")
	if want := locked + ": is read-only; make it writable, or use --output-dir\nnothing was written\n"; got.code != exitFailed || !strings.HasSuffix(got.stderr, want) {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(before, contents(t, at)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInputsAreNotOverwrittenUnasked(t *testing.T) {
	t.Parallel()
	at := folder(t)
	before := contents(t, at)
	got := kubectlDI(t, "", "convert", "-f", at, "--output-dir", at)
	if got.code != exitFailed || !strings.Contains(got.stderr, "is an input itself") {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(before, contents(t, at)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAFileIsReadOnce names a file by two paths.
func TestAFileIsReadOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.yaml")
	writeFile(t, path, legacyJob)
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(working, path)
	if err != nil {
		t.Fatal(err)
	}
	if once, twice := convert(t, "", "-f", path), convert(t, "", "-f", path, "-f", relative); once != twice {
		t.Errorf("(-want +got):\n%s", cmp.Diff(once.stdout, twice.stdout))
	}
}

func TestLinksToFoldersAreFollowedWhereTheyAreNamed(t *testing.T) {
	t.Parallel()
	at, link := folder(t), filepath.Join(t.TempDir(), "link")
	for to, from := range map[string]string{link: at, filepath.Join(at, "circle.yaml"): at} {
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if want, got := convert(t, "", "-f", at, "-R").stdout, convert(t, "", "-f", link, "-R").stdout; want != got {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
}

// TestAnInterruptEndsTheWaitingForInput has a stdin that nobody ever writes to.
func TestAnInterruptEndsTheWaitingForInput(t *testing.T) {
	t.Parallel()
	stdin, writer := io.Pipe()
	defer func() { _ = writer.Close() }() // Ends the reading.
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	command := newCommand()
	var report bytes.Buffer
	command.SetIn(stdin)
	command.SetErr(&report)
	command.SetArgs([]string{"convert", "-f", "-"})
	if code := run(ctx, command); code != exitFailed || report.String() != "kubectl-di: interrupted: nothing was written\n" {
		t.Errorf("exit code %d, %s", code, report.String())
	}
}
