// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Package is a package of Debian.
type Package struct {
	Name, Version, Architecture string
}

// String returns the package as apt-get install takes it.
func (p Package) String() string { return p.Name + "=" + p.Version }

// file returns the name under which apt-get stores the package.
func (p Package) file() string {
	return fmt.Sprintf("%s_%s_%s.deb", p.Name, strings.ReplaceAll(p.Version, ":", "%3a"), p.Architecture)
}

// A line is "Inst NAME (VERSION RELEASE... [ARCHITECTURE])", with more brackets behind it.
var planned = regexp.MustCompile(`(?m)^Inst (\S+) \((\S+) [^\[\n]*\[([a-z0-9]+)\]`)

// parsePlan returns the packages of the output of apt-get install --simulate, by name.
func parsePlan(output []byte) ([]Package, error) {
	var packages []Package
	for _, found := range planned.FindAllSubmatch(output, -1) {
		packages = append(packages, Package{string(found[1]), string(found[2]), string(found[3])})
	}
	if len(packages) == 0 {
		return nil, errors.New("apt-get install --simulate names no package: want lines that begin with Inst")
	}
	slices.SortFunc(packages, func(a, b Package) int { return cmp.Compare(a.Name, b.Name) })
	return packages, nil
}
