// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// clusterWorld returns a running job of a chief, two workers and a parameter server.
func clusterWorld(t *testing.T, frameworks ...v2alpha1.ClusterSpec) *world {
	t.Helper()
	spec := v2alpha1.DIJobSpec{ClusterSpec: frameworks}
	for _, name := range []string{"chief", "worker", "ps"} {
		spec.Tasks = append(spec.Tasks, v2alpha1.Task{Type: v2alpha1.TaskTypeNone, Name: name, Template: template})
	}
	spec.Tasks[1].Replicas = ptr.To(int32(2))
	spec.Elastic = &v2alpha1.Elastic{Task: "worker", MaxReplicas: ptr.To(int32(5))}
	w := newWorld(t, spec)
	w.allRun()
	return w
}

// createdOnce reports whether no pod was recreated.
func (w *world) createdOnce() bool {
	for _, times := range w.created {
		if times > 1 {
			return false
		}
	}
	return true
}

func TestAResizeOfAFixedClusterStartsAllAnewAndTellsAllTheSame(t *testing.T) {
	for name, tc := range map[string]struct {
		frameworks []v2alpha1.ClusterSpec
		onResize   v2alpha1.OnResize
		resize     func(*v2alpha1.DIJob)
		// isContinued is set if no replica restarts.
		isContinued bool
	}{
		"TensorFlow, more workers":          {frameworks: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}, resize: workers(3)},
		"TensorFlow, fewer workers":         {frameworks: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}, resize: workers(1)},
		"Torch, more workers":               {frameworks: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}, resize: workers(3)},
		"Torch, fewer workers":              {frameworks: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}, resize: workers(1)},
		"Torch, which is to go on":          {frameworks: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}, onResize: v2alpha1.OnResizeContinue, resize: workers(3)},
		"dynamic workers, more of them":     {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}, v2alpha1.OnResizeContinue, workers(3), true},
		"dynamic workers, fewer of them":    {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}, v2alpha1.OnResizeContinue, workers(1), true},
		"dynamic workers, and more servers": {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}, v2alpha1.OnResizeContinue, servers(2), false},
		"MPI, more workers":                 {frameworks: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}, resize: workers(3)},
		"MPI, fewer workers":                {frameworks: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}, resize: workers(1)},
		"hosts of MPI, more of them":        {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}, v2alpha1.OnResizeContinue, workers(3), true},
		"hosts of MPI, fewer of them":       {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}, v2alpha1.OnResizeContinue, workers(1), true},
		"hosts of MPI of another task":      {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}, v2alpha1.OnResizeContinue, servers(2), false},
		"MPI and TensorFlow, dynamic":       {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI, v2alpha1.ClusterSpecTensorFlow}, v2alpha1.OnResizeContinue, workers(3), true},
		"MPI and Torch, dynamic":            {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI, v2alpha1.ClusterSpecTorch}, v2alpha1.OnResizeContinue, workers(3), false},
		"both, dynamic":                     {[]v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow, v2alpha1.ClusterSpecTorch}, v2alpha1.OnResizeContinue, workers(3), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := clusterWorld(t, tc.frameworks...)
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Elastic.OnResize = tc.onResize })
			w.allRun()
			before := w.job.Status.Reschedules
			w.created = map[string]int{}
			w.change(tc.resize)
			w.allRun()
			if isContinued := w.job.Status.Reschedules == before; isContinued != tc.isContinued {
				t.Errorf("reschedules go from %d to %d; the job is to go on: %v", before, w.job.Status.Reschedules, tc.isContinued)
			}
			if want := int(sizing.Wanted(w.job).Total); len(w.pods) != want || !w.createdOnce() {
				t.Errorf("%d pods, want %d; created %v", len(w.pods), want, w.created)
			}
		})
	}
}

func workers(count int32) func(*v2alpha1.DIJob) {
	return func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = &count }
}

func servers(count int32) func(*v2alpha1.DIJob) {
	return func(job *v2alpha1.DIJob) { job.Spec.Tasks[2].Replicas = &count }
}

func TestAReplicaThatIsMadeAgainIsToldWhatTheOthersWere(t *testing.T) {
	for name, befall := range map[string]func(*world){
		"it alone restarts": func(w *world) { w.end("job-worker-1", 1) },
		"it is evicted":     func(w *world) { w.evict("job-worker-1") },
		"it is gone":        func(w *world) { delete(w.pods, "job-worker-1") },
	} {
		t.Run(name, func(t *testing.T) {
			w := clusterWorld(t, v2alpha1.ClusterSpecTensorFlow, v2alpha1.ClusterSpecTorch)
			w.change(func(job *v2alpha1.DIJob) {
				job.Spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{Action: v2alpha1.FailurePolicyRestartReplica}}}
			})
			before := w.environmentOf(w.pod("job-worker-1"))
			befall(w)
			w.allRun()
			after := w.environmentOf(w.pod("job-worker-1"))
			// Only this variable is about the replica alone.
			delete(after, names.EnvDIReplicaRestart)
			if diff := cmp.Diff(before, after); diff != "" || w.created["job-worker-1"] != 2 || w.created["job-ps-0"] != 1 {
				t.Errorf("created %v, environment (-before +after):\n%s", w.created, diff)
			}
		})
	}
}

// TestTheFirstIsTheMasterThroughoutAJobsLife includes the attempt after a resize of a suspended
// job.
func TestTheFirstIsTheMasterThroughoutAJobsLife(t *testing.T) {
	w := clusterWorld(t, v2alpha1.ClusterSpecTorch)
	expect := func(size string) {
		t.Helper()
		w.allRun()
		for name, rank := range map[string]string{"job-chief-0": "0", "job-worker-0": "1"} {
			told := w.environmentOf(w.pod(name))
			if told[names.EnvRank] != rank || told[names.EnvWorldSize] != size || told[names.EnvMasterAddr] != "job-chief-0.di-job.space.svc.cluster.local" {
				t.Errorf("%s was told %v, want rank %s of %s", name, told, rank, size)
			}
		}
	}
	expect("4")
	w.change(workers(1))
	expect("3")
	w.end("job-ps-0", 1)
	expect("3")
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	w.settle()
	w.change(workers(4))
	w.settle()
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
	expect("6")
}

func TestPodsThatWereToldOfAnotherClusterStartAnew(t *testing.T) {
	for name, change := range map[string]func(*v2alpha1.DIJob){
		"a framework more": func(job *v2alpha1.DIJob) {
			job.Spec.ClusterSpec = append(job.Spec.ClusterSpec, v2alpha1.ClusterSpecTorch)
		},
		"a resize of which the record was lost": func(job *v2alpha1.DIJob) {
			job.Spec.Tasks[1].Replicas, job.Spec.Tasks[2].Replicas = ptr.To(int32(1)), ptr.To(int32(2))
			job.Status.Scaling, job.Status.Replicas = nil, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := clusterWorld(t, v2alpha1.ClusterSpecTensorFlow)
			w.change(change)
			w.allRun()
			w.expectReschedules(1)
			const want = "the pods have an outdated cluster spec; restarting all replicas"
			expect.Equal(t, "the event", want, w.lastEvents[v2alpha1.ReasonJobRescheduling])
		})
	}
}

func TestAJobThatIsToldOfItsClusterNoLongerGoesOn(t *testing.T) {
	w := clusterWorld(t, v2alpha1.ClusterSpecTensorFlow)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.ClusterSpec = nil })
	w.allRun()
	w.expectReschedules(0)
}

// TestAResizeThatNoPodCouldBeMadeForLeavesThePodsAlone covers the scale subresource and the status,
// which bypass admission. Admission rejects a TF_CONFIG with which no process can start.
func TestAResizeThatNoPodCouldBeMadeForLeavesThePodsAlone(t *testing.T) {
	for name, resize := range map[string]func(*v2alpha1.DIJob){
		"by the scale subresource": func(job *v2alpha1.DIJob) { job.Spec.Elastic.Replicas = ptr.To(int32(4000)) },
		"by the status":            func(job *v2alpha1.DIJob) { job.Status.Replicas = 4000 },
	} {
		t.Run(name, func(t *testing.T) {
			w := clusterWorld(t, v2alpha1.ClusterSpecTensorFlow)
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Elastic.MaxReplicas = nil })
			pods := w.podNames()
			w.change(resize)
			w.settle()
			w.expectPods(pods...)
			w.expectPhase(v2alpha1.JobRunning)
			const want = "spec.clusterSpec: TensorFlow reads the addresses of all 400"
			if got := conditionMessage(&w.job.Status, v2alpha1.ConditionInvalidSpec); !strings.HasPrefix(got, want) {
				t.Errorf("InvalidSpec says %q, want %q", got, want)
			}
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Elastic.Replicas, job.Status.Replicas = ptr.To(int32(2)), 4 })
			w.settle()
			w.expectPods(pods...)
			if got := conditionMessage(&w.job.Status, v2alpha1.ConditionInvalidSpec); got != "" || !w.createdOnce() {
				t.Errorf("InvalidSpec still says %q; pods were made %v", got, w.created)
			}
		})
	}
}
