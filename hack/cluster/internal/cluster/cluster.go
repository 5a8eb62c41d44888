// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster starts and stops the local cluster.
package cluster

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// Cluster is the only cluster of a state directory.
type Cluster struct {
	settings settings.Settings
	cache    *build.Cache
	control  process.Control
	out      io.Writer
}

// New returns the cluster with the given settings, running or not. Down needs no cache.
func New(s settings.Settings, cache *build.Cache, out io.Writer) *Cluster {
	return &Cluster{settings: s, cache: cache, control: process.NewControl(s.StateDir), out: out}
}

// printf prints and ignores errors.
func (c *Cluster) printf(format string, args ...any) { _, _ = fmt.Fprintf(c.out, format, args...) }

// identityFile returns the path of the file with the choices that a cluster was created with. As
// the first file of a state directory it also identifies the directory as one.
func (c *Cluster) identityFile() string { return c.settings.State("cluster.json") }

// claimState creates the state directory, or checks that it belongs to a cluster with the same
// choices.
func (c *Cluster) claimState() error {
	recorded, err := machine.ReadRecord[map[string]string](c.identityFile())
	if err != nil {
		return err
	}
	if recorded != nil {
		return checkIdentity(recorded, c.settings.Identity())
	}
	entries, err := os.ReadDir(c.settings.StateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("state directory: %w", err)
	}
	if len(entries) > 0 && !onlyPartial(entries) {
		return fmt.Errorf("state directory %s holds other things: want an empty or new one", c.settings.StateDir)
	}
	return machine.WriteRecord(c.identityFile(), c.settings.Identity())
}

// onlyPartial reports whether a directory contains nothing but the leftovers of a crash in
// claimState.
func onlyPartial(entries []os.DirEntry) bool {
	return len(entries) == 1 && entries[0].Name() == "cluster.json.partial"
}

// checkIdentity returns an error if the choices of an existing cluster would change.
func checkIdentity(recorded, wanted map[string]string) error {
	if maps.Equal(recorded, wanted) {
		return nil
	}
	var errs []error
	for key, value := range wanted {
		if recorded[key] != value {
			errs = append(errs, fmt.Errorf("%s is %q in the existing cluster, not %q", key, recorded[key], value))
		}
	}
	return fmt.Errorf("%w: take the cluster down before changing it", errors.Join(errs...))
}

// Kubeconfig returns the path of the cluster's kubeconfig, also before it exists.
func (c *Cluster) Kubeconfig() string { return c.settings.Kubeconfig() }

// configFile returns the path of a file that every run renders again.
func (c *Cluster) configFile(name string) string { return c.settings.State("config", name) }

// writeConfig writes a rendered file and returns its path.
func (c *Cluster) writeConfig(name, content string) (string, error) {
	path := c.configFile(name)
	return path, machine.WriteFile(path, []byte(content))
}

// Environment returns the shell commands with which a terminal uses the cluster.
func (c *Cluster) Environment() string {
	return fmt.Sprintf("export PATH=%s:$PATH\nexport KUBECONFIG=%s\n", c.cache.AssetsDir(), c.Kubeconfig())
}

func (c *Cluster) pkiDir() string { return c.settings.State("pki") }

func (c *Cluster) pkiFile(name string) string { return filepath.Join(c.pkiDir(), name) }
