// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
)

// Spec is a daemon that should run.
type Spec struct {
	// Name is the name of the log and the pid file.
	Name string
	// Program is the path of the executable.
	Program string
	Args    []string
	// Env is added to an otherwise empty environment.
	Env []string
	// Inputs are the contents of files that the daemon reads at start, so that a change of one
	// restarts it.
	Inputs []string
}

// Fingerprint returns equal strings exactly for daemons that would run in the same way.
func (s Spec) Fingerprint() string {
	h := sha256.New()
	for _, parts := range [][]string{{s.Name, s.Program}, s.Args, s.Env, s.Inputs} {
		// Writing to a hash never fails.
		_, _ = fmt.Fprintf(h, "%d %q\n", len(parts), parts)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Decide reports whether a daemon runs according to its specification, and returns its running
// processes.
func Decide(spec Spec, running []Process) (keep bool, mine []Process) {
	mine = Of(spec, running)
	return len(mine) == 1 && mine[0].Fingerprint == spec.Fingerprint(), mine
}

// Of returns the processes that are the daemon itself, not its children.
func Of(spec Spec, running []Process) []Process {
	return slices.DeleteFunc(slices.Clone(running), func(p Process) bool {
		return p.Name != spec.Name || p.Program != filepath.Base(spec.Program)
	})
}
