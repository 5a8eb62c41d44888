// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/sim/simulator"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestErrorsInWorkloadsNameLineValueAndWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	applications, err := simulator.LoadApplications(traces)
	expect.NoError(t, err)
	const header = "name,time,application,num_replicas,batch_size\n"
	for _, test := range []struct{ content, want string }{
		{"", "reading the header"},
		{"name,time\n", "has no column application"},
		{header + "a,0,vision,1,64\n", `line 2: application is "vision": must be one of the directory applications`},
		{header + "a,0,short,1,64\na,-1,short,1,64\n", `line 3: time is "-1": must be a whole number from 0 to`},
		{header + "a,0,short,0,64\n", `num_replicas is "0": must be a whole number from 1 to 1024`},
		{header + "a,0,short,1,32\n", `batch_size is "32": must be a whole number from 64 to 1024`},
		{header + "a,0,short,1,64\na,1,short,1,64\n", `line 3: name is "a", which an earlier line has: names must be unique`},
		{header + ",0,short,1,64\n", "name is empty"},
		{header + "a,0,short\n", "wrong number of fields"},
		{header + strings.Repeat("a,0,short,1,64\n", 100_001), "more than 100000 rows"},
	} {
		path := filepath.Join(t.TempDir(), "workload-1.csv")
		expect.NoError(t, os.WriteFile(path, []byte(test.content), 0o600))
		if _, err := simulator.LoadWorkload(path, applications); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.60q: error is %v, want one with %q", test.content, err, test.want)
		}
	}
}

func TestErrorsInMeasurementsNameTheFile(t *testing.T) {
	t.Parallel()
	for file, test := range map[string]struct{ content, want string }{
		"applications/short/placements.csv":     {"placement,local_bsz,step_time,sync_time\n1,64,NaN,0\n", `placements.csv, line 2: step_time is "NaN": must be a number of 0 or more`},
		"applications/short/validation-64.csv":  {"progress,iteration,grad_sqr,grad_var\n5,1,1,1\n5,2,1,1\n", "progress of epoch 2 is 5: must be more than the previous 5"},
		"applications/short/validation-big.csv": {"", `is named for the batch "big": must be a whole number of 1 or more`},
		"grid-aws/short.csv":                    {"num_nodes\n", "short.csv has no column num_replicas"},
	} {
		directory := t.TempDir()
		expect.NoError(t, os.CopyFS(directory, os.DirFS(traces)))
		expect.NoError(t, os.WriteFile(filepath.Join(directory, file), []byte(test.content), 0o600))
		if _, err := simulator.LoadApplications(directory); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", file, err, test.want)
		}
	}
}

func TestJobsStopEarlyAtARandomPartOfTheirEpochs(t *testing.T) {
	t.Parallel()
	workload := load(t, "workloads-1.0/workload-1.csv")
	early := 0
	for i, job := range simulator.StopEarly(workload, 1) {
		if job.Epochs < 1 || job.Epochs > job.Application.Epochs {
			t.Errorf("%s stops after %d of %d epochs", job.Name, job.Epochs, job.Application.Epochs)
		}
		if job.Epochs < job.Application.Epochs {
			early++
		}
		if workload[i].Epochs != 0 {
			t.Error("the workload is changed itself")
		}
	}
	if early < len(workload)/2 {
		t.Errorf("%d of %d jobs stop early, want most", early, len(workload))
	}
}

func TestTotalsAreWrongByTheFactorInBothDirections(t *testing.T) {
	t.Parallel()
	counts := map[float64]int{}
	workload := load(t, "workloads-1.0/workload-1.csv")
	for _, job := range simulator.Misdeclare(workload, 3, 1) {
		counts[math.Round(job.Declared*100)/100]++
	}
	if counts[3] == 0 || counts[0.33] == 0 || counts[3]+counts[0.33] != len(workload) {
		t.Errorf("declared totals by factor: %v, want 3 and 0.33", counts)
	}
}

func TestJoinedWorkloadsFollowEachOtherAtTheRate(t *testing.T) {
	t.Parallel()
	workload := load(t, "workloads-1.0/workload-1.csv")
	joined := simulator.Join([][]simulator.Submission{workload, workload}, 3600, 2)
	if len(joined) != 2*len(workload) {
		t.Fatalf("%d jobs, want %d", len(joined), 2*len(workload))
	}
	names := map[string]bool{}
	for i, job := range joined {
		names[job.Name] = true
		if i > 0 && job.Time < joined[i-1].Time {
			t.Errorf("%s is submitted at %d s, before the previous job", job.Name, job.Time)
		}
	}
	if len(names) != len(joined) || joined[0].Time != workload[0].Time/2 || joined[len(workload)].Time < 1800 {
		t.Errorf("%d names of %d jobs, the first at %d s, the second workload at %d s", len(names), len(joined), joined[0].Time, joined[len(workload)].Time)
	}
}
