// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package picture draws what a command printed on a terminal as the SVG pictures of the docs. Tests
// that print it compare the pictures, so that none is older than its command.
package picture

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// The size of a character, and the margins, in pixels.
const (
	charWidth, lineHeight, fontSize = 8.4, 19, 14
	margin, titleBar                = 16, 34
)

// style has the colours of light and of dark pages. Classes are named after the parameters of the
// escape sequences that select them.
const style = `svg{--ground:#fff;--bar:#f0f2f5;--edge:#d0d7de;--ink:#1f2328;--faint:#656d76;--red:#c4212b;--green:#1a7f37;--yellow:#8a5a00;--blue:#0958c4;--magenta:#7d3fc8;--cyan:#0f6e7a}
@media(prefers-color-scheme:dark){svg{--ground:#0d1117;--bar:#161b22;--edge:#30363d;--ink:#e6edf3;--faint:#8b949e;--red:#ff7b72;--green:#56d364;--yellow:#e3b341;--blue:#79c0ff;--magenta:#d2a8ff;--cyan:#76e3ea}}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink);white-space:pre}
.s1{font-weight:700}.s2,.title{fill:var(--faint)}.s7{text-decoration:underline;font-weight:700}.s31,.s91{fill:var(--red)}.s32,.s92{fill:var(--green)}.s33,.s93{fill:var(--yellow)}.s34,.s94{fill:var(--blue)}.s35,.s95{fill:var(--magenta)}.s36,.s96{fill:var(--cyan)}`

// Check compares the picture of a command's output with docs/images/NAME.svg. With update it writes
// the picture. Several outputs follow each other, as of a command that redraws its screen.
func Check(t *testing.T, update bool, name, command string, outputs ...string) {
	t.Helper()
	path := filepath.Join(testkit.Root(), "docs", "images", name+".svg")
	got := Draw(command, outputs...)
	if update {
		expect.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	expect.NoError(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/images/%s.svg is out of date, run: make pictures (-want +got):\n%s", name, diff)
	}
}

// frameSeconds is how long a picture shows each of several outputs.
const frameSeconds = 2

// Draw returns the SVG of a command and its outputs. Its text can be selected.
func Draw(command string, outputs ...string) []byte {
	columns, rows := ansi.StringWidth(command)+4, 0
	for _, output := range outputs {
		lines := linesOf(output)
		rows = max(rows, len(lines))
		for _, line := range lines {
			columns = max(columns, ansi.StringWidth(line))
		}
	}
	width := int(float64(columns)*charWidth) + 2*margin
	height := titleBar + (rows+1)*lineHeight

	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, escaped("$ "+command))
	fmt.Fprintf(&svg, "<style>%s%s</style>\n", style, moving(len(outputs)))
	fmt.Fprintf(&svg, `<rect x=".5" y=".5" width="%d" height="%d" rx="8" fill="var(--ground)" stroke="var(--edge)"/>`+"\n", width-1, height-1)
	fmt.Fprintf(&svg, `<path d="M1 %d V8 a7 7 0 0 1 7 -7 H%d a7 7 0 0 1 7 7 V%d Z" fill="var(--bar)"/>`+"\n", titleBar-8, width-8, titleBar-8)
	fmt.Fprintf(&svg, `<text class="title" x="%d" y="%d">%s</text>`+"\n", margin, titleBar-15, escaped("$ "+command))
	for i, output := range outputs {
		if len(outputs) > 1 {
			fmt.Fprintf(&svg, `<g class="frame" style="animation-delay:%ds">`+"\n", i*frameSeconds)
		}
		drawLines(&svg, linesOf(output))
		if len(outputs) > 1 {
			svg.WriteString("</g>\n")
		}
	}
	svg.WriteString("</svg>\n")
	return []byte(svg.String())
}

func linesOf(output string) []string { return strings.Split(strings.TrimRight(output, "\n"), "\n") }

// moving returns the style of several frames, one of which is seen at a time. Who prefers less motion sees the last one.
func moving(frames int) string {
	if frames < 2 {
		return ""
	}
	return fmt.Sprintf(`
.frame{visibility:hidden;animation:frame %ds step-end infinite}@keyframes frame{0%%{visibility:visible}%.3f%%{visibility:hidden}}
@media(prefers-reduced-motion:reduce){.frame{animation:none}.frame:last-of-type{visibility:visible}}`, frames*frameSeconds, 100/float64(frames))
}

func drawLines(svg *strings.Builder, lines []string) {
	for i, line := range lines {
		if line = strings.TrimRight(line, " "); line == "" {
			continue
		}
		// The length keeps columns aligned in every font.
		fmt.Fprintf(svg, `<text x="%d" y="%d" textLength="%.1f" xml:space="preserve">%s</text>`+"\n",
			margin, titleBar+fontSize+i*lineHeight, float64(ansi.StringWidth(line))*charWidth, spans(line))
	}
}

// spans returns the parts of a line with the classes of their escape sequences.
func spans(line string) string {
	var out strings.Builder
	var classes []string
	at := 0
	write := func(text string) {
		switch text = escaped(ansi.Strip(text)); {
		case text == "":
		case len(classes) == 0:
			out.WriteString(text)
		default:
			fmt.Fprintf(&out, `<tspan class="%s">%s</tspan>`, strings.Join(classes, " "), text)
		}
	}
	for _, found := range regexp.MustCompile("\x1b\\[([0-9;]*)m").FindAllStringSubmatchIndex(line, -1) {
		write(line[at:found[0]])
		at = found[1]
		classes = after(classes, line[found[2]:found[3]])
	}
	write(line[at:])
	return out.String()
}

// after returns the classes after an escape sequence with these parameters.
func after(classes []string, parameters string) []string {
	for parameter := range strings.SplitSeq(parameters, ";") {
		if parameter == "" || parameter == "0" {
			classes = nil
			continue
		}
		classes = append(classes, "s"+parameter)
	}
	return classes
}

func escaped(text string) string {
	var out strings.Builder
	// A strings.Builder returns no error.
	_ = xml.EscapeText(&out, []byte(text))
	return out.String()
}
