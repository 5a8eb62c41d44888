// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/fields"
	"opendilab.org/di-orchestrator/history/record"
)

// Side is one of the jobs that are compared.
type Side struct {
	Job    *record.Job
	Curves []record.Series
}

// Comparison is what differs between jobs. Lists of values have one for each job, in the order of the jobs.
type Comparison struct {
	Jobs []Outcome `json:"jobs"`
	// Spec is empty if a manifest is unknown.
	Spec  []fields.Difference `json:"spec"`
	Tasks map[string][]*Task  `json:"tasks"`
	// Series are those of any of the jobs.
	Series map[string]SeriesEnd `json:"series"`
	// Unknown says whose manifest is unknown, and why.
	Unknown []string `json:"-"`
}

// Outcome is how a job went.
type Outcome struct {
	Name    string    `json:"name"`
	UID     string    `json:"uid"`
	Phase   string    `json:"phase"`
	Reason  string    `json:"reason,omitempty"`
	Created time.Time `json:"created"`
	// TimeToStart and Duration are in seconds; nil if the job has not started.
	TimeToStart *float64 `json:"timeToStart,omitempty"`
	Duration    *float64 `json:"duration,omitempty"`
	Restarts    int32    `json:"restarts"`
	Reschedules int32    `json:"reschedules,omitempty"`
	// ToStart and Took are the same times in words.
	ToStart string `json:"-"`
	Took    string `json:"-"`
}

// SeriesEnd is the last and the best value of a series in each job; nil in a job without it.
type SeriesEnd struct {
	Last []*float64 `json:"last"`
	Best []*float64 `json:"best"`
	// Reached is the seconds from the start until the best value; nil in a job without it.
	Reached []*float64 `json:"-"`
	// Lowest is set if the best value is the lowest one.
	Lowest bool `json:"lowest,omitempty"`
}

// Compare compares jobs. The lowest values of the named series are the best, and of those with loss or error in their name.
func Compare(sides []Side, lowest []string, now time.Time) *Comparison {
	c := &Comparison{Tasks: map[string][]*Task{}, Series: map[string]SeriesEnd{}}
	manifests := make([]json.RawMessage, len(sides))
	for i := range sides {
		of := sides[i].Job
		c.Jobs = append(c.Jobs, outcomeOf(of, now))
		spec, err := specOf(of)
		if err != nil {
			c.Unknown = append(c.Unknown, fmt.Sprintf("job %s: %v", of.Name, err))
		}
		manifests[i] = of.Manifest
		for _, found := range tasksOf(of, spec) {
			if c.Tasks[found.Name] == nil {
				c.Tasks[found.Name] = make([]*Task, len(sides))
			}
			c.Tasks[found.Name][i] = &found
		}
		for _, series := range sides[i].Curves {
			if len(series.Points) > 0 {
				c.addSeries(&series, i, len(sides), of, lowest)
			}
		}
	}
	if len(c.Unknown) == 0 {
		c.Spec = fields.Differences(manifests...)
	}
	return c
}

func (c *Comparison) addSeries(series *record.Series, place, jobs int, of *record.Job, lowest []string) {
	end, isKnown := c.Series[series.Name]
	if !isKnown {
		end = SeriesEnd{
			Last: make([]*float64, jobs), Best: make([]*float64, jobs), Reached: make([]*float64, jobs), Lowest: isLowestBest(series.Name, lowest),
		}
	}
	best := best(series.Points, end.Lowest)
	end.Last[place], end.Best[place] = &series.Points[len(series.Points)-1].Value, &best.Value
	if !of.Started.IsZero() {
		reached := max(0, best.At.Sub(of.Started).Seconds())
		end.Reached[place] = &reached
	}
	c.Series[series.Name] = end
}

func outcomeOf(of *record.Job, now time.Time) Outcome {
	found := Outcome{
		Name: of.Name, UID: of.UID, Phase: PhaseOf(of.Phase, of.Ended, of.Unseen), Reason: of.Reason, Created: of.Created,
		Restarts: of.Seen.Restarts, Reschedules: of.Seen.Reschedules,
	}
	if of.Started.IsZero() {
		return found
	}
	ended := of.Ended
	if ended.IsZero() {
		ended = now
	}
	toStart, took := of.Started.Sub(of.Created).Seconds(), ended.Sub(of.Started).Seconds()
	found.TimeToStart, found.Duration = &toStart, &took
	found.ToStart, found.Took = SpanOf(of.Created, of.Started, now), SpanOf(of.Started, of.Ended, now)
	return found
}

func isLowestBest(series string, named []string) bool {
	lower := strings.ToLower(series)
	return strings.Contains(lower, "loss") || strings.Contains(lower, "error") || slices.Contains(named, series)
}

// best returns the first point with the highest or the lowest value.
func best(points []record.Point, isLowest bool) *record.Point {
	found := &points[0]
	for i := range points {
		if isBetter := points[i].Value > found.Value; isLowest && points[i].Value < found.Value || !isLowest && isBetter {
			found = &points[i]
		}
	}
	return found
}

// Resource is what a task had in each job.
type Resource struct {
	Task, What string
	Values     []string
}

// Resources returns what is known of the tasks.
func (c *Comparison) Resources() []Resource {
	var all []Resource
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		for _, of := range []struct {
			what string
			text func(*Task) string
		}{
			{"replicas", func(t *Task) string { return t.Replicas }},
			{"requests", (*Task).RequestText},
			{"used at most", (*Task).PeakText},
			{"killed at", (*Task).KilledText},
		} {
			one, isKnown := Resource{name, of.what, nil}, false
			for _, task := range c.Tasks[name] {
				text := None
				if task != nil {
					text = of.text(task)
				}
				one.Values = append(one.Values, text)
				isKnown = isKnown || text != "" && text != None
			}
			if isKnown {
				all = append(all, one)
			}
		}
	}
	return all
}
