// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"opendilab.org/di-orchestrator/hack/bench/internal/results"
)

// Chart is a plot against the number of pods.
type Chart struct {
	name, title, unit string
	lines             []line
	rungs             []*results.Rung
}

// File returns the name of the file, for the template.
func (c *Chart) File() string { return c.name }

// Title returns the title, for the template.
func (c *Chart) Title() string { return c.title }

type line struct {
	name string
	of   func(*results.Rung) float64
}

func mebibytes(of func(*results.Rung) int64) func(*results.Rung) float64 {
	return func(r *results.Rung) float64 { return float64(of(r)) / (1 << 20) }
}

// charts returns the plots of a ladder.
func charts(rungs []*results.Rung) []*Chart {
	return []*Chart{
		{name: "growth-memory.svg", title: "Memory of the programs", unit: "MiB", rungs: rungs, lines: []line{
			{"operator, resident", mebibytes(func(r *results.Rung) int64 { return r.Operator.Resident })},
			{"operator, live heap", mebibytes(func(r *results.Rung) int64 { return r.Heap })},
			{"di-server", mebibytes(func(r *results.Rung) int64 { return r.Server.Resident })},
			{"webhooks", mebibytes(func(r *results.Rung) int64 { return r.Webhooks.Resident })},
		}},
		{name: "growth-cluster.svg", title: "Memory of the API server and etcd", unit: "MiB", rungs: rungs, lines: []line{
			{"API server", mebibytes(func(r *results.Rung) int64 { return r.APIServer.Resident })},
			{"etcd", mebibytes(func(r *results.Rung) int64 { return r.Etcd.Resident })},
			{"stored in etcd", mebibytes(func(r *results.Rung) int64 { return r.Stored })},
		}},
		{name: "growth-processor.svg", title: "Processor time for an added pod", unit: "ms", rungs: rungs[1:], lines: []line{
			{"operator", func(r *results.Rung) float64 { return r.Operator.PodMillis }},
			{"di-server", func(r *results.Rung) float64 { return r.Server.PodMillis }},
			{"API server", func(r *results.Rung) float64 { return r.APIServer.PodMillis }},
			{"etcd", func(r *results.Rung) float64 { return r.Etcd.PodMillis }},
		}},
		{name: "growth-latency.svg", title: "Times beside the jobs, p99", unit: "ms", rungs: rungs, lines: []line{
			{"first pod of a new job", func(r *results.Rung) float64 { return r.FirstPod.P99 * 1000 }},
			{"resize", func(r *results.Rung) float64 { return r.Resize.P99 * 1000 }},
			{"di-server, POST", func(r *results.Rung) float64 { return r.Post.P99 * 1000 }},
			{"di-server, GET", func(r *results.Rung) float64 { return r.Get.P99 * 1000 }},
		}},
	}
}

// palette has colours that people with colour blindness can distinguish (Okabe and Ito).
func palette(i int) color.NRGBA {
	colours := []color.NRGBA{{0x00, 0x72, 0xB2, 0xFF}, {0xE6, 0x9F, 0x00, 0xFF}, {0x00, 0x9E, 0x73, 0xFF}, {0xCC, 0x79, 0xA7, 0xFF}}
	return colours[i%len(colours)]
}

// draw returns the plot as SVG.
func (c *Chart) draw() ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, "pods", c.unit
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, each := range c.lines {
		points := make(plotter.XYs, len(c.rungs))
		for k, rung := range c.rungs {
			points[k] = plotter.XY{X: float64(rung.Pods), Y: each.of(rung)}
		}
		drawn, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("drawing %s: %w", c.name, err)
		}
		drawn.Color, drawn.Width, dots.Color = palette(i), vg.Points(1.5), palette(i)
		p.Add(drawn, dots)
		p.Legend.Add(each.name, drawn, dots)
	}
	return svg(p, c.name)
}

// svg returns a plot as SVG.
func svg(p *plot.Plot, name string) ([]byte, error) {
	// The legend is above what is drawn.
	p.Y.Max *= 1.3
	writer, err := p.WriterTo(18*vg.Centimeter, 9*vg.Centimeter, "svg")
	if err != nil {
		return nil, fmt.Errorf("drawing %s: %w", name, err)
	}
	var out bytes.Buffer
	if _, err := writer.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("drawing %s: %w", name, err)
	}
	return out.Bytes(), nil
}
