// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// template is a pod template with the least that a pod needs.
var template = v2alpha1.RawObject{JSON: apiextensionsv1.JSON{
	Raw: []byte(`{"spec":{"containers":[{"name":"di-container","image":"image"}]}}`),
}}

// world is a cluster with one job in it, in memory.
type world struct {
	t          *testing.T
	job        *v2alpha1.DIJob
	pods       map[string]*corev1.Pod
	services   map[string]*corev1.Service
	membership *v2alpha1.Membership
	config     *v2alpha1.AggregatorConfig
	now        time.Time
	uids       int
	slots      int
	events     []string
	// created counts how often each pod was created.
	created map[string]int
}

func newWorld(t *testing.T, spec v2alpha1.DIJobSpec) *world {
	t.Helper()
	return &world{
		t: t,
		job: &v2alpha1.DIJob{
			ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space", UID: "job-uid", Generation: 1},
			Spec:       spec,
		},
		pods:     map[string]*corev1.Pod{},
		services: map[string]*corev1.Service{},
		config: &v2alpha1.AggregatorConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "aggregator-config", Namespace: "di-system"},
			Spec:       v2alpha1.AggregatorConfigSpec{Aggregator: v2alpha1.AggregatorSpec{Template: template}},
		},
		now:     time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		created: map[string]int{},
	}
}

func (w *world) observe() Observed {
	observed := Observed{
		Job: w.job.DeepCopy(), AggregatorConfig: w.config, Now: w.now, Confirmed: true, Drain: DefaultDrain,
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		observed.Pods = append(observed.Pods, w.pods[name].DeepCopy())
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		observed.Services = append(observed.Services, w.services[name].DeepCopy())
	}
	if w.membership != nil {
		observed.Membership = w.membership.DeepCopy()
	}
	return observed
}

// step decides once and does it. It tells whether anything changed.
func (w *world) step() bool {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	observed := w.observe()
	before := observed.Job.DeepCopy()
	decision := Decide(observed)
	if diff := cmp.Diff(before, observed.Job); diff != "" {
		w.t.Fatalf("Decide changed what was observed (-before +after):\n%s", diff)
	}
	w.checkRecordedBeforeDeleting(decision)
	changed := w.act(decision)
	if diff := cmp.Diff(w.job.Status, decision.Status); diff != "" {
		changed = true
	}
	w.job.Status = decision.Status
	for _, event := range decision.Events {
		w.events = append(w.events, event.Reason)
	}
	w.checkInvariants()
	return changed
}

func (w *world) act(decision Decision) bool {
	changed := decision.isAdoption()
	for _, pod := range decision.AdoptPods {
		w.pods[pod.Name] = pod
	}
	for _, service := range decision.AdoptServices {
		w.services[service.Name] = service
	}
	for _, pod := range decision.DeletePods {
		now := metav1.NewTime(w.now)
		w.pods[pod.Name].DeletionTimestamp = &now
		changed = true
	}
	for _, service := range decision.DeleteServices {
		delete(w.services, service.Name)
		changed = true
	}
	if decision.DeleteMembership {
		w.membership = nil
		changed = true
	}
	if decision.CreateMembership != nil {
		w.membership = decision.CreateMembership
		changed = true
	}
	if decision.MembershipStatus != nil {
		w.membership.Status = *decision.MembershipStatus
		changed = true
	}
	for _, service := range decision.CreateServices {
		w.services[service.Name] = service
		changed = true
	}
	for _, pod := range decision.CreatePods {
		if w.pods[pod.Name] != nil {
			w.t.Fatalf("pod %s is created though it exists", pod.Name)
		}
		w.uids++
		pod.UID = types.UID(fmt.Sprintf("pod-%d", w.uids))
		pod.CreationTimestamp = metav1.NewTime(w.now)
		w.pods[pod.Name] = pod
		w.created[pod.Name]++
		changed = true
	}
	return changed
}

// settle lets the operator and the garbage of deleted pods come to rest.
func (w *world) settle() {
	w.t.Helper()
	for range 50 {
		changed := w.step()
		if !w.reap() && !changed {
			return
		}
	}
	w.t.Fatal("the operator comes to no rest")
}

// reap lets the pods that are being deleted go.
func (w *world) reap() bool {
	reaped := false
	for name, pod := range w.pods {
		if isTerminating(pod) {
			delete(w.pods, name)
			reaped = true
		}
	}
	return reaped
}

// run makes pods run and ready as a kubelet would.
func (w *world) run(podNames ...string) {
	for _, name := range podNames {
		pod := w.pod(name)
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
}

// end makes a pod end with an exit code.
func (w *world) end(name string, exitCode int32) {
	pod := w.pod(name)
	pod.Status.Phase = corev1.PodSucceeded
	if exitCode != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.Conditions = nil
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: names.Container,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exitCode, Reason: "Error", FinishedAt: metav1.NewTime(w.now),
		}},
	}}
}

func (w *world) evict(name string) {
	pod := w.pod(name)
	pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted"
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod := w.pods[name]
	if pod == nil {
		w.t.Fatalf("there is no pod %s among %v", name, w.podNames())
	}
	return pod
}

func (w *world) podNames() []string {
	return slices.Sorted(maps.Keys(w.pods))
}

func (w *world) expectPods(want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, w.podNames()); diff != "" {
		w.t.Fatalf("pods (-want +got):\n%s", diff)
	}
}

func (w *world) expectPhase(want v2alpha1.Phase) {
	w.t.Helper()
	if w.job.Status.Phase != want {
		w.t.Fatalf("phase is %q, want %q; conditions %+v", w.job.Status.Phase, want, w.job.Status.Conditions)
	}
}

// checkRecordedBeforeDeleting: a failed pod that is still wanted is deleted
// only when its failure was recorded, or is no failure; and one round of
// failures counts once.
func (w *world) checkRecordedBeforeDeleting(decision Decision) {
	w.t.Helper()
	if IsFinished(&w.job.Status) || IsCoordinatorLed(w.job) {
		return
	}
	if decision.Status.Restarts > w.job.Status.Restarts+1 {
		w.t.Fatalf("restarts go from %d to %d at once", w.job.Status.Restarts, decision.Status.Restarts)
	}
	counts := map[string]bool{}
	for _, seat := range seatReplicas(w.job, wantedCounts(w.job).byTask, &w.job.Status, w.pods).Seats {
		if pod := w.pods[seat.Pod]; pod != nil {
			action, _ := actionFor(w.job, &seat, pod)
			counts[seat.Pod] = hasFailed(w.job, pod) && action != v2alpha1.FailurePolicyIgnore
		}
	}
	for _, pod := range decision.DeletePods {
		recorded := attemptOf(pod) < w.job.Status.Restarts || rescheduleOf(pod) < decision.Status.Reschedules || replicaRestartOf(pod) < w.job.Status.ReplicaRestarts[pod.Name]
		if counts[pod.Name] && !recorded {
			w.t.Fatalf("failed pod %s is deleted before its failure is recorded", pod.Name)
		}
	}
}

// checkInvariants are what must hold at every moment.
func (w *world) checkInvariants() {
	w.t.Helper()
	status := &w.job.Status
	current := 0
	for _, condition := range status.Conditions {
		if isPhase(condition.Type) && condition.Status == corev1.ConditionTrue {
			current++
			if condition.Type != conditionOf(status.Phase, IsCoordinatorLed(w.job)) {
				w.t.Fatalf("condition %s is true in phase %s", condition.Type, status.Phase)
			}
		}
	}
	if current > 1 {
		w.t.Fatalf("%d phase conditions are true: %+v", current, status.Conditions)
	}
	if IsFinished(status) != (status.CompletionTimestamp != nil) {
		w.t.Fatalf("finished is %v and the completion timestamp %v", IsFinished(status), status.CompletionTimestamp)
	}
	if !IsCoordinatorLed(w.job) {
		w.checkRanks()
	}
}

// checkRanks: ranks are unique, and the entry of a pod's rank is the pod itself.
func (w *world) checkRanks() {
	w.t.Helper()
	holders := map[string]string{}
	for name, pod := range w.pods {
		rank := pod.Annotations[names.AnnotationRank]
		if other, taken := holders[rank]; taken {
			w.t.Fatalf("rank %s is held by %s and %s", rank, other, name)
		}
		holders[rank] = name
		env := environmentOf(pod)
		if env[names.EnvDIRank] != rank {
			w.t.Fatalf("pod %s of rank %s is told rank %s", name, rank, env[names.EnvDIRank])
		}
		nodes := strings.Split(env[names.EnvDINodes], ",")
		own := names.WorkerFQDN(name, "job", "space", names.DefaultDomain)
		if at := annotatedNumber(pod, names.AnnotationRank, -1); int(at) >= len(nodes) || nodes[at] != own {
			w.t.Fatalf("pod %s of rank %d is not itself in %v", name, at, nodes)
		}
	}
}

func environmentOf(pod *corev1.Pod) map[string]string {
	env := map[string]string{}
	for _, variable := range pod.Spec.Containers[0].Env {
		env[variable.Name] = variable.Value
	}
	return env
}

// seeds is how many random sequences are tried.
const seeds = 30

// newRandom returns a source of which a failed test can be repeated.
func newRandom(seed int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), 1))
}
