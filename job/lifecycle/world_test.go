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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/peers"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/policies"
)

// inputChecks is how many reconciles there are for each whose input is compared afterwards: the copy costs as much as the decision.
const inputChecks = 4

// template is a pod template with only the required fields.
var template = jobs.Raw(`{"spec":{"containers":[{"name":"di-container","image":"image"}]}}`)

// world is an in-memory cluster with one job: the content of the API server.
type world struct {
	// t receives failed checks: a test, or the player of a sequence that is shortened.
	t          expect.Test
	job        *v2alpha1.DIJob
	pods       map[string]*corev1.Pod
	services   map[string]*corev1.Service
	configMaps map[string]*corev1.ConfigMap
	// secrets are the names of the Secrets with keys of ssh. No operator reads them.
	secrets    map[string]bool
	membership *v2alpha1.Membership
	// plans are the stored ScalePlans, by name.
	plans map[string]*v2alpha1.ScalePlan
	// gangs are the available schedulers. group is the stored PodGroup, nil for none.
	gangs  state.Gangs
	group  *unstructured.Unstructured
	config *v2alpha1.AggregatorConfig
	// settings are the settings of the installation.
	settings workload.Settings
	// policies judge what our programs write; nil if none is installed.
	policies *policies.Set
	// server is the di-server.
	server *diServer
	*course
	// fleet is the cluster that the job shares with others; nil if it is alone. placedOf is the generation of the job that the
	// allocator has placed last.
	fleet    *fleet
	placedOf int64
	// rival is the world of another job of the name, one of them deleted; nil for none. rivalKnown is what the operator that acts
	// knows of it. isDeleted is set if this job is the deleted one.
	rival      *world
	rivalKnown *cache
	isDeleted  bool
	// clocks are how far the clocks of the actors are ahead of now.
	clocks clocks
	// operator is the operator that leads. standby takes over from it; nil for none.
	*operator
	standby *operator
	uids    int
	slots   int
	events  []string
	// lastEvents are the messages of the last events, by reason.
	lastEvents map[string]string
	// created counts how often each pod was created.
	created map[string]int
	// rightsizing is what limits and informs a change of resources. refusesResize makes the API
	// server refuse to resize a pod in place.
	rightsizing   state.Rightsizing
	refusesResize bool
	// keeping is whether jobs stay until the history of the installation has recorded their end.
	keeping state.History
	// kueue simulates Kueue; nil if it is not installed.
	kueue *kueue
	// queueWords are what it says about why pods wait.
	queueWords string
	// looksForKueue is set if the operator knows that Kueue is not installed.
	looksForKueue bool
	// fate returns the outcome of the next write; nil if all succeed.
	fate func() fate
	// passes counts the reconciles.
	passes int
	// isBusy is set if other jobs wait to be reconciled.
	isBusy bool
	// knows are the pods that have read a membership that lists them, with the last version that
	// they acknowledged.
	knows map[types.UID]int64
	// unacknowledged are the versions that slow members have read and not acknowledged yet, by pod.
	unacknowledged map[types.UID]int64
	// listed are the pods that each version of the membership lists, as its operator saw them.
	listed map[int64]map[types.UID]bool
	// leaves is since when a version lists a pod as leaving, by no actor's clock.
	leaves map[types.UID]time.Time
	pass
	// work is what the replicas of a job do that the autoscaler sizes.
	work work
	// beforeWrite happens before a write of the operator; nil for nothing.
	beforeWrite func()
	history     history
	led         ledHistory
}

// course is the time of a world, and what happened in it. The worlds of several jobs in one cluster have one course.
type course struct {
	now time.Time
	// trace records what happened, so that a failed check can be understood.
	isTraced bool
	trace    []string
}

func (c *course) tell(format string, args ...any) {
	if c.isTraced {
		c.trace = append(c.trace, fmt.Sprintf(format, args...))
	}
}

// operator is one process of the operator.
type operator struct {
	// cache is its cache; nil if it observes every write at once.
	cache *cache
	// ahead is how far its clock is ahead of the world's time.
	ahead time.Duration
	// sightings are what it remembers.
	sightings state.Sightings
	// shard is the label of the job's shard; "" if there is only one.
	shard string
}

// pass is what the world knows of a reconcile.
type pass struct {
	// failed is set if a write failed, died if the operator exited.
	failed, died bool
	// isDecidedSynced is set if the cache was up to date at the decision.
	isDecidedSynced bool
	// isFormer is set if another operator has led since the decision.
	isFormer bool
}

// clocks are how far the clocks of the other actors differ from the world's time.
type clocks struct {
	api, node, server time.Duration
	// areApart is set if clocks differ, those of operators too.
	areApart bool
}

// anyClocks returns clocks that differ by up to an hour. Some worlds have equal ones.
func anyClocks(random *rand.Rand) clocks {
	if random.IntN(4) == 0 {
		return clocks{}
	}
	return clocks{api: anySkew(random), node: anySkew(random), server: anySkew(random), areApart: true}
}

// anySkew returns how far a clock differs: by half an hour at most, and often by seconds.
func anySkew(random *rand.Rand) time.Duration {
	most := []time.Duration{30 * time.Second, 30 * time.Minute}[random.IntN(2)]
	return time.Duration(random.Int64N(2*int64(most))) - most
}

// spread returns how far the clocks are apart at most.
func (c clocks) spread() time.Duration {
	if c.areApart {
		return time.Hour
	}
	return 0
}

// by returns the time by an actor's clock.
func (w *world) by(clock time.Duration) time.Time { return w.now.Add(clock) }

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

func newWorld(t expect.Test, spec v2alpha1.DIJobSpec) *world {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &world{
		t: t, operator: &operator{},
		job: &v2alpha1.DIJob{
			ObjectMeta: metav1.ObjectMeta{
				Name: "job", Namespace: "space", UID: "job-uid", Generation: 1, ResourceVersion: "0", CreationTimestamp: metav1.NewTime(now),
			},
			Spec: spec,
		},
		lastEvents: map[string]string{},
		pods:       map[string]*corev1.Pod{},
		services:   map[string]*corev1.Service{}, configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]bool{}, plans: map[string]*v2alpha1.ScalePlan{},
		config: &v2alpha1.AggregatorConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "aggregator-config", Namespace: "di-system"},
			Spec:       v2alpha1.AggregatorConfigSpec{Aggregator: v2alpha1.AggregatorSpec{Template: template}},
		},
		course:  &course{now: now},
		created: map[string]int{},
		knows:   map[types.UID]int64{}, unacknowledged: map[types.UID]int64{},
		listed:  map[int64]map[types.UID]bool{},
		leaves:  map[types.UID]time.Time{},
		history: newHistory(), led: newLedHistory(),
	}
	w.server = newServer(w)
	return w
}

func (w *world) observe() Observed {
	known := w.cache
	if known == nil {
		known = &cache{job: w.job, pods: w.pods, services: w.services, configMaps: w.configMaps, group: w.group, membership: w.membership}
	}
	observed := Observed{
		Job: known.job.DeepCopy(), AggregatorConfig: w.config, Now: w.by(w.ahead), Drain: state.DefaultDrain, Kueue: w.kueue != nil, Gangs: w.gangs,
		Rightsizing: w.rightsizing, Settings: w.settings, History: w.keeping, ShardLabel: w.shard,
		QueueWords: w.queueWords, NoKueue: w.looksForKueue && w.kueue == nil && queueing.ForJob(known.job).Queue != "",
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
	for _, name := range peers.FindMissingNodes(observed) {
		if configMap := w.configMaps[name]; configMap != nil {
			observed.ConfigMaps = append(observed.ConfigMaps, configMap)
		}
	}
	observed.Membership = known.membership.DeepCopy()
	w.seeRival(&observed)
	w.confirm(&observed)
	w.findMissed(&observed)
	observed.Plans = w.unfinishedPlans()
	w.sightings.See(&observed)
	return observed
}

// confirm reads live what the decision would treat as lost or as excess.
func (w *world) confirm(observed *Observed) {
	defer func() { observed.Confirmed = true }()
	if w.cache == nil || !coordinatorled.FindUnconfirmed(*observed).Membership {
		return
	}
	observed.Membership = w.storedMembership().DeepCopy()
	unconfirmed := coordinatorled.FindUnconfirmed(*observed)
	if unconfirmed.AllPods {
		observed.Pods = nil
		unconfirmed.Pods = w.podNames()
	}
	for _, name := range unconfirmed.Pods {
		if pod := w.pods[name]; pod != nil {
			observed.Pods = append(observed.Pods, pod.DeepCopy())
		}
	}
}

// findMissed reads live the pods that the cache lacks when the job was shrunk. A pod of the cache is gone if another one has
// its name.
func (w *world) findMissed(observed *Observed) {
	isLacking := sizing.LacksRemoved
	if state.IsCoordinatorLed(observed.Job) {
		isLacking = coordinatorled.LacksRemoved
	}
	if w.cache == nil || !isLacking(*observed) {
		return
	}
	cached := map[string]int{}
	for i, pod := range observed.Pods {
		cached[pod.Name] = i
	}
	for _, name := range w.podNames() {
		pod := w.pods[name].DeepCopy()
		podstate.Trim(pod)
		switch i, isCached := cached[name]; {
		case !isCached:
			observed.Pods = append(observed.Pods, pod)
		case observed.Pods[i].UID != pod.UID:
			observed.Pods[i] = pod
		}
	}
}

// step decides once and acts on the decision, as a reconciler does. It writes the objects in the
// order of the decision, and then the status, even if a write failed. It reports whether anything
// changed.
func (w *world) step() bool {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	w.pass = pass{}
	w.reviewPlans()
	observed := w.observe()
	w.deleteLeftBehind(&observed)
	reconciled := newReconcile(observed)
	var before *reconcile
	if w.passes++; w.passes%inputChecks == 0 {
		before = newReconcile(copyObserved(&observed))
	}
	decision, cause := reconciled.decide()
	if before != nil {
		w.checkInput(before, reconciled)
	}
	if w.isTraced {
		w.tell("pass: sees %s; %s", outlinePods(observed.Pods), outlineDecision(&observed, &decision, cause))
	}
	w.isDecidedSynced = w.isSynced()
	w.checkDecision(&observed, &decision, cause)
	changed := w.act(&observed, &decision)
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
	if w.beforeWrite != nil {
		w.beforeWrite()
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
			stored := w.pods[pod.Name]
			if stored == nil || stored.UID != pod.UID {
				return
			}
			restored := stored.DeepCopy()
			restored.Labels, restored.Annotations, restored.OwnerReferences = pod.Labels, pod.Annotations, pod.OwnerReferences
			w.admit(operatorAccount, "", restored, stored)
			w.pods[pod.Name] = restored
		})
	}
	for _, service := range decision.RestoreServices {
		w.write(func() { w.services[service.Name] = service })
	}
	return len(decision.RestorePods)+len(decision.RestoreServices) > 0
}

// act performs the writes of a decision. Each has the preconditions of the real write, because another operator may
// write in between.
func (w *world) act(observed *Observed, decision *Decision) bool {
	changed := w.actOnMetadata(decision)
	changed = w.actOnDeletions(decision) || changed
	changed = w.actOnResizes(decision) || changed
	changed = w.actOnMembership(observed, decision) || changed
	for _, do := range []func(*Decision) bool{w.actOnGroup, w.actOnNodes, w.actOnKeys, w.actOnCreations} {
		if w.failed {
			break
		}
		changed = do(decision) || changed
	}
	return changed
}

// actOnMetadata adopts pods and services, and removes finalizers of pods.
func (w *world) actOnMetadata(decision *Decision) bool {
	for _, pod := range decision.AdoptPods {
		w.write(func() {
			if stored := w.pods[pod.Name]; stored != nil && stored.UID == pod.UID {
				w.admit(operatorAccount, "", pod, stored)
				w.pods[pod.Name] = pod
			}
		})
	}
	for _, service := range decision.AdoptServices {
		w.write(func() { w.services[service.Name] = service })
	}
	isRestored := w.restore(decision)
	for _, pod := range decision.ReleasePods {
		w.write(func() { w.release(pod) })
	}
	return decision.IsAdoption() || isRestored || len(decision.ReleasePods) > 0
}

// actOnCreations creates pods and services.
func (w *world) actOnCreations(decision *Decision) bool {
	changed := len(decision.CreateServices) > 0
	for _, pod := range decision.CreatePods {
		if w.pods[pod.Name] == nil {
			w.write(func() { w.create(pod) })
			changed = true
		} else if w.cache == nil {
			w.t.Fatalf("pod %s is created though it exists", pod.Name)
		}
	}
	for _, service := range decision.CreateServices {
		w.write(func() { w.serve(service) })
	}
	return changed
}

// actOnDeletions deletes pods, services and ConfigMaps.
func (w *world) actOnDeletions(decision *Decision) bool {
	changed := false
	for _, pod := range decision.DeletePods {
		changed = w.deleteObserved(pod, func() client.Object {
			if stored := w.pods[pod.Name]; stored != nil && !podstate.Terminating(stored) {
				return stored
			}
			return nil
		}, func() { w.terminate(pod.Name) }) || changed
	}
	for _, service := range decision.DeleteServices {
		changed = w.deleteObserved(service, func() client.Object {
			if stored := w.services[service.Name]; stored != nil {
				return stored
			}
			return nil
		}, func() { delete(w.services, service.Name) }) || changed
	}
	for _, configMap := range decision.DeleteConfigMaps {
		changed = w.deleteObserved(configMap, func() client.Object {
			if stored := w.configMaps[configMap.Name]; stored != nil {
				return stored
			}
			return nil
		}, func() {
			delete(w.configMaps, configMap.Name)
			w.noteUnknownReferrers(configMap.Name)
		}) || changed
	}
	for _, secret := range decision.DeleteSecrets {
		w.write(func() { delete(w.secrets, secret.Name) })
	}
	return changed
}

// deleteObserved deletes an object if the stored one is still the observed one.
func (w *world) deleteObserved(observed client.Object, find func() client.Object, do func()) bool {
	isThere := func() bool {
		stored := find()
		return stored != nil && stored.GetUID() == observed.GetUID()
	}
	if !isThere() {
		return false
	}
	w.write(func() {
		if isThere() {
			w.admit(operatorAccount, "", nil, find())
			do()
		}
	})
	return true
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
			w.admit(operatorAccount, "resize", resized, stored)
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
				if w.configMaps[configMap.Name] != nil {
					return
				}
				w.uids++
				configMap = configMap.DeepCopy()
				configMap.UID = types.UID(fmt.Sprintf("configmap-%d", w.uids))
				w.admit(operatorAccount, "", configMap, nil)
				w.configMaps[configMap.Name] = configMap
			})
			changed = true
		case !workload.IsNodesConfigMap(w.job, stored):
			w.failed = true
		}
	}
	return changed
}

// actOnKeys creates Secrets with keys of ssh. One that exists stays.
func (w *world) actOnKeys(decision *Decision) bool {
	for _, secret := range decision.CreateSecrets {
		w.write(func() {
			w.admit(operatorAccount, "", secret, nil)
			w.secrets[secret.Name] = true
		})
	}
	return false
}

// actOnMembership performs the one write of the Membership.
func (w *world) actOnMembership(observed *Observed, decision *Decision) bool {
	switch {
	case decision.DeleteMembership:
		w.write(func() { w.deleteMembership(observed.Membership, observed.Job.UID) })
	case decision.CreateMembership != nil:
		w.write(func() { w.createMembership(decision.CreateMembership) })
	case decision.UpdateMembership != nil:
		w.updateMembership(observed.Membership, func() {
			w.changeMembers(operatorAccount, decision.UpdateMembership.Spec)
			w.led.recordPlan(scaling.RecordOf(observed.Job))
		})
	case decision.MembershipStatus != nil:
		w.updateMembership(observed.Membership, func() {
			wanted := w.membership.DeepCopy()
			wanted.Status = *decision.MembershipStatus
			w.admit(operatorAccount, "status", wanted, w.membership)
			wanted.ResourceVersion = w.nextVersion()
			w.membership = wanted
		})
	default:
		return false
	}
	return true
}

// createMembership creates the Membership, unless it exists.
func (w *world) createMembership(list *v2alpha1.Membership) {
	if w.storedMembership() != nil {
		w.failed = w.failed || w.membership == nil
		return
	}
	w.admit(operatorAccount, "", list, nil)
	w.membership = list.DeepCopy()
	w.membership.ResourceVersion = w.nextVersion()
	w.membership.UID = types.UID("membership-" + w.membership.ResourceVersion)
	w.led.recordList(&w.membership.Spec)
}

// updateMembership writes the Membership if it is still as observed.
func (w *world) updateMembership(observed *v2alpha1.Membership, do func()) {
	w.write(func() {
		if w.membership == nil || w.membership.ResourceVersion != observed.ResourceVersion {
			w.tell("  conflict of the Membership")
			w.failed = true
			return
		}
		do()
	})
}

// serve creates a service, unless it exists.
func (w *world) serve(service *corev1.Service) {
	if w.services[service.Name] != nil || w.isTaken(w.rival != nil && w.rival.services[service.Name] != nil) {
		return
	}
	w.uids++
	service = service.DeepCopy()
	service.UID = types.UID(fmt.Sprintf("service-%d", w.uids))
	w.admit(operatorAccount, "", service, nil)
	w.services[service.Name] = service
}

// create creates a pod, unless it exists.
func (w *world) create(pod *corev1.Pod) {
	if w.pods[pod.Name] != nil || w.isTaken(w.rival != nil && w.rival.pods[pod.Name] != nil) {
		return
	}
	pod = pod.DeepCopy()
	if w.shard != "" {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, names.LabelShard, w.shard)
	}
	w.admit(operatorAccount, "", pod, nil)
	w.uids++
	pod.UID = types.UID(fmt.Sprintf("pod-%d", w.uids))
	pod.CreationTimestamp = metav1.NewTime(w.by(w.clocks.api))
	if w.kueue != nil {
		w.kueue.takeUp(pod)
	}
	w.pods[pod.Name] = pod
	w.created[pod.Name]++
	if isHead(pod) {
		w.led.heads[slotOfPod(pod)]++
	}
	if w.cache != nil && (w.isFormer || !w.knowsMembers()) {
		// It may be of a list that has changed, and is replaced then.
		w.harm(pod)
	}
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
	w.write(func() {
		if w.job.ResourceVersion != observed.Job.ResourceVersion {
			w.tell("  conflict")
			return
		}
		w.checkCommit(&status)
		w.history.recordRanks(observed, decision)
		w.recordListed(observed, &status, decision.RestorePods)
		w.changeAs(operatorAccount, "status", func(job *v2alpha1.DIJob) { job.Status = status })
		w.history.recorded = versionOf(w.job)
		for _, event := range outcome.Events {
			w.events = append(w.events, event.Reason)
			w.lastEvents[event.Reason] = event.Message
		}
	})
	return true
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
		pods.Ready(pod)
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
	expect.MustEqual(w.t, "pods", want, w.podNames())
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
