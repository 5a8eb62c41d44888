// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOnlyOwnTracesAreRemoved(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	record := filepath.Join(t.TempDir(), "record.json")
	traces := Traces{Root: root, StateDir: "/state", Network: "ours"}
	write := func(name string) {
		t.Helper()
		if err := WriteFile(filepath.Join(root, name), nil); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name, target string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("var/lib/cni/results/cbr0-1-eth0")
	write("var/lib/cni/results/cni-loopback-1-lo")
	if err := traces.Record(record); err != nil {
		t.Fatal(err)
	}
	write("var/lib/cni/results/ours-2-eth0")
	write("var/lib/cni/results/cni-loopback-2-lo")
	write("var/lib/kubelet/device-plugins/kubelet.sock")
	write("var/log/containers/another.log")
	link("var/log/containers/ours.log", "/state/pod-logs/ours.log")
	link("var/log/containers/theirs.log", "/state2/pod-logs/theirs.log")
	// A later run must not record as preexisting what the first one created.
	if err := traces.Record(record); err != nil {
		t.Fatal(err)
	}
	if err := traces.Remove(record); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"var/lib/cni/results/cbr0-1-eth0", "var/lib/cni/results/cni-loopback-1-lo",
		"var/log/containers/another.log", "var/log/containers/theirs.log",
	}
	if got := filesBelow(t, root); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(root, "var/lib/kubelet")); !os.IsNotExist(err) {
		t.Errorf("a folder that was not there before stays (%v)", err)
	}
}

func TestWithoutARecordNothingIsRemoved(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "var/lib/kubelet/device-plugins/kubelet.sock")
	if err := WriteFile(file, nil); err != nil {
		t.Fatal(err)
	}
	if err := (Traces{Root: root, StateDir: "/state", Network: "ours"}).Remove(filepath.Join(root, "record.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func filesBelow(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			files = append(files, relative)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
