// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package printing

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

// The forms of what is no object.
const (
	JSON = "json"
	YAML = "yaml"
)

// Data is -o of a command that prints what is no object.
type Data struct {
	form string
	own  []string
}

// NewData returns the flag. A command may have forms of its own.
func NewData(own ...string) *Data { return &Data{own: own} }

// Bind adds the flag to a command's, which says what is printed.
func (d *Data) Bind(command *cobra.Command, what string) {
	command.Flags().StringVarP(&d.form, "output", "o", "", what+" in this form: "+strings.Join(d.forms(), ", "))
	// It fails only where there is no such flag, which was added above.
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(d.forms(), cobra.ShellCompDirectiveNoFileComp))
}

func (d *Data) forms() []string { return append([]string{JSON, YAML}, d.own...) }

// Check says what is wrong with the flag.
func (d *Data) Check() error {
	if d.form != "" && !slices.Contains(d.forms(), d.form) {
		return exit.Usagef("-o %q: want one of %s", d.form, strings.Join(d.forms(), ", "))
	}
	return nil
}

// Form is what -o says.
func (d *Data) Form() string { return d.form }

// IsText reports whether the output is for people.
func (d *Data) IsText() bool { return d.form == "" }

// Print prints a value as -o says, as JSON where it says nothing.
func (d *Data) Print(out io.Writer, value any) error {
	var content strings.Builder
	encoder := json.NewEncoder(&content)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("encoding what is printed: %w", err)
	}
	printed := []byte(content.String())
	if d.form == YAML {
		var err error
		if printed, err = yaml.JSONToYAML(printed); err != nil {
			return fmt.Errorf("encoding what is printed: %w", err)
		}
	}
	_, err := out.Write(printed)
	return err
}
