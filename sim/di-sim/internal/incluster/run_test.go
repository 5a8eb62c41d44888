// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/sim/di-sim/internal/incluster"
	"opendilab.org/di-orchestrator/sim/simulator"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// applications returns an application that trains 500 s on one GPU, and scales nearly linearly.
func applications(t *testing.T) map[string]*simulator.Application {
	t.Helper()
	traces := t.TempDir()
	write := func(path string, lines ...string) {
		path = filepath.Join(traces, path)
		expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		expect.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	for _, batch := range []string{"32", "128"} {
		lines := []string{"progress,iteration,grad_sqr,grad_var"}
		for epoch := 1; epoch <= 5; epoch++ {
			lines = append(lines, fmt.Sprintf("%d,%d,1,1000", 100*epoch, 100*epoch))
		}
		write("applications/tiny/validation-"+batch+".csv", lines...)
	}
	places := []string{"placement,local_bsz,step_time,sync_time", "1,16,0.5,0", "1,32,1,0", "2,16,0.55,0.05", "2,32,1.05,0.05"}
	grid := []string{"num_nodes,num_replicas,local_bsz,step_time,sync_time", "1,1,16,0.5,0", "1,1,32,1,0", "1,2,16,0.55,0.05", "1,2,32,1.05,0.05"}
	for replicas := 2; replicas <= 4; replicas++ {
		grid = append(grid, fmt.Sprintf("2,%d,16,0.6,0.1", replicas), fmt.Sprintf("2,%d,32,1.1,0.1", replicas))
	}
	write("applications/tiny/placements.csv", places...)
	write("grid-aws/tiny.csv", grid...)
	found, err := simulator.LoadApplications(traces)
	expect.NoError(t, err)
	return found
}

func workload(t *testing.T) []simulator.Submission {
	t.Helper()
	tiny := applications(t)["tiny"]
	return []simulator.Submission{
		{Name: "first", Time: 10, Application: tiny, Replicas: 2, Batch: 64},
		{Name: "second", Time: 20, Application: tiny, Replicas: 2, Batch: 64},
		{Name: "third", Time: 30, Application: tiny, Replicas: 2, Batch: 64},
	}
}

func rules() simulator.Options {
	rules := simulator.Artifact()
	rules.Nodes, rules.GPUs, rules.Limit = 2, 2, 100_000
	return rules
}

func run(t *testing.T, options incluster.Options) *incluster.Result {
	t.Helper()
	options.Rules, options.Factor, options.ReportInterval, options.Clock = rules(), 200, 30, clock.RealClock{}
	result, err := incluster.Run(t.Context(), workload(t), options)
	expect.NoError(t, err)
	return result
}

func TestJobsOfFixedSizeTrainInTheOperatorAsInTheSimulator(t *testing.T) {
	row := simulator.Row{Fixed: true}
	want, err := simulator.Run(workload(t), simulator.NewAllocator(fit.Fit{}, row, rules().Restart), rules(), time.Now)
	expect.NoError(t, err)
	got := run(t, incluster.Options{Policy: fit.Fit{}, PolicyName: "fit", Row: row})
	for i := range want.Jobs {
		job, simulated := &got.Jobs[i], &want.Jobs[i]
		// A machine that is slow adds to completion times, but not to the time of GPUs.
		if math.Abs(job.GPUSeconds-simulated.GPUSeconds) > 0.05*simulated.GPUSeconds || job.Restarts != simulated.Restarts {
			t.Errorf("job %s has had %.0f GPU seconds and %d restarts, in the simulator %.0f and %d",
				job.Name, job.GPUSeconds, job.Restarts, simulated.GPUSeconds, simulated.Restarts)
		}
	}
	if third := &got.Jobs[2]; third.Completed < got.Jobs[0].Completed+rules().Restart && third.Completed < got.Jobs[1].Completed+rules().Restart {
		t.Errorf("job third ends at %d s, before a job has made room for it", third.Completed)
	}
	if len(got.Rounds) == 0 || len(got.Carried) < len(got.Jobs) {
		t.Errorf("%d rounds and %d carried out placements: want some of both", len(got.Rounds), len(got.Carried))
	}
}

func TestJobsThatReportGrowAlsoUnderNewOperators(t *testing.T) {
	var last incluster.State
	got := run(t, incluster.Options{
		Policy: goodput.New(goodput.DefaultSettings()), PolicyName: "goodput", Row: simulator.Row{Name: "both", Progress: true, History: true}, OperatorLife: 200,
		Show: func(state incluster.State) { last = state },
	})
	restarts := 0
	for i := range got.Jobs {
		restarts += got.Jobs[i].Restarts
	}
	if restarts == 0 {
		t.Error("no job was ever resized")
	}
	if last.Done != len(got.Jobs) || last.Submitted != len(got.Jobs) || last.Training != 0 {
		t.Errorf("the last state is %+v: want all %d jobs done", last, len(got.Jobs))
	}
}

func TestTheClockIsFastOnlyForTheAllowedTime(t *testing.T) {
	real := clocktesting.NewFakeClock(time.Unix(1000, 0))
	simulated := incluster.NewClock(real, 60)
	simulated.Hurry(time.Hour)
	real.Step(time.Second)
	simulated.Hurry(0)
	real.Step(5 * time.Second)
	simulated.Hurry(time.Minute)
	real.Step(3 * time.Second)
	if now := simulated.Seconds(); now != 127 {
		t.Errorf("it is second %d: want 60 + 5 + 60 + 2", now)
	}
	if slow := simulated.SlowFor(); slow != 7*time.Second {
		t.Errorf("it was slow for %s: want 7s", slow)
	}
	if at := simulated.At(127); !at.Equal(simulated.Now()) {
		t.Errorf("second 127 is at %s, and now is %s", at, simulated.Now())
	}
	if took := simulated.Real(time.Minute); took != time.Second {
		t.Errorf("a minute takes %s: want 1s", took)
	}
}
