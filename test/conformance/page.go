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
generated from ` + "`test/conformance`" + `, with ` + "`go test ./test/conformance -update`" + `. CI checks the page and runs the table without role admin, which
has all rules of role edit.

| a cell | means |
| --- | --- |
| runs | the request succeeds and has the effect that the row names |
| refused [n] | the request is refused, and the answer has the text of note n |
| - [n] | not applicable, because of what note n says |

The version is that of the request: of the object that is written, or of the path at di-server. Callers *admin*, *edit* and *view* have the role of that
name in the namespace of the job only. *Pod of the job* sends its token. *Deployed client* is a program of an earlier release in a pod of the job: it
sends no token, and di-server knows it by its address. A table without these two is about requests to
the API server, which programs in pods never call.
`

// Page returns docs/conformance.md.
func Page() (string, error) {
	engine, err := DIEngine()
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(head)
	counts := map[Kind]int{}
	cells := Table()
	for _, cell := range cells {
		counts[cell.Outcome().Kind]++
	}
	fmt.Fprintf(&page, "\nOf %d cells %d run, %d are refused, and %d are not applicable.\n", len(cells), counts[Runs], counts[Refused], counts[NotApplicable])
	all, explained := Capabilities(), &notes{}
	for i := range all {
		writeTable(&page, &all[i], explained)
	}
	explained.write(&page)
	writeEngine(&page, engine)
	return page.String(), nil
}

// writeTable writes the table of a capability. Versions with the same cells share a row, and callers who
// never send such a request have no column.
func writeTable(page *strings.Builder, capability *Capability, explained *notes) {
	fmt.Fprintf(page, "\n## %s\n\n", strings.ToUpper(capability.Name[:1])+capability.Name[1:])
	if capability.Checks != "" {
		fmt.Fprintf(page, "Seen afterwards: %s.\n\n", capability.Checks)
	}
	page.WriteString("| lifecycle | version |")
	callers := callersOf(capability)
	for _, caller := range callers {
		fmt.Fprintf(page, " %s |", caller)
	}
	page.WriteString("\n|" + strings.Repeat(" --- |", len(callers)+2) + "\n")
	for _, lifecycle := range Lifecycles() {
		var versions []string
		var last string
		for _, version := range Versions() {
			cells := cellsOf(capability, lifecycle, version, callers, explained)
			if len(versions) > 0 && cells != last {
				fmt.Fprintf(page, "| %s | %s |%s\n", lifecycle, strings.Join(versions, ", "), last)
				versions = nil
			}
			versions, last = append(versions, string(version)), cells
		}
		fmt.Fprintf(page, "| %s | %s |%s\n", lifecycle, strings.Join(versions, ", "), last)
	}
}

// callersOf returns the callers without those for whom the whole table is that they call di-server only.
func callersOf(capability *Capability) []Caller {
	return slices.DeleteFunc(Callers(), func(caller Caller) bool {
		for _, lifecycle := range Lifecycles() {
			for _, version := range Versions() {
				if (Cell{capability, lifecycle, version, caller}).Outcome() != fromOutside.outcome {
					return false
				}
			}
		}
		return true
	})
}

// cellsOf returns the cells of the callers.
func cellsOf(capability *Capability, lifecycle Lifecycle, version Version, callers []Caller, explained *notes) string {
	var cells strings.Builder
	for _, caller := range callers {
		outcome := Cell{capability, lifecycle, version, caller}.Outcome()
		fmt.Fprintf(&cells, " %s |", cellText(outcome, explained.number(outcome)))
	}
	return cells.String()
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

// notes are the outcomes that the end of the page explains.
type notes []Outcome

// number returns the number of an outcome's note, from 1; 0 for a cell that runs.
func (n *notes) number(outcome Outcome) int {
	if outcome.Kind != Runs && !slices.Contains(*n, outcome) {
		*n = append(*n, outcome)
	}
	return slices.Index(*n, outcome) + 1
}

func (n *notes) write(page *strings.Builder) {
	page.WriteString("\n## Notes\n\n")
	for i, note := range *n {
		if note.Kind == Refused {
			fmt.Fprintf(page, "%d. Refused: `%s`\n", i+1, note.Text)
		} else {
			fmt.Fprintf(page, "%d. Not applicable, because %s.\n", i+1, note.Text)
		}
	}
}
