// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// mpiSpec returns the spec of a job of a launcher and workers, with more fields.
func mpiSpec(workers int, more string) string {
	const pod = `template: {spec: {containers: [{name: a}]}}`
	return fmt.Sprintf(`spec: {clusterSpec: [MPI], %s tasks: [{type: none, name: launcher, %s}, {type: none, name: rollout-worker-of-rank, replicas: %d, %s}]}`, more, pod, workers, pod)
}

func TestAnMPIJobThatFitsIsAdmittedAndALargerOneIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec      string
		isRefused bool
	}{
		"many workers":                         {spec: mpiSpec(2500, "")},
		"more than a ConfigMap holds":          {spec: mpiSpec(4900, ""), isRefused: true},
		"few that may become many":             {spec: mpiSpec(2, `elastic: {task: rollout-worker-of-rank, onResize: Continue, maxReplicas: 4900}, `)},
		"many that may become more":            {spec: mpiSpec(3200, `elastic: {task: rollout-worker-of-rank, onResize: Continue, maxReplicas: 4900}, `), isRefused: true},
		"many that restart when they are more": {spec: mpiSpec(2500, `elastic: {task: rollout-worker-of-rank, maxReplicas: 4900}, `)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := ask(t, validateV2, "v2alpha1", tc.spec, "")
			if answer.allowed() == tc.isRefused {
				t.Errorf("allowed: %v: %+v", answer.allowed(), answer.errors)
			}
		})
	}
}

// TestAnMPIJobThatIsAdmittedHasAConfigMap builds the ConfigMaps of the largest jobs that are admitted.
func TestAnMPIJobThatIsAdmittedHasAConfigMap(t *testing.T) {
	t.Parallel()
	for _, slots := range []string{"", "mpi: {slotsPerWorker: 4096}, ", "mpi: {implementation: MPICH, runLauncherAsWorker: true}, "} {
		most := 0
		for workers := 2000; workers < 5000; workers += 25 {
			if answer := ask(t, validateV2, "v2alpha1", mpiSpec(workers, slots), ""); answer.allowed() {
				most = workers
			}
		}
		request := requestOf(t, "v2alpha1", mpiSpec(most, slots), "")
		expect.NoError(t, request.Decode())
		job := request.Job
		assignment := &workload.Assignment{}
		for task, name := range []string{"launcher", "rollout-worker-of-rank"} {
			for index := range int32(max(1, task*most)) {
				pod := names.WorkerPod(job.Name, name, index)
				assignment.Replicas = append(assignment.Replicas, workload.Replica{Task: task, Index: index, Rank: int32(len(assignment.Nodes)), Pod: pod})
				assignment.Nodes = append(assignment.Nodes, pod)
			}
		}
		configMap, err := workload.NewBuilder(job, workload.Settings{}).NodesConfigMap(assignment)
		expect.NoError(t, err)
		size := 0
		for _, value := range configMap.Data {
			size += len(value)
		}
		if size < workload.MaxNodes*8/10 {
			t.Errorf("%d workers are admitted, whose ConfigMap has only %d bytes", most, size)
		}
	}
}

func TestAVariableOfMPIInATemplateIsWarnedAbout(t *testing.T) {
	t.Parallel()
	spec := strings.Replace(mpiSpec(2, ""), "containers: [{name: a}]", "containers: [{name: a, env: [{name: OMPI_MCA_orte_default_hostfile, value: mine}]}]", 1)
	answer := ask(t, validateV2, "v2alpha1", spec, "")
	if len(answer.warnings) != 1 || !strings.Contains(answer.warnings[0], "OMPI_MCA_orte_default_hostfile") {
		t.Errorf("warnings %q", answer.warnings)
	}
}
