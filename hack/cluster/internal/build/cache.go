// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Cache returns the path of each program, built or not.
type Cache struct {
	dir    string
	source string
	// entries are the programs and the pause image, in build order.
	entries []entry
}

// entry is one file of the cache.
type entry struct {
	name, version, path string
	// component and pkg are the source of a program.
	component component
	pkg       string
}

// Open computes the content of the cache for the pins in the checkout. It builds nothing.
func Open(dir, source string) (*Cache, error) {
	c := &Cache{dir: dir, source: source}
	for _, comp := range components() {
		version, hash, err := comp.pins(filepath.Join(source, "binaries", comp.folder))
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", comp.folder, err)
		}
		folder := filepath.Join(dir, comp.folder+"-"+version+"-"+hash)
		for _, pkg := range comp.packages {
			name := comp.program(pkg)
			c.entries = append(c.entries, entry{name: name, version: version, path: filepath.Join(folder, name), component: comp, pkg: pkg})
		}
	}
	pause, err := os.ReadFile(filepath.Join(source, "pause", "main.go"))
	if err != nil {
		return nil, fmt.Errorf("pause image: %w", err)
	}
	folder := "pause-" + hashOf(string(pause), runtime.GOARCH)
	c.entries = append(c.entries, entry{name: PauseImage, version: "1", path: filepath.Join(dir, folder, PauseImage)})
	return c, nil
}

// find returns the entry with a name, which must be one of the names above.
func (c *Cache) find(name string) entry {
	for _, e := range c.entries {
		if e.name == name {
			return e
		}
	}
	return entry{}
}

// Path returns the path of a program or file, also before it is built.
func (c *Cache) Path(name string) string { return c.find(name).path }

// Version returns the version of a program's module.
func (c *Cache) Version(name string) string { return c.find(name).version }

// ModuleFolder returns the folder of the module that a program is built from, and downloads the module if
// it is missing.
func (c *Cache) ModuleFolder(ctx context.Context, name string) (string, error) {
	of := c.find(name).component
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", of.module)
	cmd.Dir = filepath.Join(c.source, "binaries", of.folder)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	output, err := cmd.Output()
	var module struct{ Dir, Error string }
	if decodeErr := json.Unmarshal(output, &module); err != nil || decodeErr != nil {
		return "", fmt.Errorf("download module %s: %w: %s", of.module, errors.Join(err, decodeErr), module.Error)
	}
	return module.Dir, nil
}

// Has reports whether a program or file is built.
func (c *Cache) Has(name string) bool { return exists(c.find(name).path) }

// All returns the names of everything in the cache.
func (c *Cache) All() []string {
	names := make([]string, 0, len(c.entries))
	for _, e := range c.entries {
		names = append(names, e.name)
	}
	return names
}

// AssetNames returns the names of the programs in the folder of assets.
func AssetNames() []string { return []string{Etcd, APIServer, Kubectl} }

// AssetsDir returns the folder with etcd, kube-apiserver and kubectl that tests expect in
// KUBEBUILDER_ASSETS.
func (c *Cache) AssetsDir() string {
	var paths []string
	for _, name := range AssetNames() {
		paths = append(paths, c.Path(name))
	}
	return filepath.Join(c.dir, "assets-"+c.Version(APIServer)+"-"+hashOf(strings.Join(paths, "\n")))
}

// LinkAssets links the programs into the folder of assets.
func (c *Cache) LinkAssets() error {
	dir := c.AssetsDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder of assets: %w", err)
	}
	for _, name := range AssetNames() {
		target, err := filepath.Rel(dir, c.Path(name))
		if err == nil {
			err = os.Symlink(target, filepath.Join(dir, name))
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("link to %s: %w", name, err)
		}
	}
	return nil
}

// Lock prevents concurrent runs from changing the same cache, or a cluster with programs from it.
// It calls waiting before it waits, and returns the function that unlocks. The kernel releases the
// lock when a run dies.
func Lock(dir string, waiting func()) (func() error, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		waiting()
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the cache: %w", err), file.Close())
	}
	return file.Close, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
