// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// contents returns the contents of a directory's files.
func contents(t *testing.T, at string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(at)
	expect.NoError(t, err)
	found := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(at, entry.Name()))
		expect.NoError(t, err)
		found[entry.Name()] = string(content)
	}
	return found
}

// TestAFailedMoveUndoesThoseBefore makes the third of four moves fail. The first replaced a file,
// the second created one.
func TestAFailedMoveUndoesThoseBefore(t *testing.T) {
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
		if filepath.Base(to) == "c.yaml" {
			return errors.New("the disk is gone")
		}
		return os.Rename(from, to)
	}
	err := replaceFiles(files, move)
	if err == nil || err.Error() != "the disk is gone\nnothing was written" {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, contents(t, at)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFileThatCannotBeRestoredIsNamed(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	first, second := filepath.Join(at, "a.yaml"), filepath.Join(at, "b.yaml")
	writeFile(t, first, "old")
	writeFile(t, second, "old")
	err := replaceFiles([]file{{path: first, content: []byte("new")}, {path: second, content: []byte("new")}}, func(from, to string) error {
		if to == first {
			return os.Rename(from, to)
		}
		// Another program replaces the first file with a directory.
		return errors.Join(errors.New("the disk is gone"), os.Remove(first), os.Mkdir(first, 0o750))
	})
	if err == nil || !strings.HasSuffix(err.Error(), "written nevertheless: "+first) {
		t.Errorf("got %v", err)
	}
}
