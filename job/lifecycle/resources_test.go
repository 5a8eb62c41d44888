// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// sizedTemplate requests 1 CPU and 1Gi, with a limit of 2Gi.
var sizedTemplate = jobs.Raw(`{"spec":{"containers":[{"name":"di-container","image":"image",
	"resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"memory":"2Gi"}}}]}}`)

// sizedJob is a job of three collectors and a learner under the rules of memory and pending.
func sizedJob(edits ...func(*v2alpha1.DIJobSpec)) v2alpha1.DIJobSpec {
	spec := v2alpha1.DIJobSpec{
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeCollector, Name: "collector", Replicas: ptr.To[int32](3), Template: sizedTemplate},
			{Type: v2alpha1.TaskTypeLearner, Name: "learner", Replicas: ptr.To[int32](1), Template: sizedTemplate},
		},
		Autoscale: &v2alpha1.Autoscale{Memory: &v2alpha1.MemoryRule{}, Pending: &v2alpha1.PendingRule{}},
	}
	for _, edit := range edits {
		edit(&spec)
	}
	return spec
}

// failing is an edit of a job whose failed replicas are treated by an action.
func failing(action v2alpha1.FailurePolicyAction) func(*v2alpha1.DIJobSpec) {
	return func(spec *v2alpha1.DIJobSpec) {
		spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{Action: action}}}
	}
}

// kill ends a pod as the kernel does that uses more memory than its limit.
func (w *world) kill(name string) {
	w.end(name, 137)
	w.pod(name).Status.ContainerStatuses[0].State.Terminated.Reason = v2alpha1.ReasonOOMKilled
}

// bind gives pods a node and makes them run with the resources in their spec.
func (w *world) bind(podNames ...string) {
	for _, name := range podNames {
		w.pod(name).Spec.NodeName = "node"
	}
	w.run(podNames...)
	for _, name := range podNames {
		w.actuate(name)
	}
}

// actuate applies the resources in a pod's spec, as its kubelet does.
func (w *world) actuate(name string) {
	pod := w.pod(name)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: names.Container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Resources: names.MainContainerOf(pod).Resources.DeepCopy(),
	}}
}

// starve makes pods unschedulable since now.
func (w *world) starve(podNames ...string) {
	for _, name := range podNames {
		pod := w.pod(name)
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/3 nodes are available: 3 Insufficient cpu.", LastTransitionTime: metav1.NewTime(w.now),
		}}
	}
}

func boundJob(t *testing.T, spec v2alpha1.DIJobSpec) *world {
	t.Helper()
	w := newWorld(t, spec)
	w.settle()
	w.bind(w.podNames()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	return w
}

// memoryOf returns the request and limit of a pod.
func (w *world) memoryOf(name string) string {
	resources := names.MainContainerOf(w.pod(name)).Resources
	return resources.Requests.Memory().String() + "/" + resources.Limits.Memory().String()
}

// overridesOf describes the recorded overrides.
func (w *world) overridesOf() []string {
	var texts []string
	for _, override := range w.job.Status.Scaling.Resources {
		text := override.Task
		if override.Index != nil {
			text += fmt.Sprintf("-%d", *override.Index)
		}
		if override.Slot != "" {
			text += "-" + override.Slot
		}
		texts = append(texts, fmt.Sprintf("%s %s %s %d", text, workload.FormatResources(override.Resources), override.Reason, override.Attempts))
	}
	return texts
}

// record writes an override into the status, as the rules of plans do.
func (w *world) record(override v2alpha1.ResourceOverride) {
	w.change(func(job *v2alpha1.DIJob) {
		job.Status.Scaling.Resources = workload.SetOverride(job.Status.Scaling.Resources, override)
	})
}

func planned(task string, index *int32, cpu, memory string) v2alpha1.ResourceOverride {
	override := v2alpha1.ResourceOverride{Task: task, Index: index, Reason: v2alpha1.OverrideScalePlan}
	if cpu != "" {
		override.Resources.CPU = ptr.To(resource.MustParse(cpu))
	}
	if memory != "" {
		override.Resources.Memory = ptr.To(resource.MustParse(memory))
	}
	return override
}

func TestAnOutOfMemoryReplicaIsRecreatedWithMoreMemory(t *testing.T) {
	w := boundJob(t, sizedJob(failing(v2alpha1.FailurePolicyRestartReplica)))
	w.kill("job-collector-1")
	w.step()
	expect.Equal(t, "recorded before the pod goes", []string{"collector-1 memory=2Gi OutOfMemory 1"}, w.overridesOf())
	expect.Equal(t, "the failed pod is kept", corev1.PodFailed, w.pod("job-collector-1").Status.Phase)
	w.settle()
	expect.Equal(t, "its memory", "2Gi/4Gi", w.memoryOf("job-collector-1"))
	expect.Equal(t, "another one's", "1Gi/2Gi", w.memoryOf("job-collector-0"))
	expect.Equal(t, "pods of another replica", 1, w.created["job-collector-0"])
	expect.Equal(t, "counted restarts", 0, int(w.job.Status.Restarts)+len(w.job.Status.ReplicaRestarts))
	condition := conditions.Find(&w.job.Status, v2alpha1.ConditionResourcesAdjusted)
	const want = "replica 1 of task collector gets memory 2Gi instead of 1Gi, because pod job-collector-1 used more than its limit (attempt 1 of 3)"
	expect.Equal(t, "condition", []string{"True", v2alpha1.OverrideOutOfMemory, want}, []string{string(condition.Status), condition.Reason, condition.Message})
	if !slices.Contains(w.events, v2alpha1.ConditionResourcesAdjusted) {
		t.Errorf("no event of the change among %v", w.events)
	}
}

func TestAllReplicasRestartWithAnOutOfMemoryReplicaUnlessThePolicySaysOtherwise(t *testing.T) {
	w := boundJob(t, sizedJob())
	w.kill("job-learner-0")
	w.settle()
	expect.Equal(t, "counted restarts", int32(0), w.job.Status.Restarts)
	expect.Equal(t, "reschedules", int32(1), w.job.Status.Reschedules)
	for pod, want := range map[string]string{"job-learner-0": "2Gi/4Gi", "job-collector-0": "1Gi/2Gi"} {
		expect.Equal(t, "memory of "+pod, want, w.memoryOf(pod))
		expect.Equal(t, "pods of "+pod, 2, w.created[pod])
	}
}

func TestAPolicyThatFailsTheJobComesBeforeTheMemoryRule(t *testing.T) {
	w := boundJob(t, sizedJob(failing(v2alpha1.FailurePolicyFailJob)))
	w.kill("job-learner-0")
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	expect.Equal(t, "overrides", nil, w.overridesOf())
}

func TestExitCode137AloneIsNoReasonForMoreMemory(t *testing.T) {
	w := boundJob(t, sizedJob(failing(v2alpha1.FailurePolicyRestartReplica)))
	w.end("job-collector-1", 137)
	w.settle()
	expect.Equal(t, "overrides", nil, w.overridesOf())
	expect.Equal(t, "counted restarts", int32(1), w.job.Status.ReplicaRestarts["job-collector-1"])
}

func TestWithoutTheRuleAnOutOfMemoryKillIsAFailure(t *testing.T) {
	w := boundJob(t, sizedJob(func(spec *v2alpha1.DIJobSpec) { spec.Autoscale = nil }))
	w.kill("job-collector-1")
	w.settle()
	expect.Equal(t, "overrides", nil, w.overridesOf())
	expect.Equal(t, "restarts", int32(1), w.job.Status.Restarts)
}

func TestAReplicaThatNeedsTwiceItsMemorySurvivesInTwoAttempts(t *testing.T) {
	for _, growth := range []int32{0, 150, 200, 400} {
		w := boundJob(t, sizedJob(failing(v2alpha1.FailurePolicyRestartReplica), func(spec *v2alpha1.DIJobSpec) {
			spec.Autoscale.Memory.GrowthPercent = &growth
		}))
		need, attempts := int64(4<<30), 0
		for names.MainContainerOf(w.pod("job-collector-0")).Resources.Limits.Memory().Value() < need {
			attempts++
			w.kill("job-collector-0")
			w.settle()
			w.bind("job-collector-0")
			w.settle()
		}
		if attempts > 2 {
			t.Errorf("at growth of %d%% it took %d attempts, want at most 2", growth, attempts)
		}
		expect.Equal(t, "counted restarts", 0, int(w.job.Status.Restarts)+len(w.job.Status.ReplicaRestarts))
	}
}

func TestMemoryAndAttemptsAreLimited(t *testing.T) {
	for name, tc := range map[string]struct {
		rightsizing state.Rightsizing
		max         string
		// want are the requests after each kill; the next kill is a failure.
		want []string
	}{
		"three attempts":             {want: []string{"2Gi/4Gi", "4Gi/8Gi", "8Gi/16Gi"}},
		"the maximum of the job":     {max: "5Gi", want: []string{"2Gi/4Gi", "2560Mi/5Gi"}},
		"that of the installation":   {rightsizing: state.Rightsizing{MaxMemory: ptr.To(resource.MustParse("3Gi"))}, want: []string{"1536Mi/3Gi"}},
		"the largest node":           {max: "5Gi", rightsizing: state.Rightsizing{LargestNode: ptr.To(resource.MustParse("4Gi"))}, want: []string{"2Gi/4Gi"}},
		"the template is at the max": {max: "2Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			w := boundJob(t, sizedJob(failing(v2alpha1.FailurePolicyRestartReplica), func(spec *v2alpha1.DIJobSpec) {
				if tc.max != "" {
					spec.Autoscale.Memory.Max = ptr.To(resource.MustParse(tc.max))
				}
			}))
			w.rightsizing = tc.rightsizing
			for _, want := range tc.want {
				w.kill("job-collector-0")
				w.settle()
				expect.Equal(t, "memory", want, w.memoryOf("job-collector-0"))
				w.bind("job-collector-0")
				w.settle()
			}
			expect.Equal(t, "counted restarts", 0, len(w.job.Status.ReplicaRestarts))
			w.kill("job-collector-0")
			w.settle()
			expect.Equal(t, "counted restarts", int32(1), w.job.Status.ReplicaRestarts["job-collector-0"])
			if !slices.Contains(w.events, v2alpha1.OverrideOutOfMemory) {
				t.Errorf("no event says why memory does not grow: %v", w.events)
			}
		})
	}
}

func TestATemplateWithoutMemoryHasNothingToGrowFrom(t *testing.T) {
	w := boundJob(t, sizedJob(func(spec *v2alpha1.DIJobSpec) { spec.Tasks[0].Template = template }))
	w.kill("job-collector-0")
	w.settle()
	expect.Equal(t, "restarts", int32(1), w.job.Status.Restarts)
}

func TestTheWholeTaskGetsTheMemoryThatTwoReplicasNeeded(t *testing.T) {
	w := boundJob(t, sizedJob(failing(v2alpha1.FailurePolicyRestartReplica)))
	w.rightsizing.ResizesPods = true
	for _, name := range []string{"job-collector-1", "job-collector-1", "job-collector-2"} {
		w.kill(name)
		w.settle()
		w.bind(name)
		w.settle()
	}
	expect.Equal(t, "overrides", []string{"collector memory=4Gi OutOfMemory 2"}, w.overridesOf())
	expect.Equal(t, "the replica that was never killed is resized in place", "4Gi/8Gi", w.memoryOf("job-collector-0"))
	expect.Equal(t, "its pods", 1, w.created["job-collector-0"])
	expect.Equal(t, "another task's memory", "1Gi/2Gi", w.memoryOf("job-learner-0"))
}

func TestMoreMemoryNeverReplacesAPodThatRuns(t *testing.T) {
	for _, resizes := range []bool{false, true} {
		w := boundJob(t, sizedJob(failing(v2alpha1.FailurePolicyRestartReplica)))
		w.rightsizing.ResizesPods, w.refusesResize = resizes, resizes
		w.kill("job-collector-1")
		w.kill("job-collector-2")
		w.settle()
		w.now = w.now.Add(time.Hour)
		w.settle()
		expect.Equal(t, "overrides", []string{"collector memory=2Gi OutOfMemory 1"}, w.overridesOf())
		expect.Equal(t, "pods of the replica that runs", 1, w.created["job-collector-0"])
	}
}

func TestReplicasOfAQueueRestartTogetherForMoreMemory(t *testing.T) {
	w := newWorld(t, sizedJob(failing(v2alpha1.FailurePolicyRestartReplica), func(spec *v2alpha1.DIJobSpec) {
		spec.Scheduling = &v2alpha1.Scheduling{Queue: "queue"}
	}))
	w.kueue = newKueue()
	w.settle()
	w.bind(w.podNames()...)
	w.settle()
	w.kill("job-collector-1")
	w.settle()
	expect.Equal(t, "reschedules", int32(1), w.job.Status.Reschedules)
	expect.Equal(t, "its memory", "2Gi/4Gi", w.memoryOf("job-collector-1"))
	expect.Equal(t, "pods of another replica", 2, w.created["job-collector-0"])
}

func TestAJobStartsWithTheMemoryThatItsGroupNeeded(t *testing.T) {
	spec := sizedJob(func(spec *v2alpha1.DIJobSpec) {
		spec.Group, spec.Autoscale.Memory.Max = "cartpole", ptr.To(resource.MustParse("6Gi"))
	})
	w := newWorld(t, spec)
	w.rightsizing.GroupJob = "earlier"
	w.rightsizing.GroupOverrides = []v2alpha1.ResourceOverride{
		{Task: "collector", Resources: planned("", nil, "4", "16Gi").Resources, Reason: v2alpha1.OverrideOutOfMemory, Attempts: 3},
		{Task: "learner", Index: ptr.To[int32](0), Resources: planned("", nil, "", "512Mi").Resources, Reason: v2alpha1.OverrideOutOfMemory},
		{Task: "gone", Resources: planned("", nil, "", "4Gi").Resources, Reason: v2alpha1.OverrideOutOfMemory},
		planned("learner", nil, "", "8Gi"),
	}
	w.step()
	expect.Equal(t, "recorded before any pod exists", []string{"collector memory=3Gi OutOfMemory 0"}, w.overridesOf())
	expect.Equal(t, "pods", 0, len(w.pods))
	w.settle()
	expect.Equal(t, "a collector's memory", "3Gi/6Gi", w.memoryOf("job-collector-2"))
	expect.Equal(t, "the learner's", "1Gi/2Gi", w.memoryOf("job-learner-0"))
	expect.Equal(t, "pods that were created for nothing", 1, w.created["job-collector-0"])
}

func TestAnUnschedulableReplicaRequestsLess(t *testing.T) {
	w := settled(t, sizedJob())
	w.bind("job-collector-0", "job-collector-2", "job-learner-0")
	w.starve("job-collector-1")
	w.now = w.now.Add(890 * time.Second)
	w.settle()
	expect.Equal(t, "before its time", nil, w.overridesOf())
	w.now = w.now.Add(20 * time.Second)
	w.settle()
	expect.Equal(t, "overrides", []string{"collector-1 cpu=500m,memory=512Mi Unschedulable 1"}, w.overridesOf())
	expect.Equal(t, "its memory", "512Mi/1Gi", w.memoryOf("job-collector-1"))
	expect.Equal(t, "its pods", 2, w.created["job-collector-1"])
	expect.Equal(t, "pods of another replica", 1, w.created["job-collector-0"])
	condition := conditions.Find(&w.job.Status, v2alpha1.ConditionResourcesAdjusted)
	const want = "replica 1 of task collector requests CPU 500m instead of 1 and memory 512Mi instead of 1Gi, because pod job-collector-1 cannot be scheduled (attempt 1 of 3)"
	expect.Equal(t, "condition", []string{v2alpha1.OverrideUnschedulable, want}, []string{condition.Reason, condition.Message})
}

func TestRequestsShrinkThreeTimesAtMostAndNeverBelowTheLeast(t *testing.T) {
	for name, tc := range map[string]struct {
		rule v2alpha1.PendingRule
		want []string
	}{
		"three attempts": {want: []string{"cpu=500m,memory=512Mi", "cpu=250m,memory=256Mi", "cpu=125m,memory=128Mi"}},
		"the least by default": {
			rule: v2alpha1.PendingRule{ShrinkPercent: ptr.To[int32](10), AfterSeconds: ptr.To[int32](10)},
			want: []string{"cpu=100m,memory=128Mi"},
		},
		"the least of the rule": {
			rule: v2alpha1.PendingRule{Min: planned("", nil, "400m", "900Mi").Resources},
			want: []string{"cpu=500m,memory=900Mi", "cpu=400m,memory=900Mi"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, sizedJob(func(spec *v2alpha1.DIJobSpec) { spec.Autoscale.Pending = &tc.rule }))
			w.bind("job-collector-0", "job-collector-2", "job-learner-0")
			var got []string
			for range 8 {
				w.starve("job-collector-1")
				w.settle()
				w.now = w.now.Add(901 * time.Second)
				w.settle()
				if text := w.pod("job-collector-1").Annotations[names.AnnotationResources]; len(got) == 0 || got[len(got)-1] != text {
					got = append(got, text)
				}
			}
			expect.Equal(t, "requests", tc.want, got)
		})
	}
}

func TestAllReplicasThatWaitShrinkAtOnceAndOthersKeepTheirs(t *testing.T) {
	w := settled(t, sizedJob())
	w.bind("job-collector-0", "job-learner-0")
	w.starve("job-collector-1", "job-collector-2")
	w.now = w.now.Add(901 * time.Second)
	w.settle()
	expect.Equal(t, "overrides", []string{"collector cpu=500m,memory=512Mi Unschedulable 1"}, w.overridesOf())
	for pod, want := range map[string]string{"job-collector-0": "1Gi/2Gi", "job-collector-1": "512Mi/1Gi", "job-collector-2": "512Mi/1Gi"} {
		expect.Equal(t, "memory of "+pod, want, w.memoryOf(pod))
	}
}

func TestNoRequestShrinksThatOthersDecideAboutOrThatWouldNotHelp(t *testing.T) {
	for name, edit := range map[string]func(*world, *corev1.Pod){
		"no rule": func(w *world, _ *corev1.Pod) { w.job.Spec.Autoscale.Pending = nil },
		"Kueue's": func(w *world, _ *corev1.Pod) {
			w.kueue, w.job.Spec.Scheduling = newKueue(), &v2alpha1.Scheduling{Queue: "queue"}
		},
		"preempts others":   func(_ *world, pod *corev1.Pod) { pod.Status.NominatedNodeName = "node" },
		"has another cause": func(_ *world, pod *corev1.Pod) { pod.Status.Conditions[0].Message = "0/3 nodes match the selector" },
		"is gated":          func(_ *world, pod *corev1.Pod) { pod.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated },
	} {
		w := settled(t, sizedJob())
		w.bind("job-collector-0", "job-collector-2", "job-learner-0")
		w.starve("job-collector-1")
		edit(w, w.pod("job-collector-1"))
		w.now = w.now.Add(24 * time.Hour)
		w.settle()
		expect.Equal(t, name, nil, w.overridesOf())
	}
}

func TestMemoryOfAKilledReplicaIsNeverReducedForTheScheduler(t *testing.T) {
	w := boundJob(t, sizedJob(failing(v2alpha1.FailurePolicyRestartReplica)))
	w.kill("job-collector-1")
	w.settle()
	w.starve("job-collector-1")
	w.now = w.now.Add(901 * time.Second)
	w.settle()
	expect.Equal(t, "its pod", "cpu=500m,memory=2Gi", w.pod("job-collector-1").Annotations[names.AnnotationResources])
}

func TestAPlanResizesPodsInPlace(t *testing.T) {
	w := boundJob(t, sizedJob())
	w.rightsizing.ResizesPods = true
	w.record(planned("collector", nil, "2", "3Gi"))
	w.settle()
	for _, name := range []string{"job-collector-0", "job-collector-1", "job-collector-2"} {
		expect.Equal(t, "memory of "+name, "3Gi/6Gi", w.memoryOf(name))
		w.actuate(name)
	}
	w.now = w.now.Add(time.Hour)
	w.settle()
	expect.Equal(t, "pods of a replica", 1, w.created["job-collector-0"])
	expect.Equal(t, "another task's memory", "1Gi/2Gi", w.memoryOf("job-learner-0"))
}

func TestPodsThatCannotBeResizedInPlaceAreReplacedOneByOne(t *testing.T) {
	infeasible := func(w *world, pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
		})
	}
	deferred := func(w *world, pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
		})
		w.now = w.now.Add(61 * time.Second)
	}
	for name, tc := range map[string]struct {
		resizes, refuses bool
		then             func(*world, *corev1.Pod)
	}{
		"the API server does not serve it":     {},
		"the API server refuses it":            {resizes: true, refuses: true},
		"the node can never hold it":           {resizes: true, then: infeasible},
		"the node cannot hold it in time":      {resizes: true, then: deferred},
		"the node does nothing until its time": {resizes: true, then: func(w *world, _ *corev1.Pod) { w.now = w.now.Add(61 * time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := boundJob(t, sizedJob())
			w.rightsizing.ResizesPods, w.refusesResize = tc.resizes, tc.refuses
			w.record(planned("collector", nil, "2", ""))
			for range 3 {
				w.step()
			}
			if tc.then != nil {
				for i := range 3 {
					tc.then(w, w.pod(fmt.Sprintf("job-collector-%d", i)))
				}
			}
			for range 3 {
				w.settle()
				var missing []string
				for _, pod := range w.podNames() {
					if w.pod(pod).Spec.NodeName == "" {
						missing = append(missing, pod)
					}
				}
				expect.Equal(t, "pods that start at once", 1, len(missing))
				w.bind(missing...)
			}
			w.settle()
			for i := range 3 {
				pod := fmt.Sprintf("job-collector-%d", i)
				expect.Equal(t, "pods of "+pod, 2, w.created[pod])
				expect.Equal(t, "CPU of "+pod, "2", names.MainContainerOf(w.pod(pod)).Resources.Requests.Cpu().String())
			}
			expect.Equal(t, "restarts", 0, int(w.job.Status.Restarts+w.job.Status.Reschedules))
		})
	}
}

// TestMemoryIsNeverBeyondItsMaximumNorBelowWhatDied applies random kills and waits to a job. The
// requests stay within their bounds, every rule stops after its attempts, and no rule undoes another.
func TestMemoryIsNeverBeyondItsMaximumNorBelowWhatDied(t *testing.T) {
	t.Parallel()
	for seed := range seeds {
		random := newRandom(seed)
		policies := []v2alpha1.FailurePolicyAction{v2alpha1.FailurePolicyRestartReplica, v2alpha1.FailurePolicyIgnore, v2alpha1.FailurePolicyRestartJob}
		w := newWorld(t, sizedJob(failing(policies[random.IntN(3)]), func(spec *v2alpha1.DIJobSpec) {
			spec.BackoffLimit = ptr.To[int32](-1)
			spec.Autoscale.Memory.Max = ptr.To(resource.MustParse("12Gi"))
			spec.Autoscale.Memory.GrowthPercent = ptr.To(110 + random.Int32N(290))
			spec.Autoscale.Pending.ShrinkPercent = ptr.To(10 + random.Int32N(80))
		}))
		w.rightsizing.ResizesPods, w.refusesResize = random.IntN(2) == 0, random.IntN(2) == 0
		died, changes := map[string]int64{}, 0
		last := ""
		for range 120 {
			w.settle()
			if texts := strings.Join(w.overridesOf(), ";"); texts != last {
				last = texts
				changes++
			}
			for _, name := range w.podNames() {
				resources := names.MainContainerOf(w.pod(name)).Resources
				limit := resources.Limits.Memory().Value()
				if limit > 12<<30 || resources.Requests.Memory().Value() < 100<<20 || resources.Requests.Cpu().MilliValue() < 100 {
					t.Fatalf("seed %d: pod %s has %s and %s CPU", seed, name, w.memoryOf(name), resources.Requests.Cpu())
				}
				if w.pod(name).Spec.NodeName == "" && limit < died[name] {
					t.Fatalf("seed %d: pod %s has a limit of %d, and its replica died with %d; %v", seed, name, limit, died[name], w.overridesOf())
				}
			}
			name := w.podNames()[random.IntN(len(w.podNames()))]
			switch random.IntN(4) {
			case 0:
				if w.pod(name).Spec.NodeName != "" {
					died[name] = max(died[name], names.MainContainerOf(w.pod(name)).Resources.Limits.Memory().Value())
					w.kill(name)
				}
			case 1:
				if w.pod(name).Spec.NodeName == "" {
					w.starve(name)
					w.step()
					w.now = w.now.Add(901 * time.Second)
				}
			default:
				w.bind(name)
			}
			w.now = w.now.Add(10 * time.Second)
		}
		if most := 2 * 2 * (3 + 3 + 2); changes > most {
			t.Errorf("seed %d: the overrides changed %d times, want at most %d", seed, changes, most)
		}
	}
}
