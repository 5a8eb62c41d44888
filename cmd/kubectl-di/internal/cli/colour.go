// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"os"

	"github.com/charmbracelet/colorprofile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Palette colours phases. The zero value colours nothing.
type Palette struct{ isOn bool }

// NewPalette returns the palette of a writer: colours on a terminal, unless NO_COLOR is set.
func NewPalette(out io.Writer) Palette {
	return Palette{os.Getenv("NO_COLOR") == "" && colorprofile.Detect(out, os.Environ()) >= colorprofile.ANSI}
}

// The sequences that choose a colour.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// Phase colours a phase. Other words stay as they are.
func (p Palette) Phase(phase string) string {
	colour := ""
	switch v2alpha1.Phase(phase) {
	case v2alpha1.JobRunning, v2alpha1.JobSucceeded:
		colour = green
	case v2alpha1.JobFailed:
		colour = red
	case v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRestarting, v2alpha1.JobRescheduling, v2alpha1.JobUnknown:
		colour = yellow
	}
	if !p.isOn || colour == "" {
		return phase
	}
	return colour + phase + plain
}

// At colours the phase that begins at a column of lines.
func (p Palette) At(column int, lines []byte) []byte {
	if !p.isOn {
		return lines
	}
	var coloured bytes.Buffer
	for line := range bytes.Lines(lines) {
		if len(line) <= column {
			coloured.Write(line)
			continue
		}
		end := column + bytes.IndexAny(line[column:], " ,\n")
		if end < column {
			end = len(line)
		}
		coloured.Write(line[:column])
		coloured.WriteString(p.Phase(string(line[column:end])))
		coloured.Write(line[end:])
	}
	return coloured.Bytes()
}
