// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package plots

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"opendilab.org/di-orchestrator/sim/simulator/ratio"
)

// Sizes are the sizes of a job under a rule.
type Sizes struct {
	Name   string
	Points []ratio.Point
}

// Ratio draws how many producers each rule requests over time, and how many are ideal.
func Ratio(path, title string, rules []Sizes) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "time, h", "collectors"
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, one := range rules {
		line, err := plotter.NewLine(series(one.Points, func(point ratio.Point) float64 { return float64(point.Requested) }))
		if err != nil {
			return fmt.Errorf("drawing %s: %w", one.Name, err)
		}
		line.Color, line.Width = palette(i), vg.Points(1)
		if i == 0 {
			line.Width = vg.Points(2)
		}
		p.Add(line)
		p.Legend.Add(one.Name, line)
	}
	ideal, err := plotter.NewLine(series(rules[0].Points, func(point ratio.Point) float64 { return point.Ideal }))
	if err != nil {
		return fmt.Errorf("drawing the ideal size: %w", err)
	}
	ideal.Color, ideal.Dashes = palette(6), []vg.Length{vg.Points(4), vg.Points(2)}
	p.Add(ideal)
	p.Legend.Add("ideal", ideal)
	_, _, _, highest := plotter.XYRange(series(rules[0].Points, func(point ratio.Point) float64 { return float64(point.Requested) }))
	p.Y.Max = max(p.Y.Max, highest) * 1.3 // room for the legend
	return save(p, path)
}

// series returns one point each two minutes, so that a plot stays small.
func series(points []ratio.Point, y func(ratio.Point) float64) plotter.XYs {
	var xys plotter.XYs
	for i := 0; i < len(points); i += 4 {
		xys = append(xys, plotter.XY{X: float64(points[i].Second) / 3600, Y: y(points[i])})
	}
	return xys
}
