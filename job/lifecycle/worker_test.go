// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// trainingJob returns a job with a learner, two collectors and an evaluator, in this order.
func trainingJob() v2alpha1.DIJobSpec {
	return v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeLearner, Template: template},
		{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: template},
		{Type: v2alpha1.TaskTypeEvaluator, Template: template},
	}}
}

func TestWorkersRunAndSucceed(t *testing.T) {
	w := newWorld(t, trainingJob())
	w.step()
	w.expectPhase(v2alpha1.JobPending)
	w.settle()
	w.expectPhase(v2alpha1.JobStarting)
	w.expectPods("job-learner-0", "job-collector-0", "job-collector-1", "job-evaluator-0")
	w.run(w.podNames()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	expect.Equal(t, "ready replicas", 4, w.job.Status.ReadyReplicas)
	for _, name := range w.podNames() {
		w.end(name, 0)
	}
	w.settle()
	w.expectPhase(v2alpha1.JobSucceeded)
	expect.Equal(t, "completed ranks", "0-3", w.job.Status.CompletedRanks)
	expect.Equal(t, "result", 0, len(w.services))
	want := []string{"JobPending", "JobStarting", "JobRunning", "JobSucceeded"}
	expect.Equal(t, "events", want, w.events)
}

func TestWorkersKnowTheirPlace(t *testing.T) {
	w := settled(t, trainingJob())
	pod := w.pod("job-collector-1")
	env := w.environmentOf(pod)
	domain := ".di-job.space.svc.cluster.local"
	want := map[string]string{
		"DI_JOB_ID":          "space.job.0",
		"DI_SERVER_URL":      "http://di-server.di-system.svc.cluster.local:8081",
		"DI_RANK":            "2",
		"DI_NODES":           "job-learner-0" + domain + ",job-collector-0" + domain + ",job-collector-1" + domain + ",job-evaluator-0" + domain,
		"DI_COLLECTOR_NODES": "job-collector-0" + domain + ",job-collector-1" + domain,
	}
	expect.Equal(t, "environment", want, env)
}

func TestARoundOfFailuresRestartsOnce(t *testing.T) {
	w := allRunning(t, trainingJob())
	w.end("job-learner-0", 1)
	w.end("job-collector-0", 1)
	w.step()
	w.expectPhase(v2alpha1.JobRestarting)
	w.settle()
	expect.MustEqual(t, "restarts", 1, w.job.Status.Restarts)
	w.expectPhase(v2alpha1.JobStarting)
	for _, pod := range w.pods {
		expect.Equal(t, fmt.Sprintf("pod %s is of attempt", pod.Name), "1", pod.Annotations[names.AnnotationAttempt])
		if id := w.environmentOf(pod)[names.EnvDIJobID]; id != "space.job.1" {
			t.Errorf("pod %s has job id %s, want space.job.1", pod.Name, id)
		}
	}
	if failure := w.job.Status.LastFailure; failure == nil || failure.Pod != "job-learner-0" || *failure.ExitCode != 1 {
		t.Errorf("last failure is %+v, want the learner's with exit code 1", failure)
	}
}

func TestTheBackoffLimitEndsInFailed(t *testing.T) {
	spec := trainingJob()
	spec.BackoffLimit = ptr.To(int32(2))
	w := newWorld(t, spec)
	for range 3 {
		w.settle()
		w.run(w.podNames()...)
		w.end("job-collector-1", 3)
	}
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	expect.Equal(t, "restarts", 2, w.job.Status.Restarts)
	w.expectPods("job-collector-1")
}

func TestCleanPodPolicyOfWorkers(t *testing.T) {
	tests := map[string]struct {
		policy v2alpha1.CleanPodPolicy
		want   []string
	}{
		"by default pods that ran are deleted":  {"", []string{"job-collector-0"}},
		"Running deletes pods that ran":         {v2alpha1.CleanPodPolicyRunning, []string{"job-collector-0"}},
		"All deletes all":                       {v2alpha1.CleanPodPolicyAll, nil},
		"None deletes none, but services still": {v2alpha1.CleanPodPolicyNone, []string{"job-learner-0", "job-collector-0", "job-collector-1", "job-evaluator-0"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := trainingJob()
			spec.BackoffLimit, spec.CleanPodPolicy = ptr.To(int32(0)), tc.policy
			w := settled(t, spec)
			w.run(w.podNames()...)
			w.end("job-collector-0", 1)
			w.settle()
			w.expectPhase(v2alpha1.JobFailed)
			w.expectPods(tc.want...)
			expect.Equal(t, "result", 0, len(w.services))
		})
	}
}

func TestAPodOfWorkersWhoseSidecarGoesOnIsKept(t *testing.T) {
	spec := trainingJob()
	spec.BackoffLimit = ptr.To(int32(0))
	w := settled(t, spec)
	w.run(w.podNames()...)
	w.pod("job-learner-0").Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: names.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}},
	}
	w.end("job-collector-0", 1)
	w.settle()
	w.expectPods("job-collector-0", "job-learner-0")
}

func TestAWorkerHasEndedThoughAContainerThatWasAddedGoesOn(t *testing.T) {
	w := allRunning(t, trainingJob())

	w.outlive("job-collector-0", 0)
	w.settle()
	w.expectPods("job-collector-1", "job-evaluator-0", "job-learner-0")
	expect.MustEqual(t, "completed ranks", "1", w.job.Status.CompletedRanks)

	w.outlive("job-learner-0", 1)
	w.settle()
	if status := &w.job.Status; status.Restarts != 1 || ptr.Deref(status.LastFailure.ExitCode, 0) != 1 {
		t.Fatalf("restarts are %d, the last failure %+v", status.Restarts, status.LastFailure)
	}

	w.run(w.podNames()...)
	for _, name := range w.podNames() {
		w.outlive(name, 0)
	}
	w.settle()
	w.expectPhase(v2alpha1.JobSucceeded)
	w.expectPods()
}

func TestAWorkerThatIsOutlivedIsKeptByPolicyNone(t *testing.T) {
	spec := trainingJob()
	spec.CleanPodPolicy = v2alpha1.CleanPodPolicyNone
	w := settled(t, spec)
	pods := w.podNames()
	w.run(pods...)
	for _, name := range pods {
		w.outlive(name, 0)
		w.settle()
	}
	w.expectPhase(v2alpha1.JobSucceeded)
	w.expectPods(pods...)
}

// TestAWorkerWaitsForTheContainersOfItsTemplate: a sidecar may save the output of the main
// container.
func TestAWorkerWaitsForTheContainersOfItsTemplate(t *testing.T) {
	w := settled(t, trainingJob())
	w.run(w.podNames()...)
	w.outlive("job-collector-0", 0)
	w.pod("job-collector-0").Annotations[names.AnnotationContainers] = names.Container + ",proxy"
	w.settle()
	w.pod("job-collector-0")
	expect.Equal(t, "completed ranks", "", w.job.Status.CompletedRanks)
}

func TestTheMainContainerIsTheOneThatThePodWasMadeWith(t *testing.T) {
	spec := trainingJob()
	spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{
		Action:      v2alpha1.FailurePolicyFailJob,
		OnExitCodes: &v2alpha1.ExitCodesRequirement{Operator: v2alpha1.ExitCodesIn, Values: []int32{42}},
	}}}
	for i := range spec.Tasks {
		spec.Tasks[i].Template.Raw = []byte(`{"spec":{"containers":[{"name":"trainer","image":"image"}]}}`)
	}
	w := settled(t, spec)
	for _, name := range w.podNames() {
		w.inject(name)
	}
	w.run(w.podNames()...)
	w.settle()
	w.end("job-learner-0", 42)
	pod := w.pod("job-learner-0")
	pod.Status.ContainerStatuses[0].Name = "trainer"
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
	})
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	if code := w.job.Status.LastFailure.ExitCode; ptr.Deref(code, 0) != 42 {
		t.Errorf("the last failure is %+v", w.job.Status.LastFailure)
	}
}

func TestWhatBefallsAPodIsNotItsFailure(t *testing.T) {
	tests := map[string]func(*corev1.Pod){
		"refused by the kubelet": func(pod *corev1.Pod) { pod.Status.Reason = "UnexpectedAdmissionError" },
		"no CPU on the node":     func(pod *corev1.Pod) { pod.Status.Reason = "OutOfcpu" },
		"no GPU on the node":     func(pod *corev1.Pod) { pod.Status.Reason = "OutOfnvidia.com/gpu" },
		"evicted by the kubelet": func(pod *corev1.Pod) {
			pod.Status.Reason, pod.Status.Conditions = v2alpha1.ReasonEvicted, disrupted()
		},
		"evicted by a kubelet that sets no condition": func(pod *corev1.Pod) {
			pod.Status.Reason, pod.Status.Message = v2alpha1.ReasonEvicted, "The node was low on resource: memory. "
		},
		"not taken by a node that is short": func(pod *corev1.Pod) {
			pod.Status.Reason, pod.Status.ContainerStatuses = v2alpha1.ReasonEvicted, nil
			pod.Status.Message = "Pod was rejected: The node had condition: [DiskPressure]. "
		},
		"disrupted by a taint":    func(pod *corev1.Pod) { pod.Status.Conditions = disrupted() },
		"deleted while it failed": func(pod *corev1.Pod) { pod.DeletionTimestamp = &pod.CreationTimestamp },
	}
	for name, befall := range tests {
		t.Run(name, func(t *testing.T) {
			w := allRunning(t, trainingJob())
			w.end("job-collector-0", 137)
			befall(w.pod("job-collector-0"))
			w.settle()
			expect.Equal(t, "restarts", 0, w.job.Status.Restarts)
			expect.Equal(t, "the pod was created times", 2, w.created["job-collector-0"])
			expect.Equal(t, "the new pod has rank", "1", w.pod("job-collector-0").Annotations[names.AnnotationRank])
			w.expectPhase(v2alpha1.JobRunning)
		})
	}
}

func TestAPodThatIsEvictedOverALimitOfItsOwnHasFailed(t *testing.T) {
	spec := trainingJob()
	spec.BackoffLimit = ptr.To(int32(1))
	w := newWorld(t, spec)
	for restarts := range int32(2) {
		w.allRun()
		expect.MustEqual(t, "restarts", restarts, w.job.Status.Restarts)
		w.overuse("job-collector-0")
	}
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	failure := w.job.Status.LastFailure
	if failure.Reason != v2alpha1.ReasonEvicted || !strings.Contains(failure.Message, "EmptyDir") {
		t.Errorf("the last failure is %+v", failure)
	}
	if failed := conditions.Find(&w.job.Status, string(v2alpha1.JobFailed)); !strings.Contains(failed.Message, "(Evicted)") {
		t.Errorf("the job says %q", failed.Message)
	}
}

func TestAPreemptedPodIsMadeAgainUncounted(t *testing.T) {
	tests := map[string]struct {
		preemptible  bool
		exitCode     int32
		wantRestarts int32
	}{
		"it saved its work and left":                {true, 143, 0},
		"it failed":                                 {true, 1, 1},
		"it left a job that may not be interrupted": {false, 143, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := trainingJob()
			spec.Preemptible = tc.preemptible
			w := newWorld(t, spec)
			w.job.Status.Allocation = []string{"node", "node", "node", "node"}
			w.settle()
			w.run(w.podNames()...)
			w.end("job-collector-0", tc.exitCode)
			w.settle()
			expect.Equal(t, "restarts", tc.wantRestarts, w.job.Status.Restarts)
			expect.Equal(t, "the pod was created times", 2, w.created["job-collector-0"])
		})
	}
}

func disrupted() []corev1.PodCondition {
	return []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
}

func TestASucceededPodThatDisappearsIsNotMadeAgain(t *testing.T) {
	w := settled(t, trainingJob())
	w.run(w.podNames()...)
	w.end("job-evaluator-0", 0)
	w.settle()
	delete(w.pods, "job-evaluator-0")
	w.settle()
	w.expectPods("job-learner-0", "job-collector-0", "job-collector-1")
	for _, name := range w.podNames() {
		w.end(name, 0)
	}
	w.settle()
	w.expectPhase(v2alpha1.JobSucceeded)
}

func TestTheEndStaysWhenAllPodsAreGone(t *testing.T) {
	w := settled(t, trainingJob())
	for _, name := range w.podNames() {
		w.end(name, 0)
	}
	w.settle()
	clear(w.pods)
	before := w.job.Status.CompletionTimestamp
	w.settle()
	w.expectPhase(v2alpha1.JobSucceeded)
	w.expectPods()
	if !before.Equal(w.job.Status.CompletionTimestamp) {
		t.Error("the completion timestamp moved")
	}
}

func TestPodsRememberRestartsThatTheStatusLost(t *testing.T) {
	w := settled(t, trainingJob())
	w.end("job-learner-0", 1)
	w.settle()
	w.job.Status = v2alpha1.DIJobStatus{}
	w.settle()
	expect.Equal(t, "restarts", 1, w.job.Status.Restarts)
	expect.Equal(t, "the learner was created times", 2, w.created["job-learner-0"])
}

func TestResizingByTheStatus(t *testing.T) {
	tests := map[string]struct {
		elastic  *v2alpha1.Elastic
		replicas int32
		want     int32
	}{
		"more":                     {nil, 6, 6},
		"fewer":                    {nil, 3, 3},
		"fewer than the others":    {nil, 1, 2},
		"no total is no wish":      {nil, 0, 4},
		"held by the maximum":      {&v2alpha1.Elastic{MaxReplicas: ptr.To(int32(3))}, 9, 5},
		"held by the minimum":      {&v2alpha1.Elastic{MinReplicas: ptr.To(int32(1))}, 2, 3},
		"another task is resized":  {&v2alpha1.Elastic{Task: "evaluator"}, 7, 7},
		"no such task, so none is": {&v2alpha1.Elastic{Task: "other"}, 7, 4},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := trainingJob()
			spec.Elastic = tc.elastic
			w := allRunning(t, spec)
			w.job.Status.Replicas = tc.replicas
			w.settle()
			if got := w.job.Status.Replicas; got != tc.want || len(w.pods) != int(tc.want) {
				t.Errorf("replicas are %d with %d pods, want %d", got, len(w.pods), tc.want)
			}
			w.expectPhase(v2alpha1.JobRunning)
			w.job.Spec.Tasks[0].Replicas = ptr.To(int32(2))
			w.settle()
			expect.Equal(t, "replicas after the spec changed", 5, w.job.Status.Replicas)
		})
	}
}

func TestATotalThatIsAskedForBeforeTheFirstPassIsHonoured(t *testing.T) {
	w := newWorld(t, trainingJob())
	w.job.Status.Replicas = 6
	w.settle()
	if got := w.job.Status.Replicas; got != 6 || len(w.pods) != 6 {
		t.Errorf("replicas are %d with %d pods, want 6", got, len(w.pods))
	}
}

func TestElasticReplicasWin(t *testing.T) {
	spec := trainingJob()
	spec.Elastic = &v2alpha1.Elastic{Replicas: ptr.To(int32(4))}
	w := settled(t, spec)
	status := &w.job.Status
	if status.Replicas != 6 || status.ElasticReplicas != 4 {
		t.Errorf("replicas are %d, elastic %d, want 6 and 4", status.Replicas, status.ElasticReplicas)
	}
	if want := "diengine/job=job,diengine/operator=di-operator,diengine/task-name=collector"; status.Selector != want {
		t.Errorf("selector is %q, want %q", status.Selector, want)
	}
}

func TestGrowthTakesTheRanksThatShrinkingLeft(t *testing.T) {
	w := settled(t, trainingJob())
	w.job.Status.Replicas = 3
	w.settle()
	w.expectPods("job-learner-0", "job-collector-0", "job-evaluator-0")
	w.job.Status.Replicas = 5
	w.settle()
	got := map[string]string{}
	for name, pod := range w.pods {
		got[name] = pod.Annotations[names.AnnotationRank]
	}
	want := map[string]string{
		"job-learner-0": "0", "job-collector-0": "1", "job-collector-1": "2", "job-evaluator-0": "3", "job-collector-2": "4",
	}
	expect.Equal(t, "ranks", want, got)
	for _, name := range []string{"job-learner-0", "job-collector-0", "job-evaluator-0"} {
		expect.Equal(t, name+" was created", 1, w.created[name])
	}
}

func TestAHoleKeepsTheNameOfWhoLeftIt(t *testing.T) {
	w := settled(t, trainingJob())
	w.job.Status.Replicas = 3
	w.settle()
	w.evict("job-evaluator-0")
	w.settle()
	env := w.environmentOf(w.pod("job-evaluator-0"))
	domain := ".di-job.space.svc.cluster.local"
	want := "job-learner-0" + domain + ",job-collector-0" + domain + ",job-collector-1" + domain + ",job-evaluator-0" + domain
	expect.Equal(t, "DI_NODES", want, env[names.EnvDINodes])
}

func TestATemplateThatDoesNotDecodeIsSaid(t *testing.T) {
	for name, broken := range map[string]string{
		"of wrong type":                         `{"spec":{"containers":"none"}}`,
		"a quantity that takes hours to decode": `{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-2000000000"}}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			spec := trainingJob()
			spec.Tasks[1].Template.Raw = []byte(broken)
			w := settled(t, spec)
			condition := conditions.Find(&w.job.Status, v2alpha1.ConditionInvalidSpec)
			if condition == nil || condition.Status != corev1.ConditionTrue {
				t.Fatalf("conditions are %+v, want InvalidSpec", w.job.Status.Conditions)
			}
			w.job.Spec.Tasks[1].Template = template
			w.settle()
			if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionInvalidSpec) {
				t.Error("InvalidSpec stays though the spec is mended")
			}
			w.expectPods("job-learner-0", "job-collector-0", "job-collector-1", "job-evaluator-0")
		})
	}
}

func TestAJobOfAnotherControllerIsLeftAlone(t *testing.T) {
	spec := trainingJob()
	spec.ManagedBy = ptr.To("kueue.x-k8s.io/multikueue")
	w := settled(t, spec)
	w.expectPods()
	expect.Equal(t, "status", v2alpha1.DIJobStatus{}, w.job.Status)
}

// TestWorkersInAnyOrder applies random events to a job. The invariants are checked at every step.
// Once the events stop, the job must succeed.
func TestWorkersInAnyOrder(t *testing.T) {
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := newRandom(seed)
			spec := trainingJob()
			spec.BackoffLimit = ptr.To(int32(-1))
			spec.FailurePolicy = anyPolicy(random)
			spec.Preemptible = random.IntN(2) == 0
			spec.Elastic = &v2alpha1.Elastic{OnResize: []v2alpha1.OnResize{"", v2alpha1.OnResizeContinue, v2alpha1.OnResizeRestart}[random.IntN(3)]}
			spec.ClusterSpec = anyClusterSpec(random)
			w := newWorld(t, spec)
			for range 120 {
				w.mischief(random)
				if random.IntN(3) > 0 {
					w.step()
				}
			}
			w.job.Status.Allocation = anyAllocation(random, 5)
			w.settle()
			for range 20 {
				w.run(w.running()...)
				w.settle()
				for _, name := range w.running() {
					w.end(name, 0)
				}
				w.settle()
				if state.IsFinished(&w.job.Status) {
					break
				}
				w.now = w.now.Add(disruptions.FirstBackoff)
				w.settle()
			}
			w.expectPhase(v2alpha1.JobSucceeded)
		})
	}
}

// anyAllocation returns an allocation of that many ranks.
func anyAllocation(random *rand.Rand, ranks int) []string {
	var nodes []string
	for range ranks {
		nodes = append(nodes, string(rune('a'+random.IntN(2))))
	}
	return nodes
}

// anyPolicy returns a failure policy with which no failure fails the job.
func anyPolicy(random *rand.Rand) *v2alpha1.FailurePolicy {
	actions := []v2alpha1.FailurePolicyAction{
		v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyRestartReplica, v2alpha1.FailurePolicyIgnore,
	}
	policy := &v2alpha1.FailurePolicy{}
	for _, task := range []string{"learner", "collector", "evaluator"} {
		policy.Rules = append(policy.Rules, v2alpha1.FailurePolicyRule{Action: actions[random.IntN(3)], Tasks: []string{task}})
	}
	return policy
}

// mischief applies one random event to the job.
func (w *world) mischief(random *rand.Rand) {
	if w.job.Spec.Preemptible && random.IntN(8) == 0 {
		w.job.Status.Allocation = anyAllocation(random, random.IntN(7))
		return
	}
	if choice := random.IntN(9); choice == 0 {
		w.job.Status.Replicas = 1 + random.Int32N(8)
		return
	} else if choice == 1 {
		w.job.Spec.Tasks[random.IntN(3)].Replicas = ptr.To(1 + random.Int32N(4))
		return
	} else if choice < 4 {
		w.reap()
		return
	}
	pods := w.podNames()
	if len(pods) == 0 {
		return
	}
	name := pods[random.IntN(len(pods))]
	if pod := w.pods[name]; podstate.Finished(pod) || podstate.Terminating(pod) {
		return
	}
	switch random.IntN(9) {
	case 0:
		w.end(name, 1)
	case 1:
		w.evict(name)
	case 2:
		delete(w.pods, name)
	case 3:
		w.pods[name].DeletionTimestamp = &w.pods[name].CreationTimestamp
	default:
		w.run(name)
	}
}

// running returns the pods that have not finished.
func (w *world) running() []string {
	var running []string
	for _, name := range w.podNames() {
		if pod := w.pods[name]; podstate.Active(pod) {
			running = append(running, name)
		}
	}
	return running
}
