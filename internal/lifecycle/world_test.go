// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/lifecycle/workerled"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// template is a pod template with only the required fields.
var template = v2alpha1.RawObject{JSON: apiextensionsv1.JSON{
	Raw: []byte(`{"spec":{"containers":[{"name":"di-container","image":"image"}]}}`),
}}

// judge receives failed checks: a test, or the player of a sequence that is shortened.
type judge interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is an in-memory cluster with one job: the content of the API server.
type world struct {
	t          judge
	job        *v2alpha1.DIJob
	pods       map[string]*corev1.Pod
	services   map[string]*corev1.Service
	configMaps map[string]*corev1.ConfigMap
	membership *v2alpha1.Membership
	// plans are the stored ScalePlans, by name.
	plans map[string]*v2alpha1.ScalePlan
	// gangs are the available schedulers. group is the stored PodGroup, nil for none.
	gangs  state.Gangs
	group  *unstructured.Unstructured
	config *v2alpha1.AggregatorConfig
	// settings are the settings of the installation.
	settings workload.Settings
	now      time.Time
	// clocks are how far the clocks of the actors are ahead of now.
	clocks clocks
	// sightings are what the operator remembers.
	sightings state.Sightings
	uids      int
	slots     int
	events    []string
	// lastEvents are the messages of the last events, by reason.
	lastEvents map[string]string
	// created counts how often each pod was created.
	created map[string]int
	// rightsizing is what limits and informs a change of resources. refusesResize makes the API
	// server refuse to resize a pod in place.
	rightsizing   state.Rightsizing
	refusesResize bool
	// kueue simulates Kueue; nil if it is not installed.
	kueue *kueue
	// looksForKueue is set if the operator knows that Kueue is not installed.
	looksForKueue bool
	// cache is the operator's cache; nil if the operator observes every write at once.
	cache *cache
	// fate returns the outcome of the next write; nil if all succeed.
	fate func() fate
	// isBusy is set if other jobs wait to be reconciled.
	isBusy bool
	// knows are the pods that have read a membership that lists them, with the last version that
	// they acknowledged.
	knows map[types.UID]int64
	// listed are the pods that each version of the membership lists, as its operator saw them.
	listed map[int64]map[types.UID]bool
	// leaves is since when a version lists a pod as leaving, by no actor's clock.
	leaves map[types.UID]time.Time
	// failed is set if a write of this reconcile failed, died if the operator exited.
	failed, died bool
	// isDecidedSynced is set if the cache was up to date at the last decision.
	isDecidedSynced bool
	history         history
	// trace records what happened, so that a failed check can be understood.
	isTraced bool
	trace    []string
}

// clocks are how far the clocks of the actors differ from the world's time.
type clocks struct {
	operator, api, node, server time.Duration
}

// anyClocks returns clocks that differ by up to an hour. Some worlds have equal ones.
func anyClocks(random *rand.Rand) clocks {
	if random.IntN(4) == 0 {
		return clocks{}
	}
	return clocks{operator: anySkew(random), api: anySkew(random), node: anySkew(random), server: anySkew(random)}
}

// anySkew returns how far a clock differs: by half an hour at most, and often by seconds.
func anySkew(random *rand.Rand) time.Duration {
	most := []time.Duration{30 * time.Second, 30 * time.Minute}[random.IntN(2)]
	return time.Duration(random.Int64N(2*int64(most))) - most
}

// spread returns how far the clocks are apart.
func (c clocks) spread() time.Duration {
	return max(c.operator, c.api, c.node, c.server) - min(c.operator, c.api, c.node, c.server)
}

// by returns the time by an actor's clock.
func (w *world) by(clock time.Duration) time.Time { return w.now.Add(clock) }

// takeOver makes another operator, with a clock of its own, take over from the one that has died.
func (w *world) takeOver(random *rand.Rand) {
	w.sightings = state.Sightings{}
	if w.clocks != (clocks{}) {
		w.clocks.operator = anySkew(random)
	}
	w.tell("another operator starts, %s ahead", w.clocks.operator)
	w.resync()
}

// fate is the outcome of a write.
type fate int

const (
	written fate = iota
	// refused is a write that is rejected. unanswered is a write that succeeds without an answer to
	// the operator.
	refused
	unanswered
	// deadBefore and deadAfter end the operator before and after a write.
	deadBefore
	deadAfter
)

func newWorld(t judge, spec v2alpha1.DIJobSpec) *world {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &world{
		t: t,
		job: &v2alpha1.DIJob{
			ObjectMeta: metav1.ObjectMeta{
				Name: "job", Namespace: "space", UID: "job-uid", Generation: 1, CreationTimestamp: metav1.NewTime(now),
			},
			Spec: spec,
		},
		lastEvents: map[string]string{},
		pods:       map[string]*corev1.Pod{},
		services:   map[string]*corev1.Service{}, configMaps: map[string]*corev1.ConfigMap{}, plans: map[string]*v2alpha1.ScalePlan{},
		config: &v2alpha1.AggregatorConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "aggregator-config", Namespace: "di-system"},
			Spec:       v2alpha1.AggregatorConfigSpec{Aggregator: v2alpha1.AggregatorSpec{Template: template}},
		},
		now:     now,
		created: map[string]int{},
		knows:   map[types.UID]int64{},
		listed:  map[int64]map[types.UID]bool{},
		leaves:  map[types.UID]time.Time{},
		history: newHistory(),
	}
}

func (w *world) tell(format string, args ...any) {
	if w.isTraced {
		w.trace = append(w.trace, fmt.Sprintf(format, args...))
	}
}

func (w *world) observe() Observed {
	known := w.cache
	if known == nil {
		known = &cache{job: w.job, pods: w.pods, services: w.services, configMaps: w.configMaps, group: w.group}
	}
	observed := Observed{
		Job: known.job.DeepCopy(), AggregatorConfig: w.config, Now: w.by(w.clocks.operator), Confirmed: true, Drain: state.DefaultDrain, Kueue: w.kueue != nil, Gangs: w.gangs,
		Rightsizing: w.rightsizing, Settings: w.settings,
		NoKueue: w.looksForKueue && w.kueue == nil && queueing.ForJob(known.job).Queue != "",
	}
	if known.group != nil {
		observed.PodGroups = []*unstructured.Unstructured{known.group.DeepCopy()}
	}
	for _, name := range slices.Sorted(maps.Keys(known.pods)) {
		pod := known.pods[name].DeepCopy()
		// The caches of the operator hold pods like this.
		podstate.Trim(pod)
		observed.Pods = append(observed.Pods, pod)
	}
	for _, name := range slices.Sorted(maps.Keys(known.services)) {
		observed.Services = append(observed.Services, known.services[name].DeepCopy())
	}
	for _, name := range slices.Sorted(maps.Keys(known.configMaps)) {
		observed.ConfigMaps = append(observed.ConfigMaps, known.configMaps[name])
	}
	// Objects that are missing from the cache are read live.
	for _, name := range workerled.FindMissingNodes(observed) {
		if configMap := w.configMaps[name]; configMap != nil {
			observed.ConfigMaps = append(observed.ConfigMaps, configMap)
		}
	}
	if w.membership != nil {
		observed.Membership = w.membership.DeepCopy()
	}
	observed.Plans = w.unfinishedPlans()
	w.sightings.See(&observed)
	return observed
}

// step decides once and acts on the decision, as a reconciler does. It writes the objects in the
// order of the decision, and then the status, even if a write failed. It reports whether anything
// changed.
func (w *world) step() bool {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	w.failed, w.died = false, false
	w.reviewPlans()
	observed := w.observe()
	reconciled, before := newReconcile(observed), newReconcile(copyObserved(&observed))
	decision, cause := reconciled.decide()
	w.checkInput(before, reconciled)
	if w.isTraced {
		w.tell("pass: sees %s; %s", outlinePods(observed.Pods), outlineDecision(&observed, &decision, cause))
	}
	w.isDecidedSynced = w.isSynced()
	w.checkDecision(&observed, &decision, cause)
	changed := w.act(&decision)
	if !w.died {
		committed := w.commit(&observed, &decision)
		changed = committed || w.writeCounts(&observed, &decision) || changed
	}
	w.checkInvariants()
	return changed
}

// write performs one write with the outcome of its fate.
func (w *world) write(do func()) {
	if w.died {
		return
	}
	var how fate
	if w.fate != nil {
		how = w.fate()
	}
	if how != refused && how != deadBefore {
		do()
	}
	if how != written {
		w.tell("  the write ends as %d", how)
	}
	w.failed = w.failed || how == refused || how == unanswered
	w.died = how == deadBefore || how == deadAfter
}

// restore puts back what others changed, and reports whether there is anything.
func (w *world) restore(decision *Decision) bool {
	for _, pod := range decision.RestorePods {
		w.write(func() {
			restored := w.pods[pod.Name].DeepCopy()
			restored.Labels, restored.Annotations, restored.OwnerReferences = pod.Labels, pod.Annotations, pod.OwnerReferences
			w.pods[pod.Name] = restored
		})
	}
	for _, service := range decision.RestoreServices {
		w.write(func() { w.services[service.Name] = service })
	}
	return len(decision.RestorePods)+len(decision.RestoreServices) > 0
}

func (w *world) act(decision *Decision) bool {
	changed := decision.IsAdoption()
	for _, pod := range decision.AdoptPods {
		w.write(func() { w.pods[pod.Name] = pod })
	}
	for _, service := range decision.AdoptServices {
		w.write(func() { w.services[service.Name] = service })
	}
	changed = w.restore(decision) || changed
	for _, pod := range decision.ReleasePods {
		w.write(func() { w.release(pod) })
		changed = true
	}
	changed = w.actOnDeletions(decision) || changed
	changed = w.actOnResizes(decision) || changed
	w.actOnMembership(decision, &changed)
	if changed = w.actOnGroup(decision) || changed; w.failed {
		return changed
	}
	if changed = w.actOnNodes(decision) || changed; w.failed {
		return changed
	}
	for _, service := range decision.CreateServices {
		w.write(func() { w.services[service.Name] = service })
		changed = true
	}
	for _, pod := range decision.CreatePods {
		if w.pods[pod.Name] == nil {
			w.write(func() { w.create(pod) })
			changed = true
		} else if w.cache == nil {
			w.t.Fatalf("pod %s is created though it exists", pod.Name)
		}
	}
	return changed
}

// actOnDeletions deletes pods, services and ConfigMaps.
func (w *world) actOnDeletions(decision *Decision) bool {
	changed := false
	for _, pod := range decision.DeletePods {
		// Only the pod with the observed UID is deleted.
		if stored := w.pods[pod.Name]; stored != nil && stored.UID == pod.UID && !podstate.Terminating(stored) {
			w.write(func() { w.terminate(pod.Name) })
			changed = true
		}
	}
	for _, service := range decision.DeleteServices {
		w.write(func() { delete(w.services, service.Name) })
		changed = true
	}
	for _, configMap := range decision.DeleteConfigMaps {
		if stored := w.configMaps[configMap.Name]; stored != nil && stored.UID == configMap.UID {
			w.write(func() {
				delete(w.configMaps, configMap.Name)
				w.noteUnknownReferrers(configMap.Name)
			})
			changed = true
		}
	}
	return changed
}

// actOnResizes resizes pods in place, or records that the API server refuses to. The node has not
// applied the resources yet.
func (w *world) actOnResizes(decision *Decision) bool {
	for _, resized := range decision.ResizePods {
		w.write(func() {
			stored := w.pods[resized.Name]
			if stored == nil || stored.UID != resized.UID {
				return
			}
			if w.refusesResize {
				metav1.SetMetaDataAnnotation(&stored.ObjectMeta, names.AnnotationResizeRefused, resized.Annotations[names.AnnotationResources])
				return
			}
			stored.Spec, stored.Annotations = *resized.Spec.DeepCopy(), maps.Clone(resized.Annotations)
		})
	}
	return len(decision.ResizePods) > 0
}

// actOnNodes creates ConfigMaps. An earlier reconcile may have created one with the same content.
func (w *world) actOnNodes(decision *Decision) bool {
	changed := false
	for _, configMap := range decision.CreateConfigMaps {
		switch stored := w.configMaps[configMap.Name]; {
		case stored == nil:
			w.write(func() {
				w.uids++
				configMap = configMap.DeepCopy()
				configMap.UID = types.UID(fmt.Sprintf("configmap-%d", w.uids))
				w.configMaps[configMap.Name] = configMap
			})
			changed = true
		case !workload.IsNodesConfigMap(w.job, stored):
			w.failed = true
		}
	}
	return changed
}

func (w *world) actOnMembership(decision *Decision, changed *bool) {
	if decision.DeleteMembership {
		w.membership = nil
		*changed = true
	}
	if decision.CreateMembership != nil {
		w.membership = decision.CreateMembership
		*changed = true
	}
	if decision.UpdateMembership != nil {
		w.membership.Spec = decision.UpdateMembership.Spec
		*changed = true
	}
	if decision.MembershipStatus != nil {
		w.membership.Status = *decision.MembershipStatus
		*changed = true
	}
}

func (w *world) create(pod *corev1.Pod) {
	w.uids++
	pod = pod.DeepCopy()
	pod.UID = types.UID(fmt.Sprintf("pod-%d", w.uids))
	pod.CreationTimestamp = metav1.NewTime(w.by(w.clocks.api))
	if w.kueue != nil {
		w.kueue.takeUp(pod)
	}
	w.pods[pod.Name] = pod
	w.created[pod.Name]++
	w.checkCreation(pod)
}

// terminate requests the deletion of a pod.
func (w *world) terminate(name string) {
	now := metav1.NewTime(w.by(w.clocks.api))
	w.pods[name].DeletionTimestamp = &now
}

// commit patches the job's status, unless another job has the name now. It reports whether there
// was anything to patch.
func (w *world) commit(observed *Observed, decision *Decision) bool {
	outcome := Conclude(observed, decision, &Effects{Failed: w.failed, OthersWait: w.isBusy})
	status := outcome.Status
	if equality.Semantic.DeepEqual(observed.Job.Status, status) {
		return false
	}
	if w.job.ResourceVersion != observed.Job.ResourceVersion {
		w.tell("  conflict")
		return true
	}
	w.write(func() {
		w.checkCommit(&status)
		w.history.recordRanks(observed, decision)
		w.recordListed(observed, &status)
		w.change(func(job *v2alpha1.DIJob) { job.Status = status })
		w.history.recorded = versionOf(w.job)
		for _, event := range outcome.Events {
			w.events = append(w.events, event.Reason)
			w.lastEvents[event.Reason] = event.Message
		}
	})
	return true
}

// change writes the job.
func (w *world) change(edit func(*v2alpha1.DIJob)) {
	before := w.job.Spec.DeepCopy()
	edit(w.job)
	w.uids++
	w.job.ResourceVersion = strconv.Itoa(w.uids)
	if !equality.Semantic.DeepEqual(before, &w.job.Spec) {
		w.job.Generation++
	}
}

// settle reconciles and removes terminating pods until nothing changes.
func (w *world) settle() {
	w.t.Helper()
	for range 50 {
		changed := w.step()
		if !w.reap() && !w.queue() && !changed {
			return
		}
	}
	w.t.Fatal("the operator comes to no rest")
}

// reap removes terminating pods. It removes a terminating PodGroup once no pod of it is left.
func (w *world) reap() bool {
	reaped := w.reapGroup()
	for name, pod := range w.pods {
		switch {
		case !podstate.Terminating(pod):
		case len(pod.Finalizers) == 0:
			delete(w.pods, name)
			reaped = true
		case pod.DeletionGracePeriodSeconds == nil:
			w.holdBack(pod)
			reaped = true
		}
	}
	return reaped
}

// run makes pods running and ready, as a kubelet would. It skips pods whose ConfigMap is missing.
func (w *world) run(podNames ...string) {
	for _, name := range podNames {
		pod := w.pod(name)
		if !w.hasNodes(pod) {
			continue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
}

// end terminates a pod with an exit code.
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
			ExitCode: exitCode, Reason: "Error", FinishedAt: metav1.NewTime(w.by(w.clocks.node)),
		}},
	}}
}

// inject adds a container to a pod, before its own, as a service mesh does at admission.
func (w *world) inject(name string) {
	pod := w.pod(name)
	pod.Spec.Containers = slices.Concat([]corev1.Container{{Name: "proxy"}}, pod.Spec.Containers)
}

// outlive terminates a pod's own container, while an injected one continues.
func (w *world) outlive(name string, exitCode int32) {
	pod := w.pod(name)
	if len(names.OwnContainers(pod)) == len(pod.Spec.Containers) {
		w.inject(name)
	}
	w.end(name, exitCode)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = slices.Concat(
		[]corev1.ContainerStatus{{Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, pod.Status.ContainerStatuses)
}

// evict makes a node that is short of a resource evict a pod.
func (w *world) evict(name string) {
	pod := w.pod(name)
	pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, v2alpha1.ReasonEvicted
	pod.Status.Conditions = disrupted()
}

// overuse makes the kubelet evict a pod that exceeds its own limit.
func (w *world) overuse(name string) {
	w.end(name, 137)
	pod := w.pod(name)
	pod.Status.Reason, pod.Status.Message = v2alpha1.ReasonEvicted, `Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". `
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

// hasNodes reports whether the ConfigMap of a pod exists.
func (w *world) hasNodes(pod *corev1.Pod) bool {
	name := workload.NodesOf(pod)
	return name == "" || w.configMaps[name] != nil
}

// environmentOf returns the variables of a pod's program.
func (w *world) environmentOf(pod *corev1.Pod) map[string]string {
	env := map[string]string{}
	for _, variable := range names.MainContainerOf(pod).Env {
		if from := variable.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
			configMap := w.configMaps[from.ConfigMapKeyRef.Name]
			if configMap == nil {
				w.t.Fatalf("pod %s refers to ConfigMap %s, which is not there", pod.Name, from.ConfigMapKeyRef.Name)
			}
			value, has := configMap.Data[from.ConfigMapKeyRef.Key]
			if !has {
				w.t.Fatalf("ConfigMap %s has no key %s for pod %s", configMap.Name, from.ConfigMapKeyRef.Key, pod.Name)
			}
			env[variable.Name] = value
			continue
		}
		// The kubelet expands references to earlier variables.
		env[variable.Name] = variable.Value
		for before, value := range env {
			env[variable.Name] = strings.ReplaceAll(env[variable.Name], "$("+before+")", value)
		}
	}
	return env
}

// seeds is the number of random sequences.
const seeds = 30

// newRandom returns a source that repeats the sequence of a failed test.
func newRandom(seed int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), 1))
}

// settled returns the world of a job whose pods are created and do not run yet.
func settled(t *testing.T, spec v2alpha1.DIJobSpec) *world {
	t.Helper()
	w := newWorld(t, spec)
	w.settle()
	return w
}

// allRunning returns the world of a job whose pods are all ready.
func allRunning(t *testing.T, spec v2alpha1.DIJobSpec) *world {
	t.Helper()
	w := newWorld(t, spec)
	w.allRun()
	return w
}

// allRun settles a job with all its pods ready.
func (w *world) allRun() {
	w.t.Helper()
	w.settle()
	w.run(w.podNames()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
}
