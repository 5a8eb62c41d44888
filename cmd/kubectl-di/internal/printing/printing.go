// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printing prints objects in the forms that kubectl's -o knows.
package printing

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

// Flags are -o and what goes with it.
type Flags struct {
	print *genericclioptions.PrintFlags
	own   []string
}

// New returns the flags. Without -o an object is printed by its name and what
// was done to it. A command may have forms of its own.
func New(done string, own ...string) *Flags {
	return &Flags{print: genericclioptions.NewPrintFlags(done), own: own}
}

// Bind adds the flags to a command's.
func (f *Flags) Bind(command *cobra.Command) {
	f.print.JSONYamlPrintFlags.AddFlags(command)
	f.print.TemplatePrinterFlags.AddFlags(command)
	for flag, usage := range map[string]string{
		"show-managed-fields":         "keep managedFields in json and yaml",
		"template":                    "template, or file of one, of go-template and jsonpath",
		"allow-missing-template-keys": "let templates name what is not there",
	} {
		command.Flags().Lookup(flag).Usage = usage
	}
	command.Flags().StringVarP(f.print.OutputFormat, "output", "o", "", "form of the output: "+strings.Join(f.forms(), ", "))
	f.print.OutputFlagSpecified = func() bool { return command.Flag("output").Changed }
	allowed := f.forms()
	// It fails only where there is no such flag, which was added above.
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// forms are what -o may be.
func (f *Flags) forms() []string {
	return slices.Concat(f.own, f.print.AllowedFormats())
}

// Form is what -o says.
func (f *Flags) Form() string { return *f.print.OutputFormat }

// IsText reports whether the output is for people.
func (f *Flags) IsText() bool {
	return f.Form() == "" && !f.hasTemplate() || slices.Contains(f.own, f.Form())
}

// hasTemplate reports whether --template says what the output is.
func (f *Flags) hasTemplate() bool {
	template := f.print.TemplatePrinterFlags.TemplateArgument
	return template != nil && *template != ""
}

// Printer returns what prints in the form that is asked for; a suffix goes
// behind what was done.
func (f *Flags) Printer(suffix string) (printers.ResourcePrinter, error) {
	if suffix != "" {
		if err := f.print.Complete("%s " + suffix); err != nil {
			return nil, exit.With(exit.Usage, err)
		}
	}
	printer, err := f.print.ToPrinter()
	switch {
	case genericclioptions.IsNoCompatiblePrinterError(err):
		return nil, exit.Usagef("-o %q: want one of %s", f.Form(), strings.Join(f.forms(), ", "))
	case err != nil:
		return nil, exit.Usagef("-o %q: %w", f.Form(), err)
	}
	return printer, nil
}
