// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/wallclock"
)

// build builds the versions of di-orchestrator: this checkout's, and that of the earlier commit.
func (w *world) build(ctx context.Context) ([]string, error) {
	first := *binary
	if first == "" {
		var err error
		if first, err = wallclock.Build(ctx, testkit.Root(), w.folder); err != nil {
			return nil, err
		}
	}
	if w.options.from == "" {
		return []string{first}, nil
	}
	checkout := filepath.Join(w.folder, "from")
	if err := checkOut(ctx, w.options.from, checkout); err != nil {
		return nil, err
	}
	earlier, err := wallclock.Build(ctx, checkout, checkout)
	return []string{first, earlier}, err
}

// hasCommit reports whether this clone has a commit. A shallow one has few.
func hasCommit(ctx context.Context, commit string) bool {
	return exec.CommandContext(ctx, "git", "-C", testkit.Root(), "cat-file", "-e", commit+"^{commit}").Run() == nil //nolint:gosec // the commit comes from the user of the flag
}

// checkOut writes the files of a commit into a folder that it makes.
func checkOut(ctx context.Context, commit, folder string) error {
	if err := os.Mkdir(folder, 0o750); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	archive := folder + ".tar"
	for _, command := range [][]string{
		{"git", "-C", testkit.Root(), "archive", "--output", archive, commit},
		{"tar", "-xf", archive, "-C", folder},
	} {
		if output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil { //nolint:gosec // the commit comes from the user of the flag
			return fmt.Errorf("checking out %s, which -from names: %w\n%s", commit, err, output)
		}
	}
	return nil
}

// changeVersion starts a program again from the binary of another version, as an upgrade and a rollback do. Nothing says
// in which order the programs change.
func (f *faults) changeVersion(ctx context.Context, random *rand.Rand) (bool, error) {
	if len(f.world.binaries) == 1 {
		return false, nil
	}
	return f.onProgram("version", random, func(i *instance) error {
		i.mutex.Lock()
		i.version = (i.version + 1) % len(f.world.binaries)
		i.mutex.Unlock()
		return i.restart(ctx)
	})
}

// changeDefinitions installs the CRDs of a version while programs of both versions run.
func (f *faults) changeDefinitions(ctx context.Context, random *rand.Rand) (bool, error) {
	if len(f.world.binaries) == 1 || !f.control.TryLock() {
		return false, nil
	}
	defer f.control.Unlock()
	kubeconfig, err := f.world.KubeconfigAt("soak-upgrade", f.world.collector.Address())
	if err != nil {
		return false, err
	}
	version := f.world.binaries[random.IntN(len(f.world.binaries))]
	return true, f.around("definitions", version, func() error {
		return f.world.eventually(ctx, "the CRDs are installed", func(ctx context.Context) error {
			command := exec.CommandContext(ctx, version, "install-crds", "--namespace", names.SystemNamespace) //nolint:gosec // it is built here
			command.Env = append(os.Environ(), kubeconfig)
			if output, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, output)
			}
			return nil
		})
	})
}
