// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drive creates the load: it submits, resizes and reports jobs, creates the same pods without them,
// and calls the programs as clients do.
package drive

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
)

// Load is the load of every measurement. Each has its own defaults, and registers the flags that it uses.
type Load struct {
	// Jobs have so many Pods each; Nodes are those that pods are bound to.
	Jobs, Pods, Nodes int
	// Rounds are those of each row; tables have medians.
	Rounds int
	// Gang makes each job a gang.
	Gang bool
	// Scheduler binds the pods.
	Scheduler cluster.Scheduler
	// Operators and Shards are those that the jobs are divided among. Each operator may use Quota processors; all when 0.
	Operators, Shards int
	Quota             float64
	// OperatorFlags are further flags of the operators, separated by spaces.
	OperatorFlags string
	// New jobs are timed beside the others. Finished jobs have ended.
	New, Finished int
	// Rest is how long the programs are measured while no job changes. Duration is that of each row of calls or of
	// submissions.
	Rest, Duration time.Duration
	// Rate is the number of calls a second.
	Rate int
	// Shapes are numbers of jobs and pods.
	Shapes string
	// Trace is the folder for profiles and requests.
	Trace string
}

// Register registers the named flags.
func (l *Load) Register(flags *flag.FlagSet, names ...string) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	all.IntVar(&l.Jobs, "jobs", l.Jobs, "jobs")
	all.IntVar(&l.Pods, "pods", l.Pods, "pods of each job")
	all.IntVar(&l.Nodes, "nodes", l.Nodes, "nodes, which exist only in the API")
	all.IntVar(&l.Rounds, "rounds", l.Rounds, "rounds of each row; the table has medians")
	all.BoolVar(&l.Gang, "gang", l.Gang, "make each job a gang; needs -scheduler=real")
	all.Var(&l.Scheduler, "scheduler", "what binds pods: real, the kube-scheduler of hack/cluster beside the controllers of Kubernetes, or stand-in, a client that binds each pod at once")
	all.IntVar(&l.Operators, "operators", l.Operators, "operators that run at a time")
	all.IntVar(&l.Shards, "shards", l.Shards, "shards that the jobs are divided into")
	all.Float64Var(&l.Quota, "quota", l.Quota, "processors that each operator may use")
	all.StringVar(&l.OperatorFlags, "operator-flags", l.OperatorFlags, "further flags of the operators, separated by spaces")
	all.IntVar(&l.New, "new", l.New, "new jobs whose first pods and resizes are timed at each row")
	all.IntVar(&l.Finished, "finished", l.Finished, "jobs that have ended")
	all.DurationVar(&l.Rest, "rest", l.Rest, "how long the programs are measured at rest")
	all.DurationVar(&l.Duration, "duration", l.Duration, "how long jobs report in each row, or are submitted")
	all.IntVar(&l.Rate, "rate", l.Rate, "GETs a second")
	all.StringVar(&l.Shapes, "shapes", l.Shapes, "rows, separated by commas: jobs x pods, or the pods of one coordinator-led job after led")
	all.StringVar(&l.Trace, "trace", l.Trace, "folder for processor profiles of one more round, for go tool pprof, and its requests as CSV and SVG; none when empty")
	for _, name := range names {
		registered := all.Lookup(name)
		flags.Var(registered.Value, registered.Name, registered.Usage)
	}
}

// Check returns an error if a number of the load is not positive, although its measurement uses it.
func (l *Load) Check(flags ...string) error {
	values := map[string]int{"jobs": l.Jobs, "pods": l.Pods, "nodes": l.Nodes, "rounds": l.Rounds, "operators": l.Operators, "shards": l.Shards, "rate": l.Rate, "new": l.New}
	for _, name := range flags {
		if values[name] < 1 {
			return fmt.Errorf("-%s is %d: must be at least 1", name, values[name])
		}
	}
	return nil
}

// Flags returns the further flags of the operators.
func (l *Load) Flags() []string { return strings.Fields(l.OperatorFlags) }

// All returns the number of pods of all jobs.
func (l *Load) All() int { return l.Jobs * l.Pods }
