// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"slices"
	"strings"
)

// Path is a path in an object: member names and, in decimal, array indexes.
type Path []string

// Child returns the path extended by the steps.
func (p Path) Child(steps ...string) Path {
	return slices.Concat(p, steps)
}

// Below returns the path relative to another path, and whether that path is equal to this one or
// above it.
func (p Path) Below(above Path) (Path, bool) {
	if len(p) < len(above) || !slices.Equal(p[:len(above)], above) {
		return nil, false
	}
	return p[len(above):], true
}

// String returns the path in the notation of Kubernetes' messages.
func (p Path) String() string {
	var out strings.Builder
	for _, step := range p {
		switch {
		case isIndex(step), strings.ContainsAny(step, "./"):
			out.WriteString("[" + step + "]")
		case out.Len() > 0:
			out.WriteString("." + step)
		default:
			out.WriteString(step)
		}
	}
	return out.String()
}

func isIndex(step string) bool {
	return step != "" && strings.Trim(step, "0123456789") == ""
}
