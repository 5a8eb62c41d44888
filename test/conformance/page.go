// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"
)

const head = `# Conformance

This page lists what an installation has to do, for each lifecycle of a job, each API version and each caller. ` + "`make conformance`" + ` runs it on
the cluster that KUBECONFIG names, by public interfaces alone: kubectl, kubectl di, the API of its page, HTTP as pods call it, and the Python library. The page is
generated from ` + "`test/conformance`" + `, with ` + "`go test ./test/conformance -update`" + `. CI checks the page and runs the table.

| a cell | means |
| --- | --- |
| runs | the request succeeds and has the effect that the row names |
| refused [n] | the request is refused, and the answer has the text below the table |
| - [n] | not applicable, because of what is said below the table |

The version is that of the request: of the object that is written, or of the path at di-server. Callers *admin*, *edit* and *view* have the role of that
name in the namespace of the job only. *Pod of the job* sends its token. *Deployed client* is a program of an earlier release in a pod of the job: it
sends no token, and di-server knows it by its address.
`

// Page returns docs/conformance.md.
func Page() string {
	var page strings.Builder
	page.WriteString(head)
	counts := map[Kind]int{}
	cells := Table()
	for _, cell := range cells {
		counts[cell.Outcome().Kind]++
	}
	fmt.Fprintf(&page, "\nOf %d cells %d run, %d are refused, and %d are not applicable.\n", len(cells), counts[Runs], counts[Refused], counts[NotApplicable])
	all := Capabilities()
	for i := range all {
		writeRow(&page, &all[i])
	}
	return page.String()
}

// writeRow writes the table of a capability and its notes.
func writeRow(page *strings.Builder, capability *Capability) {
	fmt.Fprintf(page, "\n## %s\n\n", strings.ToUpper(capability.Name[:1])+capability.Name[1:])
	if capability.Checks != "" {
		fmt.Fprintf(page, "Seen afterwards: %s.\n\n", capability.Checks)
	}
	page.WriteString("| lifecycle | version |")
	for _, caller := range Callers() {
		fmt.Fprintf(page, " %s |", caller)
	}
	page.WriteString("\n|" + strings.Repeat(" --- |", len(Callers())+2) + "\n")
	var notes []Outcome
	for _, lifecycle := range Lifecycles() {
		for _, version := range Versions() {
			fmt.Fprintf(page, "| %s | %s |", lifecycle, version)
			for _, caller := range Callers() {
				outcome := Cell{capability, lifecycle, version, caller}.Outcome()
				if outcome.Kind != Runs && !slices.Contains(notes, outcome) {
					notes = append(notes, outcome)
				}
				fmt.Fprintf(page, " %s |", cellText(outcome, slices.Index(notes, outcome)+1))
			}
			page.WriteString("\n")
		}
	}
	writeNotes(page, notes)
}

func cellText(outcome Outcome, note int) string {
	switch outcome.Kind {
	case Refused:
		return fmt.Sprintf("refused [%d]", note)
	case NotApplicable:
		return fmt.Sprintf("- [%d]", note)
	case Runs:
	}
	return "runs"
}

func writeNotes(page *strings.Builder, notes []Outcome) {
	if len(notes) > 0 {
		page.WriteString("\n")
	}
	for i, note := range notes {
		if note.Kind == Refused {
			fmt.Fprintf(page, "%d. Refused: `%s`\n", i+1, note.Text)
		} else {
			fmt.Fprintf(page, "%d. Not applicable, because %s.\n", i+1, note.Text)
		}
	}
}
