// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
	"opendilab.org/di-orchestrator/hack/image/bundle"
)

// PauseImageName is the name of the image that keeps a pod's namespaces open.
const PauseImageName = "di-orchestrator-pause:1"

// outputLimit is the maximum output of a failed build in an error.
const outputLimit = 4096

// These are the speed of compiling and the time of linking on a machine with 2 cores. The estimate
// adapts to the machine.
const (
	bytesPerSecond = 400_000
	linkTime       = 5 * time.Second
)

// Steps returns the builds of the named programs, one step for the programs of a component. The
// expected durations depend on the packages that the Go build cache does not have. Packages that
// earlier steps compile are in counted.
func (c *Cache) Steps(ctx context.Context, counted map[string]bool, names ...string) ([]progress.Step, error) {
	var steps []progress.Step
	for _, comp := range components() {
		var missing, wanted []entry
		for _, e := range c.entries {
			if e.component.folder == comp.folder && slices.Contains(names, e.name) {
				wanted = append(wanted, e)
			}
		}
		missing = slices.DeleteFunc(slices.Clone(wanted), func(e entry) bool { return exists(e.path) })
		switch {
		case len(wanted) == 0:
		case len(missing) == 0:
			steps = append(steps, progress.Step{Name: describe(wanted), Skip: true})
		default:
			step, err := c.step(ctx, comp, missing, counted)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
	}
	if pause := c.find(PauseImage); slices.Contains(names, PauseImage) {
		steps = append(steps, progress.Step{
			Name: describe([]entry{pause}), Expected: 3 * time.Second, Skip: exists(pause.path),
			Run: func(ctx context.Context) error { return atomically(pause.path, c.makePauseImage(ctx)) },
		})
	}
	return steps, nil
}

func describe(entries []entry) string {
	var names []string
	for _, e := range entries {
		names = append(names, e.name)
	}
	return "build " + strings.Join(names, ", ") + " " + entries[0].version
}

// step builds programs of a component with one command, which links and compiles programs in
// parallel.
func (c *Cache) step(ctx context.Context, comp component, missing []entry, counted map[string]bool) (progress.Step, error) {
	module := filepath.Join(c.source, "binaries", comp.folder)
	args := []string{"build", "-buildvcs=false", "-mod=readonly", "-ldflags", comp.ldflags(missing[0].version)}
	if comp.tags != "" {
		args = append(args, "-tags", comp.tags)
	}
	var packages []string
	for _, e := range missing {
		packages = append(packages, e.pkg)
	}
	env := []string{"CGO_ENABLED=0"}
	if comp.cgo {
		env = c.cgoEnvironment()
	}
	return compiling(ctx, describe(missing), module, env, args, packages, counted, func(ctx context.Context, started func(string)) error {
		partial, err := emptyFolder(filepath.Dir(missing[0].path))
		if err != nil {
			return err
		}
		err = run(ctx, module, env, started, "go", slices.Concat(args, []string{"-v", "-o", partial + "/"}, packages)...)
		if err == nil {
			err = moveTo(missing, partial)
		}
		return errors.Join(err, os.RemoveAll(partial))
	})
}

// MakeSteps returns steps that run targets of the Makefile in the root of the checkout. Each
// compiles packages of a module.
func (c *Cache) MakeSteps(ctx context.Context, counted map[string]bool, targets ...MakeTarget) ([]progress.Step, error) {
	var steps []progress.Step
	for _, target := range targets {
		root := filepath.Dir(filepath.Dir(c.source))
		module := filepath.Join(root, target.Module)
		step, err := compiling(ctx, "make "+target.Name, module, []string{"CGO_ENABLED=0"}, []string{"build"}, target.Packages, counted,
			func(ctx context.Context, started func(string)) error {
				// The go command prints what it compiles. Make passes its flags on.
				return run(ctx, root, []string{"GOFLAGS=-v"}, started, "make", "-s", target.Name)
			})
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// MakeTarget is a target of the Makefile.
type MakeTarget struct {
	Name string
	// Module is the folder of the module whose packages the target compiles.
	Module   string
	Packages []string
}

// compiling returns a step that compiles and links packages. Packages that an earlier step compiles
// are in counted. The step reports each package that it compiles.
func compiling(ctx context.Context, name, module string, env, args, packages []string, counted map[string]bool,
	do func(ctx context.Context, started func(pkg string)) error,
) (progress.Step, error) {
	sizes, total, err := uncompiled(ctx, module, env, slices.Concat(args, []string{"-n", "-o", os.DevNull}, packages), counted)
	if err != nil {
		return progress.Step{}, err
	}
	expected := time.Duration(total)*time.Second/bytesPerSecond + time.Duration(len(packages))*linkTime
	var compiled atomic.Int64
	return progress.Step{
		Name: name, Expected: expected,
		// Linking follows after all packages are compiled.
		Share: func() float64 { return float64(compiled.Load()) / bytesPerSecond / expected.Seconds() },
		Run: func(ctx context.Context) error {
			return do(ctx, func(pkg string) { compiled.Add(sizes[pkg]) })
		},
	}, nil
}

// emptyFolder creates a folder for this run below parent, and removes those of interrupted runs,
// whose compilers may still be writing.
func emptyFolder(parent string) (string, error) {
	// The names of the cache have no special characters, so Glob cannot fail.
	stale, _ := filepath.Glob(filepath.Join(parent, "partial-*"))
	for _, old := range stale {
		if err := os.RemoveAll(old); err != nil {
			return "", fmt.Errorf("remove what an interrupted run left: %w", err)
		}
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("folder of programs: %w", err)
	}
	folder, err := os.MkdirTemp(parent, "partial-")
	if err != nil {
		return "", fmt.Errorf("folder of programs: %w", err)
	}
	return folder, nil
}

// moveTo moves complete programs out of the folder in which they were built.
func moveTo(built []entry, folder string) error {
	for _, e := range built {
		name := path.Base(e.pkg)
		switch e.name {
		case Etcd:
			name = "server" // The go command leaves the version out of a name.
		case CoreDNS:
			name = CoreDNS
		}
		if err := os.Rename(filepath.Join(folder, name), e.path); err != nil {
			return fmt.Errorf("put %s in place: %w", e.name, err)
		}
	}
	return nil
}

// uncompiled returns the source size of each package that a build must compile, and the total of
// those not counted yet.
func uncompiled(ctx context.Context, module string, env, args []string, counted map[string]bool) (sizes map[string]int64, total int64, err error) {
	sizes = map[string]int64{}
	err = run(ctx, module, env, func(line string) {
		command, sources, found := strings.Cut(line, " -pack ")
		_, pkg, named := strings.Cut(command, " -p ")
		if !found || !named {
			return
		}
		pkg, _, _ = strings.Cut(pkg, " ")
		var size int64
		files := strings.Fields(sources)
		for _, file := range files {
			if !filepath.IsAbs(file) {
				file = filepath.Join(module, file)
			}
			if info, err := os.Stat(file); err == nil {
				size += info.Size()
			}
		}
		sizes[pkg] = size
		if key := strings.Join(env[:1], "") + files[0]; !counted[key] {
			counted[key] = true
			total += size
		}
	}, "go", args...)
	return sizes, total, err
}

// atomically creates a file or folder under another name and renames it when it is complete, so
// that a path with the final name is always complete.
func atomically(path string, write func(partial string) error) error {
	folder, err := emptyFolder(filepath.Dir(path))
	if err != nil {
		return err
	}
	partial := filepath.Join(folder, filepath.Base(path))
	if err = write(partial); err == nil {
		err = os.Rename(partial, path)
	}
	return errors.Join(err, os.RemoveAll(folder))
}

// cgoEnvironment returns the location of libseccomp for the C compiler, so that pkg-config is not
// needed.
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

// run runs a command in a folder and passes each line of its standard error to a function.
func run(ctx context.Context, folder string, env []string, line func(string), name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	// A workspace or flags of the caller must not change the build.
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH), env...)
	cmd.Dir = folder
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	var last []byte
	for lines := bufio.NewReader(stderr); ; {
		text, err := lines.ReadString('\n')
		line(strings.TrimSuffix(text, "\n"))
		last = tail(append(last, text...))
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, last)
	}
	return nil
}

func tail(output []byte) []byte {
	return output[max(len(output)-outputLimit, 0):]
}

// makePauseImage returns a function that builds the image that keeps a pod's namespaces open.
func (c *Cache) makePauseImage(ctx context.Context) func(path string) error {
	return func(path string) error {
		binary := path + ".bin"
		err := run(ctx, c.source, []string{"CGO_ENABLED=0"}, func(string) {},
			"go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./pause")
		if err != nil {
			return err
		}
		_, err = bundle.WriteFile(bundle.Spec{
			Name: PauseImageName, Platform: bundle.HostPlatform(), Entrypoint: []string{"/pause"},
			Files: []bundle.File{{Source: binary, Path: "/pause"}},
		}, path)
		return errors.Join(err, os.Remove(binary))
	}
}
