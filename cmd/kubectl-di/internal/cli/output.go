// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// enum is a flag with a fixed set of values.
type enum struct {
	value   *string
	allowed []string
}

// String implements pflag.Value.
func (e enum) String() string { return *e.value }

// Type implements pflag.Value.
func (e enum) Type() string { return "string" }

// Set implements pflag.Value.
func (e enum) Set(value string) error {
	if !slices.Contains(e.allowed, value) {
		return errors.New("want one of " + strings.Join(e.allowed, ", "))
	}
	*e.value = value
	return nil
}

// Enum adds a flag with a fixed set of values, and completes them. The default may be another
// value.
func Enum(command *cobra.Command, value *string, name, shorthand, initial, usage string, allowed ...string) {
	*value = initial
	command.Flags().VarP(enum{value, allowed}, name, shorthand, usage)
	// It fails only for a flag that does not exist.
	_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// WrongFlag returns the error of a flag that cannot be parsed.
func WrongFlag(command *cobra.Command, err error) error {
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		err = fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return Usagef("%w\nsee %s --help", err, command.CommandPath())
}

// Data is the flag -o of a command whose output is not an object.
type Data struct{ Form string }

// Bind adds the flag. A command may have formats beside json and yaml.
func (d *Data) Bind(command *cobra.Command, what string, own ...string) {
	forms := append([]string{"json", "yaml"}, own...)
	Enum(command, &d.Form, "output", "o", "", what+" in this form: "+strings.Join(forms, ", "), forms...)
}

// IsText reports whether the output is plain text.
func (d *Data) IsText() bool { return d.Form == "" }

// Print prints a value in the format of -o; the default is JSON.
func (d *Data) Print(out io.Writer, value any) error {
	var content strings.Builder
	encoder := json.NewEncoder(&content)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	printed := []byte(content.String())
	if d.Form == "yaml" {
		var err error
		if printed, err = yaml.JSONToYAML(printed); err != nil {
			return fmt.Errorf("encoding the output: %w", err)
		}
	}
	_, err := out.Write(printed)
	return err
}

// Objects are the flags of a command that changes objects and prints them: --dry-run, and kubectl's
// print flags.
type Objects struct {
	printers.ResourcePrinter
	dryRun string
	isSaid bool
	flags  *genericclioptions.PrintFlags
}

// BindObjects adds the flags. The default output is the object's name and the operation.
func BindObjects(command *cobra.Command, done string) *Objects {
	o := &Objects{flags: genericclioptions.NewPrintFlags(done)}
	forms := o.flags.AllowedFormats()
	Enum(command, &o.dryRun, "dry-run", "", "none", "none, client (only print the objects) or server (have the API server try it)", "none",
		"client", "server")
	o.flags.JSONYamlPrintFlags.AddFlags(command)
	o.flags.TemplatePrinterFlags.AddFlags(command)
	for flag, usage := range map[string]string{
		"show-managed-fields":         "keep managedFields in json and yaml",
		"template":                    "template, or file of one, for go-template and jsonpath",
		"allow-missing-template-keys": "let templates name keys that are missing",
	} {
		command.Flags().Lookup(flag).Usage = usage
	}
	command.Flags().StringVarP(o.flags.OutputFormat, "output", "o", "", "form of the output: "+strings.Join(forms, ", "))
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
	o.flags.OutputFlagSpecified = func() bool { return command.Flag("output").Changed }
	Before(command, o.complete)
	return o
}

// Say sets what the output says of an object instead of the default, which names the dry run.
func (o *Objects) Say(done string) {
	o.flags.NamePrintFlags.Operation, o.isSaid = done, true
}

// complete creates the printer.
func (o *Objects) complete() (err error) {
	if suffix := map[string]string{"client": "(dry run)", "server": "(server dry run)"}[o.dryRun]; suffix != "" && !o.isSaid {
		if err := o.flags.Complete("%s " + suffix); err != nil {
			return With(Usage, err)
		}
	}
	o.ResourcePrinter, err = o.flags.ToPrinter()
	switch {
	case genericclioptions.IsNoCompatiblePrinterError(err):
		return Usagef("--output %q: want one of %s", *o.flags.OutputFormat, strings.Join(o.flags.AllowedFormats(), ", "))
	case err != nil:
		return Usagef("--output %q: %w", *o.flags.OutputFormat, err)
	}
	return nil
}

// IsReal reports whether the change is made.
func (o *Objects) IsReal() bool { return o.dryRun == "none" }

// IsLocal reports whether the change is not sent to the API server, not even as a dry run.
func (o *Objects) IsLocal() bool { return o.dryRun == "client" }

// IsText reports whether the output is plain text.
func (o *Objects) IsText() bool {
	template := o.flags.TemplatePrinterFlags.TemplateArgument
	return *o.flags.OutputFormat == "" && (template == nil || *template == "")
}
