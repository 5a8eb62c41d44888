// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/sim/simulator"
	"opendilab.org/di-orchestrator/sim/simulator/baselines"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var update = flag.Bool("update", false, "write testdata/traces/recorded-jct.json")

const traces = "testdata/traces"

// load returns a workload of the invented traces.
func load(t *testing.T, path string) []simulator.Submission {
	t.Helper()
	applications, err := simulator.LoadApplications(traces)
	expect.NoError(t, err)
	workload, err := simulator.LoadWorkload(filepath.Join(traces, path), applications)
	expect.NoError(t, err)
	return workload
}

func simulate(t *testing.T, workload []simulator.Submission, policy simulator.Policy, options simulator.Options) *simulator.Result {
	t.Helper()
	result, err := simulator.Run(workload, policy, options, func() time.Time { return time.Time{} })
	expect.NoError(t, err)
	return result
}

func newGoodput(row simulator.Row) simulator.Policy {
	return simulator.NewAllocator(goodput.New(goodput.DefaultSettings()), row, simulator.Artifact().Restart)
}

func newFit() simulator.Policy {
	return simulator.NewAllocator(fit.Fit{}, simulator.Row{Fixed: true}, simulator.Artifact().Restart)
}

// policies returns the policies with recorded times, by their name there.
func policies() map[string]func() simulator.Policy {
	all := map[string]func() simulator.Policy{
		"tiresias": func() simulator.Policy { return baselines.NewTiresias() },
		"optimus":  func() simulator.Policy { return baselines.Optimus{} },
		"sia":      func() simulator.Policy { return baselines.Sia{} },
		"fit":      newFit,
	}
	for _, row := range simulator.Rows() {
		all["goodput-"+row.Name] = func() simulator.Policy { return newGoodput(row) }
	}
	return all
}

// TestEachJobCompletesAtItsRecordedTime holds every policy without randomness to the times in
// testdata, to the second. After a change on purpose: go test ./sim/simulator -update.
func TestEachJobCompletesAtItsRecordedTime(t *testing.T) {
	path := filepath.Join(traces, "recorded-jct.json")
	got := map[string]map[string]map[string]int{}
	for name, policy := range policies() {
		for _, at := range []string{"1.0", "2.0"} {
			times := map[string]int{}
			for _, job := range simulate(t, load(t, "workloads-"+at+"/workload-1.csv"), policy(), simulator.Artifact()).Jobs {
				times[job.Name] = job.JCT()
			}
			got[name+"-"+at] = map[string]map[string]int{"workload-1": times}
		}
	}
	if *update {
		content, err := json.MarshalIndent(got, "", " ")
		if err == nil {
			err = os.WriteFile(path, append(content, '\n'), 0o600)
		}
		expect.NoError(t, err)
	}
	content, err := os.ReadFile(path)
	expect.NoError(t, err)
	var want map[string]map[string]map[string]int
	expect.NoError(t, json.Unmarshal(content, &want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("times (-recorded +simulated):\n%s", diff)
	}
}

func TestAWorkloadIsReplayedEquallyEachTime(t *testing.T) {
	t.Parallel()
	options := simulator.Artifact()
	options.Lose, options.Seed = 0.3, 7
	both := simulator.Rows()[3]
	replay := func() *simulator.Result {
		workload := simulator.Misdeclare(simulator.StopEarly(load(t, "workloads-1.0/workload-2.csv"), 7), 3, 7)
		return simulate(t, workload, newGoodput(both), options)
	}
	if diff := cmp.Diff(replay(), replay()); diff != "" {
		t.Errorf("the second result differs (-first +second):\n%s", diff)
	}
}

func TestEveryJobEndsWhileNodesFailAndReturn(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		for name, policy := range map[string]simulator.Policy{"goodput": newGoodput(simulator.Rows()[0]), "fit": newFit()} {
			options := simulator.Artifact()
			options.Lose, options.Seed = 0.4, seed
			result := simulate(t, load(t, "workloads-2.0/workload-1.csv"), policy, options)
			restarts := 0
			for _, job := range result.Jobs {
				restarts += job.Restarts
			}
			if restarts < len(result.Jobs)/4 {
				t.Errorf("%s, seed %d: %d restarts of %d jobs: nodes seem not to fail", name, seed, restarts, len(result.Jobs))
			}
		}
	}
}

// script places jobs as a function of the time says.
type script struct {
	target int
	place  func(now int) map[string][]int
}

func (s script) Target(*simulator.Submission) int { return s.target }

func (s script) Place(now int, _ []*simulator.Job, _ simulator.Cluster, _ map[string][]int) map[string][]int {
	return s.place(now)
}

func TestARestartTakesItsTimeWithoutProgress(t *testing.T) {
	t.Parallel()
	workload := load(t, "workloads-1.0/workload-1.csv")[:1]
	workload[0].Time = 0
	run := func(restart int, place func(now int) map[string][]int) simulator.Outcome {
		options := simulator.Artifact()
		options.Restart = restart
		return simulate(t, workload, script{target: workload[0].Application.Bounds.Initial, place: place}, options).Jobs[0]
	}
	name := workload[0].Name
	stays := func(int) map[string][]int { return map[string][]int{name: {0}} }
	moves := func(now int) map[string][]int { return map[string][]int{name: {min(now/120, 1)}} }
	free, first, second := run(0, stays), run(30, stays), run(30, moves)
	if first.JCT()-free.JCT() != 30 || first.Restarts != 0 {
		t.Errorf("the first start takes %d s and %d restarts more, want 30 and 0", first.JCT()-free.JCT(), first.Restarts)
	}
	if second.JCT()-first.JCT() != 30 || second.Restarts != 1 {
		t.Errorf("a move takes %d s and %d restarts more, want 30 and 1", second.JCT()-first.JCT(), second.Restarts)
	}
}

func TestPlacementsBeyondTheClusterAreErrors(t *testing.T) {
	t.Parallel()
	workload := load(t, "workloads-1.0/workload-1.csv")[:1]
	for want, nodes := range map[string][]int{
		"is placed on node 16: must be from 0 to 15":                              {16},
		"more than the 4 GPUs of node 3 are given to jobs":                        {3, 3, 3, 3, 3},
		"with 17 replicas, for which application " + workload[0].Application.Name: {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4},
	} {
		policy := script{target: workload[0].Application.Bounds.Max, place: func(int) map[string][]int { return map[string][]int{workload[0].Name: nodes} }}
		_, err := simulator.Run(workload, policy, simulator.Artifact(), time.Now)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nodes %v: error is %v, want one with %q", nodes, err, want)
		}
	}
}

func TestAPolicyThatPlacesNoJobIsAnError(t *testing.T) {
	t.Parallel()
	workload := load(t, "workloads-1.0/workload-1.csv")[:1]
	options := simulator.Artifact()
	options.Limit = 86400
	_, err := simulator.Run(workload, script{place: func(int) map[string][]int { return nil }}, options, time.Now)
	if err == nil || !strings.Contains(err.Error(), "unfinished after 86400 s") {
		t.Errorf("error is %v, want that jobs are unfinished", err)
	}
}

// recorder keeps the rounds of a policy.
type recorder struct {
	allocation.Policy
	rounds []*allocation.Round
}

func (r *recorder) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	r.rounds = append(r.rounds, round)
	return r.Policy.Optimize(round)
}

func TestPoliciesReadOnlyWhatTheirRowHas(t *testing.T) {
	t.Parallel()
	for _, row := range append(simulator.Rows(), simulator.Row{Name: "fixed", Fixed: true}) {
		policy := &recorder{Policy: goodput.New(goodput.DefaultSettings())}
		simulate(t, load(t, "workloads-1.0/workload-1.csv"), simulator.NewAllocator(policy, row, 30), simulator.Artifact())
		steps := 0
		for _, round := range policy.rounds {
			for _, job := range round.Jobs {
				if (job.Report == nil) != row.Fixed || (job.Group != "") != row.History {
					t.Fatalf("row %s: report %v, group %q", row.Name, job.Report, job.Group)
				}
				if job.Report == nil {
					continue
				}
				steps += len(job.Report.Steps)
				if (job.Report.Progress != nil) != row.Progress {
					t.Fatalf("row %s: progress is %v", row.Name, job.Report.Progress)
				}
			}
			if len(round.Groups) > 0 && !row.History {
				t.Fatalf("row %s has groups", row.Name)
			}
		}
		if (steps > 0) == row.Fixed {
			t.Errorf("row %s: %d steps are reported", row.Name, steps)
		}
	}
}

func TestJobsOfAGroupAreCountedWhenTheyEnd(t *testing.T) {
	t.Parallel()
	policy := &recorder{Policy: goodput.New(goodput.DefaultSettings())}
	workload := load(t, "workloads-1.0/workload-1.csv")
	simulate(t, workload, simulator.NewAllocator(policy, simulator.Rows()[2], 30), simulator.Artifact())
	finished := 0
	for _, group := range policy.rounds[len(policy.rounds)-1].Groups {
		finished += group.Finished
		if group.Finished > 0 && group.Useful <= 0 {
			t.Errorf("%d jobs have finished, and have done %g useful samples", group.Finished, group.Useful)
		}
	}
	if last := len(policy.rounds[len(policy.rounds)-1].Jobs); finished < len(workload)-last-2 || finished > len(workload)-last {
		t.Errorf("%d finished jobs are counted of %d; %d run in the last round", finished, len(workload), last)
	}
}
