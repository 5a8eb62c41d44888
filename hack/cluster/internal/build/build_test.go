// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const goMod = `module example

go 1.26.0

require example.com/module v1.36.3 // indirect
`

func TestTheVersionComesFromThePins(t *testing.T) {
	t.Parallel()
	if got, err := moduleVersion([]byte(goMod), "example.com/module"); err != nil || got != "v1.36.3" {
		t.Errorf("got %q (%v), want v1.36.3", got, err)
	}
	for name, tc := range map[string]struct{ goMod, module string }{
		"another module": {goMod, "example.com/other"}, "not a go.mod": {"nonsense", "example.com/module"},
	} {
		if _, err := moduleVersion([]byte(tc.goMod), tc.module); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestKubernetesIsToldItsVersion(t *testing.T) {
	t.Parallel()
	flags := kubernetesVersionFlags("v1.36.3")
	for _, want := range []string{"gitVersion=v1.36.3", "gitMajor=1 ", "gitMinor=36 "} {
		if !strings.Contains(flags, want) {
			t.Errorf("flags %q lack %q", flags, want)
		}
	}
}

func TestTheFingerprintChangesWithWhateverChangesTheResult(t *testing.T) {
	t.Parallel()
	comp := component{folder: "a", module: "b", tags: "c"}
	p := pins{goMod: []byte("mod"), goSum: []byte("sum"), platform: "linux/amd64"}
	base := comp.fingerprint(p, "v1")
	if again := comp.fingerprint(p, "v1"); again != base {
		t.Errorf("the same input gives %s and %s", base, again)
	}
	tagged, withC, withFlags := comp, comp, comp
	tagged.tags, withC.cgo, withFlags.versionFlags = "d", true, kubernetesVersionFlags
	for name, got := range map[string]string{
		"pins":     comp.fingerprint(pins{goMod: []byte("other"), goSum: p.goSum, platform: p.platform}, "v1"),
		"sums":     comp.fingerprint(pins{goMod: p.goMod, goSum: []byte("other"), platform: p.platform}, "v1"),
		"border":   comp.fingerprint(pins{goMod: []byte("mods"), goSum: []byte("um"), platform: p.platform}, "v1"),
		"source":   comp.fingerprint(pins{goMod: p.goMod, goSum: p.goSum, source: []byte("main"), platform: p.platform}, "v1"),
		"platform": comp.fingerprint(pins{goMod: p.goMod, goSum: p.goSum, platform: "linux/arm64"}, "v1"),
		"tags":     tagged.fingerprint(p, "v1"),
		"compiler": withC.fingerprint(p, "v1"),
		"flags":    withFlags.fingerprint(p, "v1"),
	} {
		if got == base {
			t.Errorf("another %s gives the same fingerprint", name)
		}
	}
}

func TestThePinsOfThisCheckoutAreComplete(t *testing.T) {
	t.Parallel()
	cache, err := Open(t.TempDir(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	names := cache.All(false)
	for _, name := range []string{Etcd, APIServer, ControllerManager, Scheduler, Kubelet, Proxy, Kubectl, Containerd, ContainerdShim, Ctr, Runc, CNIBridge, CoreDNS, PauseImage} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not built", name)
		}
		if cache.Has(name) || !strings.HasPrefix(cache.Path(name), cache.Dir()) {
			t.Errorf("%s is at %s in an empty cache", name, cache.Path(name))
		}
	}
	if slices.Contains(names, Kwok) || !slices.Contains(cache.All(true), Kwok) {
		t.Error("kwok has to be built for fake nodes only")
	}
	for _, step := range cache.Steps(names...) {
		if step.Done() {
			t.Errorf("%s counts as done in an empty cache", step.Name)
		}
	}
}

func TestWhatIsHalfMadeNeverShows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	interrupted := path + ".partial-0"
	broken := errors.New("broken")
	writeThen := func(content string, err error) func(string) error {
		return func(partial string) error {
			if exists(interrupted) || partial == interrupted {
				t.Error("remains of an earlier run are still there")
			}
			return errors.Join(os.WriteFile(partial, []byte(content), 0o600), err)
		}
	}
	if err := os.WriteFile(interrupted, []byte("interrupted"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := atomically(path, writeThen("half", broken)); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the writer", err)
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) > 0 {
		t.Errorf("a failed run left %q (%v)", left, err)
	}
	if err := atomically(path, writeThen("whole", nil)); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "whole" {
		t.Errorf("got %q (%v)", content, err)
	}
}
