// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plots draws results of the simulator as SVG.
package plots

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"opendilab.org/di-orchestrator/sim/simulator"
)

const (
	width  = 20 * vg.Centimeter
	height = 11 * vg.Centimeter
	// columns is how many times of a plot of GPUs are drawn.
	columns = 240
)

// palette has colours that people with colour blindness can distinguish (Okabe and Ito).
func palette(i int) color.NRGBA {
	colours := []color.NRGBA{
		{0x00, 0x72, 0xB2, 0xFF}, {0xE6, 0x9F, 0x00, 0xFF}, {0x00, 0x9E, 0x73, 0xFF}, {0xCC, 0x79, 0xA7, 0xFF},
		{0xD5, 0x5E, 0x00, 0xFF}, {0x56, 0xB4, 0xE9, 0xFF}, {0x33, 0x33, 0x33, 0xFF}, {0xF0, 0xE4, 0x42, 0xFF},
	}
	return colours[i%len(colours)]
}

// Line is a line of a plot of completion times.
type Line struct {
	Name    string
	Results []*simulator.Result
}

// CompletionTimes draws which part of the jobs of each line complete within a time.
func CompletionTimes(path, title string, lines []Line) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "job completion time, s", "part of the jobs"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0, 1
	p.Legend.Left, p.Legend.Top = true, true
	p.Add(plotter.NewGrid())
	for i, line := range lines {
		drawn, err := plotter.NewLine(distribution(line.Results))
		if err != nil {
			return fmt.Errorf("drawing %s: %w", line.Name, err)
		}
		drawn.Color, drawn.Width = palette(i), vg.Points(1.5)
		if i >= 8 {
			drawn.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Add(drawn)
		p.Legend.Add(line.Name, drawn)
	}
	return save(p, path)
}

// distribution returns at most 200 points of the cumulative distribution.
func distribution(results []*simulator.Result) plotter.XYs {
	var times []int
	for _, result := range results {
		for i := range result.Jobs {
			times = append(times, max(result.Jobs[i].JCT(), 1))
		}
	}
	slices.Sort(times)
	points := min(len(times), 200)
	xys := make(plotter.XYs, points)
	for i := range xys {
		at := (i + 1) * len(times) / points
		xys[i] = plotter.XY{X: float64(times[at-1]), Y: float64(at) / float64(len(times))}
	}
	return xys
}

// GPUs draws the GPUs of each job over time, stacked; jobs of an application have a colour.
func GPUs(path, title string, result *simulator.Result) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "time, h", "GPUs"
	p.Legend.Top = true
	end := 0
	for i := range result.Jobs {
		end = max(end, result.Jobs[i].Completed)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, float64(end)/3600, 0, float64(result.Capacity)*1.25
	applications := applicationsOf(result)
	shown := map[string]bool{}
	for _, band := range stack(result, end) {
		area, err := plotter.NewPolygon(band.outline)
		if err != nil {
			return fmt.Errorf("drawing job %s: %w", band.name, err)
		}
		colour := palette(slices.Index(applications, band.application))
		area.Color, area.LineStyle.Width, area.LineStyle.Color = colour, vg.Points(0.3), color.White
		p.Add(area)
		if !shown[band.application] {
			shown[band.application] = true
			p.Legend.Add(band.application, area)
		}
	}
	return save(p, path)
}

func applicationsOf(result *simulator.Result) []string {
	all := map[string]bool{}
	for i := range result.Jobs {
		all[result.Jobs[i].Application] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// band is the area of a job.
type band struct {
	name, application string
	outline           plotter.XYs
}

// stack returns the bands of all jobs that had GPUs, the longest jobs at the bottom.
func stack(result *simulator.Result, end int) []band {
	counts := sample(result, end)
	order := make([]int, len(result.Jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(result.Jobs[b].GPUSeconds, result.Jobs[a].GPUSeconds) })
	base := make([]float64, columns)
	var bands []band
	for _, j := range order {
		var lower, upper plotter.XYs
		for x, count := range counts[j] {
			if count == 0 && (x == 0 || counts[j][x-1] == 0) && (x == columns-1 || counts[j][x+1] == 0) {
				continue
			}
			hours := float64(x) * float64(end) / columns / 3600
			lower = append(lower, plotter.XY{X: hours, Y: base[x]})
			base[x] += float64(count)
			upper = append(upper, plotter.XY{X: hours, Y: base[x]})
		}
		if len(lower) == 0 {
			continue
		}
		slices.Reverse(upper)
		bands = append(bands, band{name: result.Jobs[j].Name, application: result.Jobs[j].Application, outline: append(lower, upper...)})
	}
	return bands
}

// sample returns the GPUs of each job at each column.
func sample(result *simulator.Result, end int) [][]int {
	counts := make([][]int, len(result.Jobs))
	for j := range counts {
		counts[j] = make([]int, columns)
	}
	changes := slices.Clone(result.Changes)
	slices.SortStableFunc(changes, func(a, b simulator.Change) int { return cmp.Compare(a.At, b.At) })
	for _, change := range changes {
		for x := change.At * columns / end; x < columns; x++ {
			counts[change.Job][x] = change.GPUs
		}
	}
	return counts
}

func save(p *plot.Plot, path string) error {
	if err := p.Save(width, height, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
