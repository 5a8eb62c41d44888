// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
	"opendilab.org/di-orchestrator/hack/image/bundle"
)

// PauseImageName is the name of the image that holds a pod's namespaces.
const PauseImageName = "di-orchestrator-pause:1"

// outputLimit is how much of a failed build's output an error quotes.
const outputLimit = 4096

// Steps are the builds of the named things, in the order of the cache.
func (c *Cache) Steps(names ...string) []progress.Step {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var steps []progress.Step
	for _, name := range c.order {
		if wanted[name] {
			steps = append(steps, c.step(c.entries[name]))
		}
	}
	return steps
}

// All are the names of everything in the cache but the programs for fake nodes.
func (c *Cache) All(fakeNodes bool) []string {
	var names []string
	for _, name := range c.order {
		if fakeNodes || !strings.HasPrefix(filepath.Base(filepath.Dir(c.Path(name))), "kwok-") {
			names = append(names, name)
		}
	}
	return names
}

func (c *Cache) step(e entry) progress.Step {
	return progress.Step{
		Name:     "build " + e.name + " " + e.version,
		Expected: e.expected,
		Done:     func() bool { return exists(e.path) },
		Run: func(ctx context.Context) error {
			if err := os.MkdirAll(filepath.Dir(e.path), 0o755); err != nil {
				return fmt.Errorf("folder of %s: %w", e.name, err)
			}
			return atomically(e.path, func(partial string) error { return e.make(ctx, partial) })
		},
	}
}

// atomically makes a file or folder under another name and renames it when it
// is complete, so that whatever has the final name is complete. The other name
// is one of this run only: the compiler of a killed run may still be writing.
func atomically(path string, write func(partial string) error) error {
	// The names of the cache have no special characters, so Glob cannot fail.
	stale, _ := filepath.Glob(path + ".partial-*")
	for _, old := range stale {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("remove what an interrupted run left: %w", err)
		}
	}
	partial := fmt.Sprintf("%s.partial-%d", path, os.Getpid())
	if err := write(partial); err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("put %s in place: %w", path, err)
	}
	return nil
}

func (c *Cache) compile(ctx context.Context, comp component, prog program, version, path string) error {
	module := filepath.Join(c.source, "binaries", comp.folder)
	args := []string{"build", "-C", module, "-buildvcs=false", "-mod=readonly", "-ldflags", comp.ldflags(version)}
	if comp.tags != "" {
		args = append(args, "-tags", comp.tags)
	}
	args = append(args, "-o", path, prog.path)
	env := []string{"CGO_ENABLED=0"}
	if comp.cgo {
		env = c.cgoEnvironment()
	}
	_, err := goCommand(ctx, env, args...)
	return err
}

// cgoEnvironment points the C compiler to libseccomp. The program that would
// otherwise be asked for its flags, pkg-config, is not needed then.
func (c *Cache) cgoEnvironment() []string {
	env := []string{"CGO_ENABLED=1", "PKG_CONFIG=true"}
	root := c.PackageRoot(LibseccompDev)
	if !exists(root) {
		return append(env, "CGO_LDFLAGS=-lseccomp")
	}
	return append(env,
		"CGO_CFLAGS=-I"+filepath.Join(root, "usr/include"),
		"CGO_LDFLAGS=-L"+strings.Join(libraryDirs(root), " -L")+" -lseccomp",
	)
}

func goCommand(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	// A workspace or flags of the caller must not change what is built.
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, tail(stderr.Bytes()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

func tail(output []byte) []byte {
	return output[max(len(output)-outputLimit, 0):]
}

func copyFromModule(ctx context.Context, dir, module, file, path string) error {
	if _, err := goCommand(ctx, nil, "-C", dir, "mod", "download", module); err != nil {
		return err
	}
	root, err := goCommand(ctx, nil, "-C", dir, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return fmt.Errorf("read from module %s: %w", module, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write to cache: %w", err)
	}
	return nil
}

func (c *Cache) addPauseImage() error {
	source := filepath.Join(c.source, "pause", "main.go")
	content, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("read source: %w", err)
	}
	hash := sha256.Sum256(append(content, runtime.GOARCH...))
	c.add(entry{
		name: PauseImage, version: "1", expected: 3 * time.Second,
		path: filepath.Join(c.dir, "pause-"+hex.EncodeToString(hash[:])[:12], PauseImage),
		make: func(ctx context.Context, path string) error {
			binary := path + ".bin"
			_, err := goCommand(ctx, []string{"CGO_ENABLED=0"},
				"build", "-C", c.source, "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./pause")
			if err != nil {
				return err
			}
			_, err = bundle.WriteFile(bundle.Spec{
				Name: PauseImageName, Platform: bundle.HostPlatform(), Entrypoint: []string{"/pause"}, User: bundle.NonRoot,
				Files: []bundle.File{{Source: binary, Path: "/pause"}},
			}, path)
			return errors.Join(err, os.Remove(binary))
		},
	})
	return nil
}
