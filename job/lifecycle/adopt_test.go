// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// earlier adds a running pod of an earlier release to the world.
func (w *world) earlier(role names.ReplicaType, name string, owners ...metav1.OwnerReference) *corev1.Pod {
	owner := metav1.OwnerReference{
		APIVersion: "diengine.opendilab.org/v1alpha1", Kind: "DIJob", Name: "job", UID: w.job.UID, Controller: ptr.To(true),
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: names.ReplicaLabels("job", role, name),
			OwnerReferences: append([]metav1.OwnerReference{owner}, owners...),
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: names.Container}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	w.pods[name] = pod
	return pod
}

// adoptions returns the slots that adopted pods must name, by pod.
func adoptions(decision Decision) map[string]string {
	slots := map[string]string{}
	for _, pod := range decision.AdoptPods {
		slots[pod.Name] = pod.Annotations[names.AnnotationSlot]
	}
	return slots
}

func TestWhatIsTakenOver(t *testing.T) {
	finished := func(w *world) {
		w.job.Status.Phase = v2alpha1.JobSucceeded
		w.job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: "Succeeded", Status: corev1.ConditionTrue}}
	}
	named := map[string]string{coordinator: "", "job-collector-aaaaa": "collector-aaaaa"}
	nameless := map[string]string{coordinator: "", "job-collector-aaaaa": ""}
	for name, tc := range map[string]struct {
		change func(*world)
		want   map[string]string
	}{
		"of a job that goes on":  {func(*world) {}, named},
		"of a finished job":      {finished, nameless},
		"of a suspended job":     {func(w *world) { w.job.Spec.Suspend = ptr.To(true) }, nameless},
		"of one that has a list": {func(w *world) { w.membership = &v2alpha1.Membership{} }, nameless},
		"of a job that another controller manages": {
			func(w *world) { w.job.Spec.ManagedBy = ptr.To("another") }, map[string]string{},
		},
		"of a worker-led job": {
			func(w *world) { w.job.Spec.Lifecycle = v2alpha1.LifecycleWorkerLed },
			map[string]string{coordinator: "", "job-collector-aaaaa": ""},
		},
		"a pod that is ending": {
			func(w *world) { w.pods["job-collector-aaaaa"].Status.Phase = corev1.PodSucceeded }, nameless,
		},
		"a pod that names a slot": {
			func(w *world) {
				w.pods["job-collector-aaaaa"].Annotations = map[string]string{names.AnnotationSlot: "own"}
			},
			map[string]string{coordinator: "", "job-collector-aaaaa": "own"},
		},
		"a pod whose name is none of its role": {
			func(w *world) { w.earlier(names.ReplicaTypeLearner, "job-collector-bbbbb") },
			map[string]string{coordinator: "", "job-collector-aaaaa": "collector-aaaaa", "job-collector-bbbbb": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, ledJob())
			w.earlier(names.ReplicaTypeCoordinator, coordinator)
			w.earlier(names.ReplicaTypeCollector, "job-collector-aaaaa")
			tc.change(w)
			before := w.job.Status.DeepCopy()
			decision := Decide(w.observe())
			expect.Equal(t, "slots of what is taken over", tc.want, adoptions(decision))
			if len(tc.want) == 0 {
				return
			}
			written := len(decision.CreatePods) + len(decision.CreateServices) + len(decision.DeletePods) + len(decision.DeleteServices)
			if written > 0 || decision.CreateMembership != nil || decision.DeleteMembership || decision.RequeueAfter == 0 {
				t.Errorf("more is decided than to take over: %+v", decision)
			}
			if diff := cmp.Diff(*before, decision.Status); diff != "" {
				t.Errorf("status (-before +after):\n%s", diff)
			}
		})
	}
}

func TestOnlyTheJobsOwnReferenceIsMoved(t *testing.T) {
	w := newWorld(t, ledJob())
	aggregator := w.earlier(names.ReplicaTypeAggregator, "job-aggregator-aaaaa")
	others := []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: aggregator.Name, UID: aggregator.UID, BlockOwnerDeletion: ptr.To(true)},
		{APIVersion: "diengine.opendilab.org/v1alpha1", Kind: "DIJob", Name: "another", UID: "another"},
	}
	learner := w.earlier(names.ReplicaTypeDDPLearner, "job-ddp-learner-bbbbb", others...)
	learner.Spec.Containers[0].Env = []corev1.EnvVar{{Name: names.EnvLocalWorldSize, Value: "2"}}
	stored := learner.OwnerReferences[0]
	stored.APIVersion = "diengine.opendilab.org/v2alpha1"

	decision := Decide(w.observe())
	want := map[string]string{"job-aggregator-aaaaa": "aggregator-aaaaa", "job-ddp-learner-bbbbb": "aggregator-aaaaa"}
	expect.MustEqual(t, "slots of what is taken over", want, adoptions(decision))
	got := decision.AdoptPods[1].OwnerReferences
	expect.Equal(t, "owners", append([]metav1.OwnerReference{stored}, others...), got)
}

func TestWhatComesAfterTheListIsUnknownAndStays(t *testing.T) {
	w := led(t, ledJob())
	w.earlier(names.ReplicaTypeCollector, "job-collector-aaaaa")
	w.settle()
	w.expectPods(coordinator, "job-collector-aaaaa")
	if len(w.membership.Spec.Members) > 0 {
		t.Errorf("the list has members: %+v", w.membership.Spec.Members)
	}
}

func TestAnAnnotationThatIsGoneIsNamedAgainForALostList(t *testing.T) {
	w := led(t, ledJob())
	w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	name := w.current("slot-1")[0]
	w.pods[name].Annotations = nil
	w.membership = nil
	if got := adoptions(Decide(w.observe()))[name]; "job-"+got != name {
		t.Errorf("pod %s is to name slot %q", name, got)
	}
}

func TestPodsAreDoubtedWhereTheyAreToMakeAList(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   bool
	}{
		"not of a new job":              {func(w *world) { w.membership = nil; w.job.Status.Phase = ""; clear(w.pods) }, false},
		"of a job that has lost it":     {func(w *world) { w.membership = nil }, true},
		"not of a job that has one":     {func(*world) {}, false},
		"not of a suspended job":        {func(w *world) { w.membership = nil; w.job.Spec.Suspend = ptr.To(true) }, false},
		"of one with pods and no phase": {func(w *world) { w.membership = nil; w.job.Status.Phase = "" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := led(t, ledJob())
			tc.change(w)
			if doubts := coordinatorled.FindUnconfirmed(w.observe()); doubts.AllPods != tc.want || doubts.Membership != tc.want {
				t.Errorf("doubts are %+v, want all pods and the list: %v", doubts, tc.want)
			}
		})
	}
}

func TestConditionsThatAnEarlierReleaseLeftTrueAreEnded(t *testing.T) {
	w := led(t, ledJob())
	for i := range w.job.Status.Conditions {
		w.job.Status.Conditions[i].Status = corev1.ConditionTrue
	}
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionCreated) {
		t.Errorf("two phases are true: %+v", w.job.Status.Conditions)
	}
}

func TestWorkersOfAnEarlierReleaseAreOfTheAttemptThatTheirJobIsAt(t *testing.T) {
	w := allRunning(t, trainingJob())
	for _, pod := range w.pods {
		delete(pod.Annotations, names.AnnotationAttempt)
	}
	w.job.Status.Restarts, w.job.Status.Reschedules, w.job.Status.Scaling = 2, 1, nil
	for range 3 {
		for _, pod := range Decide(w.observe()).AdoptPods {
			w.pods[pod.Name].Annotations = pod.Annotations
		}
		w.settle()
	}
	w.expectPhase(v2alpha1.JobRunning)
	for name, times := range w.created {
		expect.Equal(t, fmt.Sprintf("pod %s was created", name), 1, times)
	}
	w.end("job-learner-0", 1)
	w.settle()
	if got := w.job.Status.Restarts; got != 3 || w.created["job-collector-1"] != 2 {
		t.Errorf("restarts are %d, collector 1 was created %d times", got, w.created["job-collector-1"])
	}
}
