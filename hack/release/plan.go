// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// checkVersion accepts versions that are valid as a Git tag, an image tag and a chart version.
func checkVersion(version string) error {
	const want = "want vMAJOR.MINOR.PATCH, such as v2.0.0 or v2.0.0-rc.1"
	switch {
	case version == "":
		return errors.New("is empty: " + want)
	case semver.Build(version) != "":
		return fmt.Errorf("%q has build metadata (%s), which image tags cannot have: %s", version, semver.Build(version), want)
	case semver.Canonical(version) != version || !semver.IsValid(version):
		return fmt.Errorf("%q is no semantic version: %s", version, want)
	}
	return nil
}

// chartVersion returns the version for charts: without the v.
func chartVersion(version string) string { return strings.TrimPrefix(version, "v") }

// platform is the target platform of a build.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// program is one program of the release.
type program struct {
	// name is the name of the binary, of its image and of its archives.
	name string
	// folder is the folder of its package, relative to the root of the checkout.
	folder string
	// title describes the program in one line.
	title string
	// image is set if the program has an image.
	image bool
	// archive is set if the program has archives for users.
	archive bool
}

func programs() []program {
	return []program{
		{name: "di-orchestrator", folder: "cmd/di-orchestrator", title: "Operator and server of DI Orchestrator", image: true},
		{name: "cartpole", folder: "test/workload/cartpole", title: "Example of a training program for DI Orchestrator", image: true},
		{name: "kubectl-di", folder: "cmd/kubectl-di", title: "Plugin of kubectl for DI Orchestrator", image: true, archive: true},
	}
}

func platforms() []platform {
	var all []platform
	for _, os := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, platform{os, arch})
		}
	}
	return all
}

// choose returns the named platforms in their original order, or all if none is named.
func choose(all []platform, named []string) ([]platform, error) {
	if len(named) == 0 {
		return all, nil
	}
	var known []string
	var chosen []platform
	for _, platform := range all {
		known = append(known, platform.String())
		if slices.Contains(named, platform.String()) {
			chosen = append(chosen, platform)
		}
	}
	for _, name := range named {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q: want one of %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// binary is one program for one platform.
type binary struct {
	program  program
	platform platform
}

// file returns the name of the program's file.
func (b binary) file() string {
	if b.platform.os == "windows" {
		return b.program.name + ".exe"
	}
	return b.program.name
}

// stem returns the common prefix of all artifacts of the binary.
func (b binary) stem(version string) string {
	return fmt.Sprintf("%s_%s_%s_%s", b.program.name, version, b.platform.os, b.platform.arch)
}

// archive returns the name of the archive for users.
func (b binary) archive(version string) string {
	if b.platform.os == "windows" {
		return b.stem(version) + ".zip"
	}
	return b.stem(version) + ".tar.gz"
}

// binaries returns all binaries to compile. Images exist for Linux only.
func binaries(programs []program, platforms []platform) []binary {
	var all []binary
	for _, program := range programs {
		for _, platform := range platforms {
			if program.archive || platform.os == "linux" {
				all = append(all, binary{program, platform})
			}
		}
	}
	return all
}
