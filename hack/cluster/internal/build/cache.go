// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Cache knows where everything that gets built is, built or not.
type Cache struct {
	dir    string
	source string
	// entries are all things of the cache by name.
	entries map[string]entry
	order   []string
}

// entry is one file of the cache.
type entry struct {
	name     string
	version  string
	path     string
	expected time.Duration
	// make writes the file to a temporary path.
	make func(ctx context.Context, path string) error
}

// Open works out the content of the cache for the pins in the checkout. It
// builds nothing.
func Open(dir, source string) (*Cache, error) {
	c := &Cache{dir: dir, source: source, entries: map[string]entry{}}
	for _, comp := range components() {
		if err := c.addComponent(comp); err != nil {
			return nil, fmt.Errorf("component %s: %w", comp.folder, err)
		}
	}
	if err := c.addPauseImage(); err != nil {
		return nil, fmt.Errorf("pause image: %w", err)
	}
	return c, nil
}

func (c *Cache) addComponent(comp component) error {
	module := filepath.Join(c.source, "binaries", comp.folder)
	p, err := readPins(module)
	if err != nil {
		return err
	}
	version, err := moduleVersion(p.goMod, comp.module)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.dir, comp.folder+"-"+version+"-"+comp.fingerprint(p, version))
	for _, prog := range comp.programs {
		c.add(entry{
			name: prog.name, version: version, path: filepath.Join(dir, prog.name), expected: prog.expected,
			make: func(ctx context.Context, path string) error {
				return c.compile(ctx, comp, prog, version, path)
			},
		})
	}
	for _, file := range comp.files {
		c.add(entry{
			name: filepath.Base(file), version: version, path: filepath.Join(dir, filepath.Base(file)), expected: time.Second,
			make: func(ctx context.Context, path string) error {
				return copyFromModule(ctx, module, comp.module, file, path)
			},
		})
	}
	return nil
}

func readPins(module string) (pins, error) {
	goMod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return pins{}, fmt.Errorf("read pins: %w", err)
	}
	goSum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return pins{}, fmt.Errorf("read pins: %w", err)
	}
	source, err := os.ReadFile(filepath.Join(module, "main.go"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return pins{}, fmt.Errorf("read source: %w", err)
	}
	return pins{goMod: goMod, goSum: goSum, source: source, platform: runtime.GOOS + "/" + runtime.GOARCH}, nil
}

func (c *Cache) add(e entry) {
	c.entries[e.name] = e
	c.order = append(c.order, e.name)
}

// Dir is the folder of the cache.
func (c *Cache) Dir() string { return c.dir }

// Path is where a program or file is, or will be once it is built.
func (c *Cache) Path(name string) string { return c.entries[name].path }

// Version is the version of the module a program is built from.
func (c *Cache) Version(name string) string { return c.entries[name].version }

// Has reports whether a program or file is built.
func (c *Cache) Has(name string) bool {
	e, known := c.entries[name]
	return known && exists(e.path)
}

// AssetsDir is the folder with etcd, kube-apiserver and kubectl, as tests
// expect it in KUBEBUILDER_ASSETS.
func (c *Cache) AssetsDir() string {
	h := sha256.New()
	for _, name := range AssetNames() {
		_, _ = fmt.Fprintln(h, c.Path(name))
	}
	return filepath.Join(c.dir, "assets-"+c.Version(APIServer)+"-"+hex.EncodeToString(h.Sum(nil))[:12])
}

// AssetNames are the programs in the folder of assets.
func AssetNames() []string { return []string{Etcd, APIServer, Kubectl} }

// LinkAssets puts links to the programs into the folder of assets.
func (c *Cache) LinkAssets() error {
	dir := c.AssetsDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder of assets: %w", err)
	}
	for _, name := range AssetNames() {
		target, err := filepath.Rel(dir, c.Path(name))
		if err != nil {
			return fmt.Errorf("link to %s: %w", name, err)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
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
