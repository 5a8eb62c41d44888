// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report writes docs/benchmarks.md and its plots from the results of benchmarks.
package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/results"
)

// Name is the first argument of the command.
const Name = "report"

const (
	// ladder and finished are the results of growth, without finished jobs and with them.
	ladder   = "growth"
	finished = "finished"
	// folder is the folder of results and plots, below that of the page.
	folder = "benchmarks"
	page   = "benchmarks.md"
)

//go:embed benchmarks.md.tmpl
var templates embed.FS

// Run writes the page with the arguments that follow the name.
func Run(arguments []string) error {
	flags := flag.NewFlagSet("bench "+Name, flag.ContinueOnError)
	docs := flags.String("docs", "docs", "folder of the page "+page+"; the results are in its folder "+folder+"/results")
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	files, err := Files(*docs)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(*docs, name), content, 0o600); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// Files returns the page and its plots by their paths below the folder of the docs, from the results there.
func Files(docs string) (map[string][]byte, error) {
	all, err := results.Read(filepath.Join(docs, folder, "results"))
	if err != nil {
		return nil, err
	}
	view := &view{Bars: map[string]*Bars{}}
	for _, result := range all {
		if err := view.add(result); err != nil {
			return nil, err
		}
	}
	if view.Ladder == nil || len(view.Rungs) < 3 {
		return nil, fmt.Errorf("report: %s/results has no %s.json with at least 3 rows: run make bench-growth", folder, ladder)
	}
	files := map[string][]byte{}
	if files[page], err = view.render(); err != nil {
		return nil, err
	}
	for _, chart := range charts(view.Rungs) {
		if files[filepath.Join(folder, chart.name)], err = chart.draw(); err != nil {
			return nil, err
		}
	}
	for _, bars := range view.Bars {
		if files[filepath.Join(folder, bars.name)], err = bars.draw(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// view is what the template shows.
type view struct {
	Ladder, Finished *results.Result
	// Rungs are the rows of Ladder.
	Rungs  []*results.Rung
	Others []*results.Result
	// Bars are the plots of Others that have one, by the name of the result.
	Bars map[string]*Bars
}

func (v *view) add(result *results.Result) error {
	switch result.Name {
	case ladder:
		v.Ladder = result
		if err := json.Unmarshal(result.Data, &v.Rungs); err != nil {
			return fmt.Errorf("%s: %w", result.Name, err)
		}
	case finished:
		v.Finished = result
	default:
		v.Others = append(v.Others, result)
		bars, err := barsOf(result)
		if bars != nil {
			v.Bars[result.Name] = bars
		}
		return err
	}
	return nil
}

func (v *view) render() ([]byte, error) {
	parsed, err := template.New("").Funcs(template.FuncMap{
		"source": source, "text": func(lines []string) string { return strings.Join(lines, "\n") },
		"costs": costs, "plan": planFor, "charts": charts, "target": func() target { return large },
	}).ParseFS(templates, "*.tmpl")
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.ExecuteTemplate(&out, page+".tmpl", v); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return out.Bytes(), nil
}

// source returns where a result comes from.
func source(r *results.Result) string {
	return fmt.Sprintf("`%s`, %s, commit `%s`, on %d processors (%s), %s, Linux %s, %s", r.Command, r.Date.Format(time.DateOnly), r.Commit,
		r.Machine.Processors, r.Machine.Processor, r.Machine.Memory, r.Machine.Kernel, r.Machine.Go)
}

// cost is what an added pod costs, from one rung to the next.
type cost struct {
	Name string
	// Cells are the costs. Ratio is the last to the first.
	Cells []string
	Ratio string
}

// added are the costs of an added pod by name: the value of the step between two rungs.
func added() []struct {
	name, format string
	of           func(before, after *results.Rung) float64
} {
	type step = func(before, after *results.Rung) float64
	perPod := func(bytes func(*results.Rung) int64) step {
		return func(before, after *results.Rung) float64 {
			return float64(bytes(after)-bytes(before)) / float64(after.Pods-before.Pods) / 1024
		}
	}
	own := func(of func(*results.Rung) float64) step {
		return func(_, after *results.Rung) float64 { return of(after) }
	}
	return []struct {
		name, format string
		of           step
	}{
		{"requests of the operator and di-server", "%.2f", own(func(r *results.Rung) float64 { return r.PodRequests })},
		{"processor of the operator", "%.2f ms", own(func(r *results.Rung) float64 { return r.Operator.PodMillis })},
		{"processor of di-server", "%.2f ms", own(func(r *results.Rung) float64 { return r.Server.PodMillis })},
		{"processor of the webhooks", "%.2f ms", own(func(r *results.Rung) float64 { return r.Webhooks.PodMillis })},
		{"processor of the API server", "%.2f ms", own(func(r *results.Rung) float64 { return r.APIServer.PodMillis })},
		{"processor of etcd", "%.2f ms", own(func(r *results.Rung) float64 { return r.Etcd.PodMillis })},
		{"live heap of the operator", "%.1f KiB", perPod(func(r *results.Rung) int64 { return r.Heap })},
		{"memory of the operator", "%.1f KiB", perPod(func(r *results.Rung) int64 { return r.Operator.Resident })},
		{"memory of di-server", "%.1f KiB", perPod(func(r *results.Rung) int64 { return r.Server.Resident })},
		{"memory of the API server", "%.1f KiB", perPod(func(r *results.Rung) int64 { return r.APIServer.Resident })},
		{"memory of etcd", "%.1f KiB", perPod(func(r *results.Rung) int64 { return r.Etcd.Resident })},
		{"stored in etcd", "%.1f KiB", perPod(func(r *results.Rung) int64 { return r.Stored })},
	}
}

// costs returns the costs of an added pod between neighbouring rungs. What is linear has the same cost in all.
func costs(rungs []*results.Rung) []cost {
	var all []cost
	for _, each := range added() {
		row := cost{Name: each.name}
		var steps []float64
		for i := 1; i < len(rungs); i++ {
			steps = append(steps, each.of(rungs[i-1], rungs[i]))
			row.Cells = append(row.Cells, fmt.Sprintf(each.format, steps[i-1]))
		}
		row.Ratio = fmt.Sprintf("%.2f", steps[len(steps)-1]/steps[0])
		all = append(all, row)
	}
	return slices.Clip(all)
}
