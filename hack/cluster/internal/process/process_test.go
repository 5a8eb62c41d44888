// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWhatToDoAboutADaemon(t *testing.T) {
	t.Parallel()
	spec := Spec{Name: "containerd", Program: "/cache/containerd", Args: []string{"-c", "file"}, Inputs: []string{"content"}}
	same := Process{PID: 1, Name: "containerd", Program: "containerd", Fingerprint: spec.Fingerprint()}
	other := same
	other.Fingerprint = "other"
	shim := Process{PID: 2, Name: "containerd", Program: "containerd-shim-runc-v2", Fingerprint: spec.Fingerprint()}
	for name, tc := range map[string]struct {
		running []Process
		keep    bool
		old     int
	}{
		"nothing runs":                       {},
		"it runs as it should":               {[]Process{same}, true, 1},
		"it runs as it should, with a child": {[]Process{shim, same}, true, 1},
		"only a child survived":              {[]Process{shim}, false, 0},
		"it runs with other arguments":       {[]Process{other}, false, 1},
		"it runs twice":                      {[]Process{same, same}, false, 2},
		"another daemon runs":                {[]Process{{PID: 3, Name: "etcd", Program: "etcd"}}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if keep, old := Decide(spec, tc.running); keep != tc.keep || len(old) != tc.old {
				t.Errorf("keep %t %v, want %t and %d processes", keep, old, tc.keep, tc.old)
			}
		})
	}
}

func TestTheFingerprintChangesWithEveryInput(t *testing.T) {
	t.Parallel()
	spec := Spec{Name: "a", Program: "/a", Args: []string{"b"}, Env: []string{"c"}, Inputs: []string{"d"}}
	changed := map[string]Spec{
		"program":  {Name: "a", Program: "/b/a", Args: spec.Args, Env: spec.Env, Inputs: spec.Inputs},
		"argument": {Name: "a", Program: "/a", Args: []string{"b", "b"}, Env: spec.Env, Inputs: spec.Inputs},
		"variable": {Name: "a", Program: "/a", Args: spec.Args, Inputs: spec.Inputs},
		"file":     {Name: "a", Program: "/a", Args: spec.Args, Env: spec.Env, Inputs: []string{"e"}},
		"border":   {Name: "a", Program: "/a", Args: []string{"b", "c"}, Inputs: spec.Inputs},
	}
	for name, other := range changed {
		if other.Fingerprint() == spec.Fingerprint() {
			t.Errorf("another %s gives the same fingerprint", name)
		}
	}
}

func TestMarksAreReadOnlyForTheOwnCluster(t *testing.T) {
	t.Parallel()
	environ := []byte("PATH=/bin\x00" + markCluster + "/state\x00" + markName + "etcd\x00" + markFingerprint + "abc\x00")
	p, ours := parseMarks(environ, "/state")
	if want := (Process{Name: "etcd", Fingerprint: "abc"}); !ours || p != want {
		t.Errorf("got %+v (ours: %t), want %+v", p, ours, want)
	}
	for _, dir := range []string{"/stat", "/state2", ""} {
		if _, ours := parseMarks(environ, dir); ours {
			t.Errorf("a process of /state passes as one of %q", dir)
		}
	}
}

func TestTheStateOfAProcessWithAnOddName(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string]byte{"1 (a) S 0": 'S', "1 (a) b) Z 0": 'Z', "1 (a)": 0, "": 0} {
		if got := stateOf([]byte(stat)); got != want {
			t.Errorf("%q: got %c, want %c", stat, got, want)
		}
	}
}

func TestADaemonIsStartedOnceFoundAndEnded(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	control := NewControl(t.TempDir())
	spec := Spec{Name: "sleeper", Program: sleep, Args: []string{"600"}}
	t.Cleanup(func() {
		if running, err := Find(control.stateDir); err == nil {
			signal(running, syscall.SIGKILL)
		}
	})
	for range 2 {
		if restarted, err := control.Ensure(t.Context(), spec); err != nil || restarted {
			t.Fatalf("restarted %t (%v)", restarted, err)
		}
	}
	running, err := Find(control.stateDir)
	if err != nil || len(running) != 1 {
		t.Fatalf("found %v (%v), want one process", running, err)
	}
	if err := End(t.Context(), running, time.Minute); err != nil {
		t.Error(err)
	}
	if running, err := Find(control.stateDir); err != nil || len(running) != 0 {
		t.Errorf("found %v (%v) after the end, want none", running, err)
	}
}

func TestADaemonInheritsNothingOfTheCallers(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lock")
	// A shell opens files like this: without the flag that os.Open sets.
	descriptor, err := syscall.Open(file, syscall.O_CREAT|syscall.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(descriptor) })
	control := NewControl(t.TempDir())
	if _, err := control.Ensure(t.Context(), Spec{Name: "sleeper", Program: sleep, Args: []string{"600"}}); err != nil {
		t.Fatal(err)
	}
	running, err := Find(control.stateDir)
	if err != nil || len(running) != 1 {
		t.Fatalf("found %v (%v), want one process", running, err)
	}
	t.Cleanup(func() { signal(running, syscall.SIGKILL) })
	folder := filepath.Join("/proc", strconv.Itoa(running[0].PID), "fd")
	open, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		if leads, err := os.Readlink(filepath.Join(folder, entry.Name())); err != nil || leads == file {
			t.Errorf("descriptor %s leads to %s (%v)", entry.Name(), leads, err)
		}
	}
}

func TestTheDeathOfADaemonEndsTheWaitAndQuotesItsLog(t *testing.T) {
	t.Parallel()
	ls, err := exec.LookPath("ls")
	if err != nil {
		t.Fatal(err)
	}
	control := NewControl(t.TempDir())
	spec := Spec{Name: "lister", Program: ls, Args: []string{"/does/not/exist"}, Env: []string{"LC_ALL=C"}}
	if _, err := control.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	err = control.Await(t.Context(), spec, time.Minute, func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("got %v, want the reason from the log", err)
	}
	if _, err := os.Stat(control.LogFile("lister")); err != nil {
		t.Error(err)
	}
}
