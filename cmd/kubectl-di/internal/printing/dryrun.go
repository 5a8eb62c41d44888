// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package printing

import (
	"slices"

	"github.com/spf13/pflag"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// DryRun is --dry-run.
type DryRun struct{ mode string }

// Bind adds the flag to a command's, by which something would be done.
func (d *DryRun) Bind(flags *pflag.FlagSet, done string) {
	flags.StringVar(&d.mode, "dry-run", dryRunNone, "none, client (only say what would be "+done+") or server (try it without storing it)")
}

// Check says what is wrong with the flag.
func (d *DryRun) Check() error {
	if !slices.Contains([]string{dryRunNone, dryRunClient, dryRunServer}, d.mode) {
		return exit.Usagef("--dry-run %q: want none, client or server", d.mode)
	}
	return nil
}

// IsReal reports whether the change is made.
func (d *DryRun) IsReal() bool { return d.mode == dryRunNone }

// IsSaid reports whether it is only to be said.
func (d *DryRun) IsSaid() bool { return d.mode == dryRunClient }

// Suffix is what goes behind what was done.
func (d *DryRun) Suffix() string {
	return map[string]string{dryRunClient: "(dry run)", dryRunServer: "(server dry run)"}[d.mode]
}
