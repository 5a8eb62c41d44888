// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/view"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
	"opendilab.org/di-orchestrator/history/record"
)

const (
	// MostPoints bounds the points of a curve.
	MostPoints = 500
	// MostCompared bounds those of a curve that is compared.
	MostCompared = 250
	// mostCurves bounds the curves of a view.
	mostCurves = 32
	// mostFields bounds the fields that differ, and longestValue the text of each, in bytes.
	mostFields   = 300
	longestValue = 1_000
)

// Curves returns the curves of a job, the most important first.
func Curves(job *record.Job, of *record.CurvePage) api.HistoryCurves {
	curves := api.HistoryCurves{Curves: []api.Curve{}, Until: timeOf(of.Next)}
	for _, series := range ordered(of.Series, job.Curve) {
		kind, unit := kindOf(series.Name, job.Curve)
		curve := api.Curve{Name: series.Name, Kind: kind, Unit: unit, Points: make([][2]float64, 0, len(series.Points))}
		for _, point := range series.Points {
			curve.Points = append(curve.Points, [2]float64{float64(point.At.UnixMilli()), point.Value})
		}
		curves.Curves = append(curves.Curves, curve)
	}
	return curves
}

// kindOf returns the kind and the unit of a series. Reports may name one of them. The history measures usage itself.
func kindOf(name, named string) (kind, unit string) {
	switch {
	case isNamed(name, named):
		_, unit = pages.KindOf(name)
		return pages.KindReward, unit
	case strings.HasPrefix(name, "cpu/"):
		return pages.KindOther, "m"
	case strings.HasPrefix(name, "memory/"):
		return pages.KindOther, "B"
	}
	return pages.KindOf(name)
}

// isNamed reports whether a series is the one that reports name. The progress is recorded with all that it has.
func isNamed(name, named string) bool {
	return named != "" && (name == named || named == "progress" && name == "progress.done")
}

// ordered returns the series that are shown: first the one that reports name.
func ordered(all []record.Series, named string) []record.Series {
	place := func(name string) int {
		if isNamed(name, named) {
			return -1
		}
		kind, _ := kindOf(name, named)
		return pages.Place(kind)
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b record.Series) int {
		return cmp.Or(cmp.Compare(place(a.Name), place(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), mostCurves)]
}

// namedBy returns the curve that jobs name: that of the first one that does.
func namedBy(of []Compared) string {
	for i := range of {
		if named := of[i].Job.Curve; named != "" {
			return named
		}
	}
	return ""
}

// Compared are a recorded job and its curves.
type Compared struct {
	Job    *record.Job
	Curves []record.Series
}

// Comparison compares jobs with the first one.
func Comparison(of []Compared, now time.Time) *api.HistoryComparison {
	sides := make([]view.Side, len(of))
	for i := range of {
		sides[i] = view.Side{Job: of[i].Job, Curves: of[i].Curves}
	}
	found := view.Compare(sides, nil, now)
	shown := &api.HistoryComparison{
		Jobs: []api.ComparedJob{}, Fields: []api.ComparedField{}, Notes: []string{}, Resources: []api.ComparedResource{}, Series: []api.ComparedSeries{},
	}
	for i := range found.Jobs {
		outcome := &found.Jobs[i]
		shown.Jobs = append(shown.Jobs, api.ComparedJob{
			Job: rowOf(of[i].Job), TimeToStart: outcome.TimeToStart, Duration: outcome.Duration, Restarts: outcome.Restarts, Reschedules: outcome.Reschedules,
		})
	}
	for _, why := range found.Unknown {
		shown.Notes = append(shown.Notes, "The specs are not compared: "+why)
	}
	shown.More = max(0, len(found.Spec)-mostFields)
	for _, one := range found.Spec[:min(len(found.Spec), mostFields)] {
		for i := range one.Values {
			one.Values[i] = record.Text(one.Values[i], longestValue)
		}
		shown.Fields = append(shown.Fields, api.ComparedField{Field: one.Field, Values: one.Values})
	}
	for _, one := range found.Resources() {
		shown.Resources = append(shown.Resources, api.ComparedResource{Task: one.Task, What: one.What, Values: one.Values})
	}
	shown.Series = seriesOf(of, found)
	return shown
}

// seriesOf returns the series of all jobs over the time since each job started.
func seriesOf(of []Compared, found *view.Comparison) []api.ComparedSeries {
	names := make([]record.Series, 0, len(found.Series))
	for name := range found.Series {
		names = append(names, record.Series{Name: name})
	}
	all, named := []api.ComparedSeries{}, namedBy(of)
	for _, series := range ordered(names, named) {
		end := found.Series[series.Name]
		kind, unit := kindOf(series.Name, named)
		one := api.ComparedSeries{
			Name: series.Name, Kind: kind, Unit: unit, Lowest: end.Lowest, Last: end.Last, Best: end.Best, Reached: end.Reached,
			Lines: make([][][2]float64, len(of)),
		}
		for i := range of {
			one.Lines[i] = lineOf(&of[i], series.Name)
		}
		all = append(all, one)
	}
	return all
}

// lineOf returns the points of a series by seconds since the start. It is empty for a job without the series.
func lineOf(of *Compared, name string) [][2]float64 {
	start := of.Job.Started
	if start.IsZero() {
		start = of.Job.Created
	}
	points := [][2]float64{}
	for _, series := range of.Curves {
		if series.Name != name {
			continue
		}
		for _, point := range series.Points {
			if since := point.At.Sub(start); since >= 0 {
				points = append(points, [2]float64{since.Seconds(), point.Value})
			}
		}
	}
	return points
}
