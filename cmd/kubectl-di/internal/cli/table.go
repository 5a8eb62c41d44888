// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/cli-runtime/pkg/printers"
)

// Table contains the rows of a list, or of a part of a page.
type Table [][]string

// Add adds a row with a title, unless its text is empty.
func (t *Table) Add(title, text string) {
	if text != "" {
		*t = append(*t, []string{title, text})
	}
}

// Write writes the rows in columns with an indent. The text of a title may have several lines, below each other;
// other cells have one. None has control sequences.
func (t *Table) Write(out *bytes.Buffer, indent string) {
	var text strings.Builder
	aligned := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range *t {
		last := len(row) - 1
		for i, cell := range row[:last] {
			row[i] = printers.EscapeTerminal(OneLine(cell))
		}
		lines := []string{OneLine(row[last])}
		if last == 1 {
			lines = linesOf(row[last])
		}
		for i, line := range lines {
			if i > 0 {
				clear(row[:last])
			}
			row[last] = printers.EscapeTerminal(line)
			fmt.Fprintln(aligned, indent+strings.Join(row, "\t"))
		}
	}
	_ = aligned.Flush() // A buffer returns no error.
	// Empty cells at the end keep the columns of other rows aligned.
	for line := range strings.Lines(text.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// linesOf returns the lines of a text that are not empty, at least one. They keep their indents, without tabs.
func linesOf(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", "\n"), "\n") {
		if line = strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), " "); line != "" {
			lines = append(lines, line)
		}
	}
	switch len(lines) {
	case 0:
		return []string{""}
	case 1:
		return []string{OneLine(lines[0])}
	}
	return lines
}

// OneLine returns the words of a text on one line.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Lines writes rows as they come, in the columns of the first ones.
type Lines struct {
	Out io.Writer
	// Column is the header of the column of phases, which are coloured.
	Column string

	widths []int
	at     int
}

// Write writes rows. The first ones begin with the header.
func (l *Lines) Write(rows Table) error {
	if l.widths == nil {
		l.widths = make([]int, len(rows[0]))
		for _, row := range rows {
			for i, cell := range row {
				l.widths[i] = max(l.widths[i], len([]rune(OneLine(cell))))
			}
		}
		for i, cell := range rows[0] {
			if cell == l.Column {
				break
			}
			l.at += l.widths[i] + 2
		}
	}
	var text strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", l.widths[i], printers.EscapeTerminal(OneLine(cell)))
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := l.Out.Write(NewPalette(l.Out).At(l.at, []byte(text.String())))
	return err
}
