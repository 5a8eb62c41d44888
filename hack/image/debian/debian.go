// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package debian unpacks packages of Debian with all that they depend on, for images. It needs
// apt-get and dpkg-deb, but no rights of root: nothing is installed, and no script of a package runs.
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Debian12 are the sources of Debian 12, which apt-get checks by Debian's own keys.
const Debian12 = `deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main
`

// Request specifies what is unpacked.
type Request struct {
	// Sources is the content of a sources.list.
	Sources string
	// Packages are the names of packages.
	Packages []string
	// Cache is a folder for what is downloaded.
	Cache string
	// LeaveOut are patterns of paths below the root, such as usr/share/doc, that images do without.
	LeaveOut []string
}

// Unpack unpacks the packages into the folder root, which must not exist, and returns them all with
// their versions.
func Unpack(ctx context.Context, request *Request, root string) ([]Package, error) {
	if len(request.Packages) == 0 {
		return nil, errors.New("packages are empty: want at least one name of a package of Debian")
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return nil, err
	}
	packages, err := download(ctx, request)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		if _, err := tool(ctx, nil, "dpkg-deb", "--extract", filepath.Join(request.Cache, "archives", p.file()), root); err != nil {
			return nil, err
		}
	}
	return packages, leaveOut(root, request.LeaveOut)
}

// download downloads the packages and all that they depend on. apt-get sees a machine without any
// package, so the result does not depend on this machine.
func download(ctx context.Context, request *Request) ([]Package, error) {
	cache, err := filepath.Abs(request.Cache)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"archives/partial", "lists/partial"} {
		if err := os.MkdirAll(filepath.Join(cache, dir), 0o755); err != nil {
			return nil, err
		}
	}
	for name, content := range map[string]string{"sources.list": request.Sources, "status": ""} {
		if err := os.WriteFile(filepath.Join(cache, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	options := aptOptions(cache)
	if _, err := tool(ctx, nil, "apt-get", append(options, "update")...); err != nil {
		return nil, err
	}
	install := append(append(options, "install"), request.Packages...)
	plan, err := tool(ctx, nil, "apt-get", append(install, "--simulate")...)
	if err != nil {
		return nil, err
	}
	packages, err := parsePlan(plan)
	if err != nil {
		return nil, err
	}
	_, err = tool(ctx, nil, "apt-get", append(install, "--download-only")...)
	return packages, err
}

func aptOptions(cache string) []string {
	set := []string{
		"APT::Sandbox::User=root", "APT::Install-Recommends=false", "APT::Get::Assume-Yes=true", "Debug::NoLocking=true",
		"Dir::State=" + cache, "Dir::State::lists=" + filepath.Join(cache, "lists"), "Dir::State::status=" + filepath.Join(cache, "status"),
		"Dir::Cache=" + cache, "Dir::Cache::archives=" + filepath.Join(cache, "archives"),
		"Dir::Etc::sourcelist=" + filepath.Join(cache, "sources.list"), "Dir::Etc::sourceparts=/dev/null", "Dir::Etc::preferencesparts=/dev/null",
	}
	options := []string{"--quiet"}
	for _, option := range set {
		options = append(options, "-o", option)
	}
	return options
}

func leaveOut(root string, patterns []string) error {
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
		for _, path := range found {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func tool(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"), env...)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(failure.String()))
	}
	return output, nil
}

// lastLines returns the end of what a tool wrote, where the reason is.
func lastLines(text string) string {
	const most = 2000
	return text[max(0, len(text)-most):]
}
