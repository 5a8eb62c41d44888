// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// linear returns a job that is as fast as its replicas are many.
func linear(most int) Job {
	job := Job{Current: waiting, Remaining: math.NaN(), RestartCost: 30}
	for k := 1; k <= most; k *= 2 {
		job.Points = append(job.Points, Point{Replicas: k, Cost: k, Speed: float64(k)})
	}
	return job
}

func replicas(decisions []Decision) []int {
	var all []int
	for i := range decisions {
		all = append(all, decisions[i].Chosen().Replicas)
	}
	return all
}

func TestAJobThatStarvesComesBeforeMoreThanAMinimum(t *testing.T) {
	settings := DefaultSettings()
	fast, slow := linear(8), linear(1)
	slow.Points[0].Speed = 1e-3
	slow.Work, slow.HasRun = 1e12, true
	settings.Fairness = 0
	for starves, want := range map[float64][]int{0.9: {8, waiting}, 1.1: {4, 1}} {
		slow.Starves = starves
		if got := replicas(Decide([]Job{fast, slow}, []int{8}, &settings)); !slices.Equal(got, want) {
			t.Errorf("starving %g: replicas %v, want %v", starves, got, want)
		}
	}
}

func TestEachOfManyJobsThatStarveGetsItsMinimum(t *testing.T) {
	settings := DefaultSettings()
	running, starving := linear(8), linear(1)
	running.Current, running.HasRun, running.Speed = 8, true, 8
	starving.Starves, starving.Work, starving.HasRun = 2, 1e9, true
	got := replicas(Decide([]Job{running, starving, starving, starving, starving}, []int{8}, &settings))
	if !slices.Equal(got, []int{4, 1, 1, 1, 1}) {
		t.Errorf("replicas %v, want 4 and one of each that starves", got)
	}
}

func TestAChangePaysBeforeTheJobEnds(t *testing.T) {
	settings := DefaultSettings()
	for remaining, want := range map[float64]int{50: 1, 70: 2, 1000: 2, math.NaN(): 2} {
		job := linear(2)
		job.Current, job.HasRun, job.Speed, job.RunFor, job.Remaining = 1, true, 1, 3600, remaining
		if got := replicas(Decide([]Job{job}, []int{2}, &settings)); got[0] != want {
			t.Errorf("%g s before its end a job gets %d replicas, want %d: a restart takes 30 s", remaining, got[0], want)
		}
	}
}

func TestNoReportWeighsMoreThanThatOfANewJob(t *testing.T) {
	random, settings := rand.New(rand.NewPCG(5, 5)), DefaultSettings()
	settings.Fairness = 0
	for range 200 {
		fresh, reported := linear(16), linear(16)
		reported.HasRun, reported.Work = true, 1e6*random.Float64()
		reported.Remaining = 1e6 * random.Float64() * random.Float64()
		weights := weigh([]Job{fresh, reported}, []float64{5 * random.Float64()}, &settings)
		if weights[1] > weights[0] {
			t.Fatalf("weight %g with %g s left, of a new job %g", weights[1], reported.Remaining, weights[0])
		}
	}
}

// reporting returns a job that claims a part of its work to be done.
func reporting(useful, done, total, expected float64) *view {
	report := &profilings.Report{Progress: &profilings.Progress{Done: done, Total: total}}
	return &view{
		job: &allocation.Job{Report: report}, curve: curve{known: &learned{}, one: 10},
		usage: allocation.Usage{Useful: useful, Expected: expected, RunFor: 1000},
	}
}

func TestProgressGivesTheWorkThatIsLeft(t *testing.T) {
	v := reporting(5000, 20, 100, 0)
	if left, isGuess := v.remaining(nil); isGuess || math.Abs(left-2000) > 1e-9 {
		t.Errorf("%g s are left (guess: %t), want 2000: a unit is 250 samples", left, isGuess)
	}
	if v.usage.Expected != 25000 {
		t.Errorf("the job expects %g samples, want 25000", v.usage.Expected)
	}
}

func TestProgressThatContradictsItselfDoesNotCount(t *testing.T) {
	// A job that is always nearly done expects more the longer it runs.
	v := reporting(5000, 99, 100, 0)
	if left, _ := v.remaining(nil); math.IsNaN(left) {
		t.Fatal("the first report does not count")
	}
	later := reporting(50000, 99, 100, v.usage.Expected)
	if left, _ := later.remaining(nil); !math.IsNaN(left) {
		t.Errorf("%g s are left by a report that contradicts the first one, want none", left)
	}
	for _, impossible := range []*view{reporting(5000, 0, 100, 0), reporting(5000, 200, 100, 0), reporting(0, 20, 100, 0)} {
		if left, _ := impossible.remaining(nil); !math.IsNaN(left) {
			t.Errorf("%g s are left by %+v, want none", left, impossible.job.Report.Progress)
		}
	}
}

func TestProgressDoesNotCountAmongJobsWhoseTotalsWereWrong(t *testing.T) {
	// Each finished job has done 100 samples.
	for name, tc := range map[string]struct {
		expected []float64
		counts   bool
	}{
		"no finished jobs":              {nil, true},
		"totals that were about right":  {[]float64{120, 90, 150, 70, 100, 100, 110, 95}, true},
		"jobs that stop at any time":    {[]float64{100, 110, 130, 150, 190, 240, 330, 550}, true},
		"one total that was very wrong": {[]float64{100, 100, 400, 100, 100}, true},
		"totals too large or too small": {[]float64{300, 33, 300, 300, 33}, false},
		"totals of nothing":             {[]float64{0, 0, 0, 0, 0}, true},
	} {
		var totals allocation.Totals
		for _, expected := range tc.expected {
			totals.Finish(&allocation.Usage{Useful: 100, Expected: expected})
		}
		v := reporting(5000, 20, 100, 0)
		v.job.Totals = totals.Among(&allocation.Totals{Finished: totals.Finished, Wrong: totals.Wrong})
		if left, _ := v.remaining(nil); math.IsNaN(left) == tc.counts {
			t.Errorf("%s: %g s are left by a report of progress, totals are wrong by %g on average", name, left, math.Exp(totals.Wrong))
		}
		if v.usage.Expected != 25000 {
			t.Errorf("%s: the job expects %g samples, want 25000: otherwise nobody learns that totals are right again", name, v.usage.Expected)
		}
	}
}

func TestHistoryGuessesTheMeanOfFinishedJobs(t *testing.T) {
	group := &allocation.Group{}
	for _, useful := range []float64{1000, 3000, 0} {
		group.Finish(&allocation.Usage{Useful: useful})
	}
	for useful, want := range map[float64]float64{0: 200, 1500: 50, 5000: 50} {
		v := &view{job: &allocation.Job{}, curve: curve{known: &learned{}, one: 10}, usage: allocation.Usage{Useful: useful}}
		if left, isGuess := v.remaining(group); !isGuess || math.Abs(left-want) > 1e-9 {
			t.Errorf("%g s are left (guess: %t) after %g samples, want %g", left, isGuess, useful, want)
		}
	}
}

func TestGroupsShareWhatTheirJobsMeasured(t *testing.T) {
	teacher := &allocation.Job{Group: "g", Report: &profilings.Report{
		Batch: &profilings.Batch{Initial: 128, Max: 1024}, Gradient: &profilings.Gradient{Sqr: 1, Var: 2},
	}}
	for k := 1; k <= 100; k++ {
		teacher.Report.Steps = append(teacher.Report.Steps, profilings.Step{Nodes: 1, Replicas: k, Samples: 32, Seconds: 0.1, ComputeSeconds: 0.08})
	}
	group := &allocation.Group{}
	teach(group, teacher, teacher.Report.Observations())
	teach(group, teacher, teacher.Report.Observations())
	if got := len(group.Observations); got != allocation.MaxObservations {
		t.Errorf("the group has %d observations, want %d", got, allocation.MaxObservations)
	}
	learner := newCache().curvesOf(&allocation.Job{Group: "g"}, group, nil, []string{""})[0]
	if learner.known == nil || learner.observed != 100 || learner.noise != (model.Noise{Sqr: 1, Var: 2}) {
		t.Errorf("a new job of the group has the curve %+v, want the group's model", learner)
	}
}

// The policy decides by what jobs report and use, and by finished jobs. Tasks and placements it reads to place them, and
// times to order them.
var readable = []string{
	"Created", "Elastic", "Ended", "Excluded", "Group", "Held", "Min", "Name", "Priority", "Report", "ReportedAt", "ResizesLive", "Tasks", "Totals", "Usage", "Waiting", "Wanted",
	// Methods.
	"ElasticOf", "Ranks", "Restarts", "Running",
}

func TestThePolicyReadsReportsOnly(t *testing.T) {
	files, err := os.ReadDir(".")
	expect.NoError(t, err)
	for _, entry := range files {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)
		expect.NoError(t, err)
		for _, path := range file.Imports {
			if strings.Contains(path.Path.Value, "simulator") {
				t.Errorf("%s imports %s: the policy must not know the truth about jobs", entry.Name(), path.Path.Value)
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			selector, is := node.(*ast.SelectorExpr)
			if is && isJob(entry.Name(), selector.X) && !slices.Contains(readable, selector.Sel.Name) {
				t.Errorf("%s reads %s of a job, which is none of %v", entry.Name(), selector.Sel.Name, readable)
			}
			if is && selector.Sel.Name == "Name" && isJob(entry.Name(), selector.X) && entry.Name() != "learn.go" && entry.Name() != "policy.go" {
				t.Errorf("%s reads the name of a job: names only find caches and answers", entry.Name())
			}
			return true
		})
	}
}

// isJob reports whether an expression is an allocation.Job by the names of this package.
func isJob(file string, x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.SelectorExpr:
		return x.Sel.Name == "job"
	case *ast.Ident:
		return x.Name == "moved" || x.Name == "start" || x.Name == "job" && (file == "account.go" || file == "learn.go" || file == "explain.go")
	}
	return false
}
