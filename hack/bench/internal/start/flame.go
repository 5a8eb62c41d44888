// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package start

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
)

// The sizes of a flame graph, in pixels.
const (
	flameWidth  = 1200.0
	flameRow    = 17
	letterWidth = 6.5
	// thinnest is the width below which a function is not drawn.
	thinnest = 0.5
)

// frame is a function called by a stack, with the processor time of it and of all that it calls.
type frame struct {
	name  string
	value int64
	calls map[string]*frame
}

// call adds processor time to a called function.
func (f *frame) call(name string, value int64) *frame {
	called := f.calls[name]
	if called == nil {
		called = &frame{name: name, calls: map[string]*frame{}}
		f.calls[name] = called
	}
	called.value += value
	return called
}

// depth returns how many calls lie on each other.
func (f *frame) depth() int {
	deepest := 0
	for _, called := range f.calls {
		deepest = max(deepest, called.depth())
	}
	return deepest + 1
}

// mergeStacks merges the stacks of a processor profile into a tree.
func mergeStacks(recorded *profile.Profile) *frame {
	root := &frame{name: "all", calls: map[string]*frame{}}
	for _, sample := range recorded.Sample {
		// The last value is processor time, and the first location the innermost.
		value := sample.Value[len(sample.Value)-1]
		root.value += value
		in := root
		for _, location := range slices.Backward(sample.Location) {
			for _, line := range slices.Backward(location.Line) {
				in = in.call(line.Function.Name, value)
			}
		}
	}
	return root
}

// drawFlames writes the flame graph of a processor profile beside it, as an SVG without scripts.
func drawFlames(recorded string) (err error) {
	in, err := os.Open(filepath.Clean(recorded))
	if err != nil {
		return fmt.Errorf("flame graph: %w", err)
	}
	parsed, err := profile.Parse(in)
	if err = errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("flame graph of %s: %w", recorded, err)
	}
	out, err := os.Create(filepath.Clean(strings.TrimSuffix(recorded, filepath.Ext(recorded)) + ".svg"))
	if err != nil {
		return fmt.Errorf("flame graph: %w", err)
	}
	defer harness.Close(&err, out.Close)
	buffered := bufio.NewWriter(out)
	writeFlames(buffered, mergeStacks(parsed))
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("flame graph of %s: %w", recorded, err)
	}
	return nil
}

// writeFlames writes a tree: the root at the bottom, and what a function calls above it.
func writeFlames(out io.Writer, root *frame) {
	height := root.depth() * flameRow
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%d" font-family="monospace" font-size="11">`+"\n", flameWidth, height)
	if root.value > 0 {
		root.write(out, root.value, 0, height-flameRow)
	}
	fmt.Fprintln(out, "</svg>")
}

func (f *frame) write(out io.Writer, all int64, left float64, top int) {
	width := flameWidth * float64(f.value) / float64(all)
	if width < thinnest {
		return
	}
	fmt.Fprintf(out, `<g><title>%s: %.1f%%</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="hsl(%d,70%%,75%%)"/>`,
		html.EscapeString(f.name), 100*float64(f.value)/float64(all), left, top, width, flameRow-1, hue(f.name))
	if letters := int(width / letterWidth); letters > 2 {
		text := path.Base(f.name)
		fmt.Fprintf(out, `<text x="%.1f" y="%d">%s</text>`, left+2, top+flameRow-5, html.EscapeString(strings.ToValidUTF8(text[:min(len(text), letters)], "")))
	}
	fmt.Fprintln(out, "</g>")
	for _, name := range slices.Sorted(maps.Keys(f.calls)) {
		called := f.calls[name]
		called.write(out, all, left, top-flameRow)
		left += flameWidth * float64(called.value) / float64(all)
	}
}

// hue returns the color of a function's package.
func hue(name string) uint32 {
	folder, last := path.Split(name)
	owner, _, _ := strings.Cut(last, ".")
	hash := fnv.New32a()
	// A hash returns no error.
	_, _ = hash.Write([]byte(folder + owner))
	return hash.Sum32() % 360
}
