// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Cache knows where each program is, built or not.
type Cache struct {
	dir    string
	source string
	// entries are the programs and the pause image, in the order in which they are built.
	entries []entry
}

// entry is one file of the cache.
type entry struct {
	name, version, path string
	// component and pkg are what a program is built from.
	component component
	pkg       string
}

// Open works out the content of the cache for the pins in the checkout. It builds nothing.
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

// find returns the entry with a name; there is none with another name than those above.
func (c *Cache) find(name string) entry {
	for _, e := range c.entries {
		if e.name == name {
			return e
		}
	}
	return entry{}
}

// Path is where a program or file is, or will be once it is built.
func (c *Cache) Path(name string) string { return c.find(name).path }

// Version is the version of the module a program is built from.
func (c *Cache) Version(name string) string { return c.find(name).version }

// Has reports whether a program or file is built.
func (c *Cache) Has(name string) bool { return exists(c.find(name).path) }

// All are the names of everything in the cache.
func (c *Cache) All() []string {
	names := make([]string, 0, len(c.entries))
	for _, e := range c.entries {
		names = append(names, e.name)
	}
	return names
}

// AssetNames are the programs in the folder of assets.
func AssetNames() []string { return []string{Etcd, APIServer, Kubectl} }

// AssetsDir is the folder with etcd, kube-apiserver and kubectl, as tests
// expect it in KUBEBUILDER_ASSETS.
func (c *Cache) AssetsDir() string {
	var paths []string
	for _, name := range AssetNames() {
		paths = append(paths, c.Path(name))
	}
	return filepath.Join(c.dir, "assets-"+c.Version(APIServer)+"-"+hashOf(strings.Join(paths, "\n")))
}

// LinkAssets puts links to the programs into the folder of assets.
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

// Lock keeps two runs from changing the same cache, or a cluster with programs
// from it, at once. It waits, after calling waiting if it has to, and returns
// how to unlock. The kernel unlocks by itself when a run dies.
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
