// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
)

// These Debian packages are needed if the machine does not have them. They are unpacked into the
// cache, not installed.
const (
	// Nftables contains the program nft, which kube-proxy calls.
	Nftables = "nftables"
	// LibseccompDev contains the library that runc links.
	LibseccompDev = "libseccomp-dev"
)

// errNoApt means that a package is needed but cannot be downloaded.
var errNoApt = errors.New("apt-get and dpkg-deb are not there")

// PackageRoot returns the folder of an unpacked package.
func (c *Cache) PackageRoot(pkg string) string { return filepath.Join(c.dir, "debian-"+pkg) }

// MissingPackages returns the packages that are not installed on this machine and must be unpacked,
// whether they are cached or not.
func (c *Cache) MissingPackages() []string {
	var missing []string
	if _, err := exec.LookPath("nft"); err != nil && !exists("/usr/sbin/nft") {
		missing = append(missing, Nftables)
	}
	if !c.Has(Runc) && !exists("/usr/include/seccomp.h") {
		missing = append(missing, LibseccompDev)
	}
	return missing
}

// CheckPackages returns an error if the missing packages cannot be downloaded.
func (c *Cache) CheckPackages(pkgs []string) error {
	for _, pkg := range pkgs {
		if exists(c.PackageRoot(pkg)) {
			continue
		}
		for _, tool := range []string{"apt-get", "dpkg-deb"} {
			if _, err := exec.LookPath(tool); err != nil {
				return fmt.Errorf("package %s is needed and %w: install what it holds (nft, or libseccomp with its header and static library)", pkg, errNoApt)
			}
		}
	}
	return nil
}

// PackageSteps returns steps that unpack the packages into the cache.
func (c *Cache) PackageSteps(pkgs []string) []progress.Step {
	steps := make([]progress.Step, 0, len(pkgs))
	for _, pkg := range pkgs {
		root := c.PackageRoot(pkg)
		if exists(root) {
			continue
		}
		steps = append(steps, progress.Step{
			Name: "unpack Debian's " + pkg + " into the cache", Expected: 5 * time.Second,
			Run: func(ctx context.Context) error {
				return atomically(root, func(partial string) error { return unpack(ctx, pkg, partial) })
			},
		})
	}
	return steps
}

// unpack downloads a package with those of its dependencies that are not installed. It uses the
// machine's package lists. If they are stale or missing, it fetches a separate set.
func unpack(ctx context.Context, pkg, dir string) error {
	archives, lists := filepath.Join(dir, "archives"), filepath.Join(dir, "lists")
	for _, d := range []string{filepath.Join(archives, "partial"), filepath.Join(lists, "partial")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("folder for packages: %w", err)
		}
	}
	if err := download(ctx, pkg, archives); err != nil {
		ownLists := "Dir::State::lists=" + lists
		if err := apt(ctx, "-o", ownLists, "update"); err != nil {
			return err
		}
		if err := download(ctx, pkg, archives, "-o", ownLists); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return fmt.Errorf("look for what apt-get downloaded for %s: %w", pkg, err)
	}
	if len(debs) == 0 {
		return fmt.Errorf("apt-get downloaded nothing for %s", pkg)
	}
	for _, deb := range debs {
		if err := runTool(ctx, "dpkg-deb", "-x", deb, dir); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(archives), os.RemoveAll(lists))
}

func download(ctx context.Context, pkg, archives string, options ...string) error {
	args := slices.Concat(options, []string{"-o", "Dir::Cache::archives=" + archives, "-o", "Debug::NoLocking=1",
		"--no-install-recommends", "--download-only", "--yes", "install", pkg})
	return apt(ctx, args...)
}

func apt(ctx context.Context, args ...string) error {
	return runTool(ctx, "apt-get", append([]string{"-q", "-o", "APT::Sandbox::User=root"}, args...)...)
}

func runTool(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tail(bytes.TrimSpace(output)))
	}
	return nil
}

// NftEnvironment returns the search paths with which nft is found and runs.
func (c *Cache) NftEnvironment() []string {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	root := c.PackageRoot(Nftables)
	if !exists(root) {
		return []string{"PATH=" + system}
	}
	return []string{
		"PATH=" + filepath.Join(root, "usr/sbin") + ":" + system,
		"LD_LIBRARY_PATH=" + strings.Join(libraryDirs(root), ":"),
	}
}

// libraryDirs returns the folders with the libraries of an unpacked package.
func libraryDirs(root string) []string {
	dirs := []string{}
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
		// The pattern is well formed, so Glob cannot fail.
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		dirs = append(dirs, found...)
	}
	return dirs
}
