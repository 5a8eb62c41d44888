// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/mod/modfile"
)

// pins are the files that decide what is built, and the platform.
type pins struct {
	goMod, goSum []byte
	// source is the main.go beside the go.mod, where there is one.
	source   []byte
	platform string
}

// kubernetesVersionFlags gives Kubernetes the version it otherwise takes from
// its release scripts; without it the programs call themselves v0.0.0.
func kubernetesVersionFlags(version string) string {
	const variable = "-X k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return strings.Join([]string{
		variable + "gitVersion=" + version, variable + "gitMajor=" + major, variable + "gitMinor=" + minor,
		variable + "gitTreeState=clean",
	}, " ")
}

// moduleVersion reads the version of a required module out of a go.mod.
func moduleVersion(goMod []byte, module string) (string, error) {
	parsed, err := modfile.Parse("go.mod", goMod, nil)
	if err != nil {
		return "", fmt.Errorf("parse go.mod: %w", err)
	}
	for _, require := range parsed.Require {
		if require.Mod.Path == module {
			return require.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s", module)
}

// ldflags are the linker flags of a component.
func (c component) ldflags(version string) string {
	flags := "-s -w"
	if c.versionFlags != nil {
		flags += " " + c.versionFlags(version)
	}
	if c.cgo {
		flags += ` -extldflags "-static"`
	}
	return flags
}

// fingerprint is the same exactly if the same would be built. The version of
// the Go toolchain is left out on purpose: a newer toolchain is no reason to
// build everything again.
func (c component) fingerprint(p pins, version string) string {
	h := sha256.New()
	parts := [][]byte{p.goMod, p.goSum, []byte(p.platform), []byte(c.ldflags(version)), []byte(c.tags), []byte(strings.Join(c.files, " "))}
	if p.source != nil {
		parts = append(parts, p.source)
	}
	for _, part := range parts {
		// The length keeps parts from running into each other. Writing to a hash never fails.
		_, _ = fmt.Fprintf(h, "%d:", len(part))
		_, _ = h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
