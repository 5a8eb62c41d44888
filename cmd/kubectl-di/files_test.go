// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

func TestAFileThatIsReadOnlyStays(t *testing.T) {
	t.Parallel()
	at := folder(t)
	before := contents(t, at)
	locked := filepath.Join(at, "deep", "b.yml")
	if err := os.Chmod(locked, 0o400); err != nil {
		t.Fatal(err)
	}
	got := kubectlDI(t, "", "convert", "-f", at, "-R", "-w")
	if want := locked + ": is read-only; make it writable, or use --output-dir\nnothing was written\n"; got.code != exit.Failed || !strings.HasSuffix(got.stderr, want) {
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
	if got.code != exit.Failed || !strings.Contains(got.stderr, "is an input itself") {
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
	if once, twice := converts(t, "", "-f", path), converts(t, "", "-f", path, "-f", relative); once != twice {
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
	if want, got := converts(t, "", "-f", at, "-R").stdout, converts(t, "", "-f", link, "-R").stdout; want != got {
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
	var report bytes.Buffer
	command := newCommand(genericiooptions.IOStreams{In: stdin, Out: io.Discard, ErrOut: &report})
	command.SetArgs([]string{"convert", "-f", "-"})
	if code := run(ctx, command); code != exit.Failed || report.String() != "kubectl-di: interrupted: nothing was written\n" {
		t.Errorf("exit code %d, %s", code, report.String())
	}
}
