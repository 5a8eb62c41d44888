// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"opendilab.org/di-orchestrator/upgrade/crds"
)

// Print writes the report in a readable form.
func (r *Report) Print(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Kubernetes %s, namespace %s\n", r.Server, r.Namespace)
	fmt.Fprintln(&text, r.found())
	r.tables(&text)
	for _, severity := range []Severity{Stop, Warning, Note} {
		r.list(&text, severity)
	}
	if r.Fine && len(r.Steps) > 0 {
		fmt.Fprint(&text, "\nAn installation would do this, in this order:\n")
		for i, step := range r.Steps {
			fmt.Fprintf(&text, "  %d. %s\n", i+1, step)
		}
	}
	fmt.Fprintf(&text, "\n%s Nothing was changed.\n", r.conclusion())
	_, err := io.WriteString(out, text.String())
	return err
}

func (r *Report) found() string {
	switch r.Release {
	case crds.OriginNone:
		return "Found: no installation"
	case crds.OriginOurs:
		return "Found: an installation of this program"
	case crds.OriginUnknown:
		return "Found: definitions of an unknown release"
	default:
		return "Found: what " + string(r.Release) + " has installed"
	}
}

// tables writes the tables of what was observed.
func (r *Report) tables(text *strings.Builder) {
	if len(r.Definitions) > 0 {
		rows := []string{"DEFINITION\tOF\tVERSIONS\tSTORED AS\tSTORED SO FAR AS"}
		for i := range r.Definitions {
			found := &r.Definitions[i]
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", found.Name, found.Origin, strings.Join(found.Versions, ", "), found.Storage, strings.Join(found.Stored, ", ")))
		}
		table(text, rows)
	}
	if len(r.Deployments) > 0 {
		rows := []string{"DEPLOYMENT\tIMAGE\tREPLICAS"}
		for i := range r.Deployments {
			found := &r.Deployments[i]
			rows = append(rows, fmt.Sprintf("%s/%s\t%s\t%d", found.Namespace, found.Name, found.Image, found.Replicas))
		}
		table(text, rows)
	}
	if len(r.Objects) > 0 {
		rows := []string{"KIND\tVERSION\tOBJECTS"}
		for _, count := range r.Objects {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%d", count.Kind, count.Version, count.Objects))
		}
		table(text, rows)
	}
}

func table(text *strings.Builder, rows []string) {
	aligned := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(aligned, "\n%s\n", strings.Join(rows, "\n"))
	// Writes to a strings.Builder never fail.
	_ = aligned.Flush()
}

// list writes the findings of a severity.
func (r *Report) list(text *strings.Builder, severity Severity) {
	heading := map[Severity]string{Stop: "This stops an installation", Warning: "Warnings", Note: "Notes"}[severity]
	count := r.Count(severity)
	if count == 0 {
		return
	}
	fmt.Fprintf(text, "\n%s (%d):\n", heading, count)
	for i := range r.Findings {
		found := &r.Findings[i]
		if found.Severity != severity {
			continue
		}
		text.WriteString("  ")
		if found.Object != "" {
			text.WriteString(found.Object + ": ")
		}
		text.WriteString(found.Message)
		if found.Do != "" {
			text.WriteString("\n    " + found.Do)
		}
		text.WriteString("\n")
	}
}

func (r *Report) conclusion() string {
	if r.Fine {
		return "Nothing stops an installation."
	}
	return "An installation must not begin."
}
