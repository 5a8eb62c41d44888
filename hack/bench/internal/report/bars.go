// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"opendilab.org/di-orchestrator/hack/bench/internal/results"
)

// Bars is a plot of how long clients take to start pods.
type Bars struct {
	name, title string
	starts      []results.Start
}

// File returns the name of the file, for the template.
func (b *Bars) File() string { return b.name }

// Title returns the title, for the template.
func (b *Bars) Title() string { return b.title }

// barsOf returns the plot of a result, nil if it has none.
func barsOf(result *results.Result) (*Bars, error) {
	bars := &Bars{name: result.Name + ".svg"}
	switch result.Name {
	case "start":
		bars.title = "100 jobs of 8 pods"
	case "start-job":
		bars.title = "A job of 5,000 pods"
	default:
		return nil, nil
	}
	if err := json.Unmarshal(result.Data, &bars.starts); err != nil {
		return nil, fmt.Errorf("%s: %w", result.Name, err)
	}
	return bars, nil
}

// draw returns the plot as SVG.
func (b *Bars) draw() ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Y.Min = b.title, "s", 0
	p.Legend.Top, p.Legend.Left = true, true
	const width = 40
	for i, start := range b.starts {
		bars, err := plotter.NewBarChart(plotter.Values{start.Created, start.Running}, vg.Points(width))
		if err != nil {
			return nil, fmt.Errorf("drawing %s: %w", b.name, err)
		}
		bars.Color, bars.LineStyle.Width = palette(i), 0
		bars.Offset = vg.Points(width * (float64(i) - float64(len(b.starts)-1)/2))
		p.Add(bars)
		p.Legend.Add(start.Client, bars)
	}
	p.NominalX("all pods exist", "all pods run")
	return svg(p, b.name)
}
