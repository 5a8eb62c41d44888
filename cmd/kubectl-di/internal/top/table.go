// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"slices"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// table consists of rows of cells below a header. If it is too wide it omits columns, those of the
// highest rank first.
type table struct {
	header []string
	// ranks are the ranks of the columns; a column of rank 0 is never omitted.
	ranks []int
	// isLong reports whether the last column is truncated before others are omitted.
	isLong bool
	count  int
	// row returns the cells of a row; it is called for visible rows only.
	row func(at int) []string
}

const gap = "  "

// longEnough is the minimum width of a long column before others are omitted.
const longEnough = 24

// lines returns the header and the rows from an index on that fit.
func (t *table) lines(width, from, rows int) (header string, body []string) {
	cells := [][]string{t.header}
	for at := from; at < min(t.count, from+rows); at++ {
		cells = append(cells, t.row(at))
	}
	widths := t.fit(cells, width)
	drawn := make([]string, 0, len(cells))
	for _, row := range cells {
		drawn = append(drawn, draw(row, widths, width))
	}
	return drawn[0], drawn[1:]
}

// fit returns the widths of the columns; -1 for an omitted one.
func (t *table) fit(cells [][]string, width int) []int {
	widths := make([]int, len(t.header))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(clean(cell)))
		}
	}
	if last := len(widths) - 1; t.isLong {
		widths[last] = min(widths[last], longEnough)
	}
	for total(widths) > width {
		worst := slices.Index(t.ranks, 0)
		for i, rank := range t.ranks {
			if widths[i] >= 0 && rank > t.ranks[worst] {
				worst = i
			}
		}
		if t.ranks[worst] == 0 {
			break
		}
		widths[worst] = -1
	}
	return widths
}

func total(widths []int) int {
	sum := -len(gap)
	for _, width := range widths {
		if width >= 0 {
			sum += width + len(gap)
		}
	}
	return sum
}

func draw(row []string, widths []int, width int) string {
	var drawn strings.Builder
	for i, cell := range row {
		if widths[i] < 0 {
			continue
		}
		cell = clean(cell)
		drawn.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell))) + gap)
	}
	return ansi.Truncate(strings.TrimRight(drawn.String(), " "), width, "…")
}

// clean removes control sequences, because messages and reports are untrusted.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text)
}
