// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const mountinfo = `22 27 0:20 / /sys rw,relatime shared:7 - sysfs sysfs rw
30 22 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:5 - cgroup cgroup rw,cpu
31 22 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
40 22 0:30 / /state/a\040b rw - tmpfs tmpfs rw
41 40 0:31 / /state/a\040b/c rw - tmpfs tmpfs rw
42 40 0:31 / /state2 rw - tmpfs tmpfs rw
broken line
`

func TestMountsAreReadAndSorted(t *testing.T) {
	t.Parallel()
	mounts := parseMounts(mountinfo)
	v1, v2 := cgroupMounts(mounts)
	if !slices.Equal(v1, []string{"/sys/fs/cgroup/cpu"}) || !slices.Equal(v2, []string{"/sys/fs/cgroup/unified"}) {
		t.Errorf("cgroups %v and %v", v1, v2)
	}
	if got := below(mounts, "/state"); !slices.Equal(got, []string{"/state/a b/c", "/state/a b"}) {
		t.Errorf("below /state: %q, want the deepest first and no neighbour", got)
	}
}

func TestMissingCapabilitiesAreNamed(t *testing.T) {
	t.Parallel()
	needed := map[string]uint{"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
	for status, want := range map[string][]string{
		"Name:\ta\nCapEff:\t000001fffeffffff\n": nil,
		"CapEff:\t0000000000001000\n":           {"CAP_SYS_ADMIN"},
		"CapEff:\t0000000000200000\n":           {"CAP_NET_ADMIN"},
	} {
		got, err := missingCapabilities(status, needed)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v (%v), want %v", status, got, err, want)
		}
	}
	if _, err := missingCapabilities("", needed); err == nil {
		t.Error("an unreadable status was accepted")
	}
}

func TestAFileIsWrittenWholeAndATreeRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tree")
	file := filepath.Join(dir, "sub", "file")
	if err := WriteFile(file, []byte("content")); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "content" {
		t.Errorf("got %q (%v)", content, err)
	}
	if err := RemoveTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there (%v)", err)
	}
}
