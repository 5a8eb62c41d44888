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

func TestKubernetesReportsItsVersion(t *testing.T) {
	t.Parallel()
	flags := kubernetesVersionFlags("v1.36.3")
	for _, want := range []string{"gitVersion=v1.36.3", "gitMajor=1 ", "gitMinor=36 "} {
		if !strings.Contains(flags, want) {
			t.Errorf("flags %q lack %q", flags, want)
		}
	}
}

func TestTheHashChangesWithWhateverChangesTheResult(t *testing.T) {
	t.Parallel()
	write := func(folder, name, content string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder := t.TempDir()
	write(folder, "go.mod", goMod)
	write(folder, "go.sum", "sum")
	comp := component{folder: "a", module: "example.com/module", tags: "c"}
	hash := func(comp component) string {
		version, hash, err := comp.pins(folder)
		if err != nil || version != "v1.36.3" {
			t.Fatalf("version %s: %v", version, err)
		}
		return hash
	}
	base := hash(comp)
	if again := hash(comp); again != base {
		t.Errorf("the same input gives %s and %s", base, again)
	}
	tagged, withC, withFlags := comp, comp, comp
	tagged.tags, withC.cgo, withFlags.versionFlags = "d", true, kubernetesVersionFlags
	for name, other := range map[string]component{"tag": tagged, "compiler": withC, "flag": withFlags} {
		if hash(other) == base {
			t.Errorf("another %s gives the same hash", name)
		}
	}
	for name, content := range map[string]string{"go.sum": "other", "go.mod": goMod + "// other\n", "main.go": "package main"} {
		write(folder, name, content)
		if hash(comp) == base {
			t.Errorf("another %s gives the same hash", name)
		}
	}
	if hashOf("ab", "c") == hashOf("a", "bc") {
		t.Error("the border between two texts is not part of the hash")
	}
}

func TestABuildCountsEachPackageOnce(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n", "a/main.go": "package main\n\nimport _ \"m/b\"\n\nfunc main() {}\n", "b/b.go": "package b\n",
	} {
		file := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	counted := map[string]bool{}
	sizes, total, err := uncompiled(t.Context(), folder, []string{"CGO_ENABLED=0"}, []string{"build", "-n", "-o", os.DevNull, "./a"}, counted)
	if err != nil || sizes["m/b"] == 0 || total < sizes["m/b"]+sizes["main"] {
		t.Errorf("got %d bytes, %v (%v), want the sizes of both packages", total, sizes, err)
	}
	if _, again, err := uncompiled(t.Context(), folder, []string{"CGO_ENABLED=0"}, []string{"build", "-n", "-o", os.DevNull, "./a"}, counted); err != nil || again != 0 {
		t.Errorf("the second time there are %d bytes (%v), want none", again, err)
	}
}

func TestThePinsOfThisCheckoutAreComplete(t *testing.T) {
	t.Parallel()
	cache, err := Open(t.TempDir(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	names := cache.All()
	for _, name := range []string{Etcd, APIServer, ControllerManager, Scheduler, Kubelet, Proxy, Kubectl, Containerd, ContainerdShim, Ctr, Runc, CNIBridge, CoreDNS, MetricsServer, Kueue, KEDAOperator, KEDAAdapter, KEDAWebhooks, PauseImage} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not built", name)
		}
		if cache.Has(name) || !strings.HasPrefix(cache.Path(name), cache.dir) {
			t.Errorf("%s is at %s in an empty cache", name, cache.Path(name))
		}
	}
	// Only the pause image is planned, because its plan is quick.
	steps, err := cache.Steps(t.Context(), map[string]bool{}, PauseImage)
	if err != nil || len(steps) != 1 || steps[0].Skip {
		t.Errorf("got steps %v (%v), want one to do", steps, err)
	}
}

func TestAnIncompleteFileNeverShows(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, interrupted := filepath.Join(folder, "file"), filepath.Join(folder, "partial-0")
	broken := errors.New("broken")
	if err := os.Mkdir(interrupted, 0o700); err != nil {
		t.Fatal(err)
	}
	writeThen := func(content string, err error) func(string) error {
		return func(partial string) error {
			if exists(interrupted) {
				t.Error("remains of an earlier run are still there")
			}
			return errors.Join(os.WriteFile(partial, []byte(content), 0o600), err)
		}
	}
	if err := atomically(path, writeThen("half", broken)); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the writer", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("a failed run left %q (%v)", left, err)
	}
	if err := atomically(path, writeThen("whole", nil)); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "whole" {
		t.Errorf("got %q (%v)", content, err)
	}
}
