// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// cache is an operator's copy of a world. Each of its objects is one that existed at some time.
// Events of different objects arrive in any order, or not before a resync.
type cache struct {
	job        *v2alpha1.DIJob
	pods       map[string]*corev1.Pod
	services   map[string]*corev1.Service
	configMaps map[string]*corev1.ConfigMap
	group      *unstructured.Unstructured
	membership *v2alpha1.Membership
}

// lag makes the operator read through a cache, which starts up to date.
func (w *world) lag() {
	w.cache = &cache{}
	w.resync()
}

// newOperator returns a new process of the operator, with a current cache and a clock of its own.
func (w *world) newOperator(random *rand.Rand) *operator {
	leader := w.operator
	defer func() { w.operator = leader }()
	w.operator = &operator{}
	if w.clocks.areApart {
		w.ahead = anySkew(random)
	}
	w.lag()
	return w.operator
}

// changeLeader makes the operator in standby lead.
func (w *world) changeLeader() {
	w.operator, w.standby = w.standby, w.operator
	w.sightings = state.Sightings{}
	w.tell("the other operator leads, its clock is %s ahead", w.ahead)
}

// resync updates the whole cache, as an informer that lists again does.
func (w *world) resync() {
	if w.cache == nil {
		return
	}
	w.cache.pods, w.cache.services = map[string]*corev1.Pod{}, map[string]*corev1.Service{}
	w.hearOfJob()
	w.hearOfMembers()
	w.hearOfGroup()
	w.hearOfNodes()
	for name := range w.pods {
		w.hearOfPod(name)
	}
	for name := range w.services {
		w.hearOfService(name)
	}
}

func (w *world) hearOfJob() {
	if w.isDeleted && w.cache.job != nil {
		// What comes next is the job that has the name now.
		return
	}
	w.cache.job = w.job.DeepCopy()
}

func (w *world) hearOfMembers() {
	w.cache.membership = w.membership.DeepCopy()
}

// hearOfPod delivers the event of one pod, or repeats it. It skips intermediate states, as watches
// may.
func (w *world) hearOfPod(name string) {
	if pod := w.pods[name]; pod != nil {
		w.cache.pods[name] = pod.DeepCopy()
		return
	}
	delete(w.cache.pods, name)
}

func (w *world) hearOfService(name string) {
	if service := w.services[name]; service != nil {
		w.cache.services[name] = service.DeepCopy()
		return
	}
	delete(w.cache.services, name)
}

func (w *world) hearOfNodes() {
	w.cache.configMaps = maps.Clone(w.configMaps)
}

func (w *world) hearOfGroup() {
	w.cache.group = w.group.DeepCopy()
}

// unheard returns the names of the pods with pending events.
func (w *world) unheard() []string {
	var behind []string
	for name, pod := range w.pods {
		if known := w.cache.pods[name]; known == nil || known.UID != pod.UID || podstate.Terminating(known) != podstate.Terminating(pod) ||
			known.Spec.NodeName != pod.Spec.NodeName ||
			!equality.Semantic.DeepEqual(known.Status, pod.Status) {
			behind = append(behind, name)
		}
	}
	for name := range w.cache.pods {
		if w.pods[name] == nil {
			behind = append(behind, name)
		}
	}
	slices.Sort(behind)
	return behind
}

// unheardServices returns the names of the services with pending events.
func (w *world) unheardServices() []string {
	var behind []string
	for name := range w.services {
		if w.cache.services[name] == nil {
			behind = append(behind, name)
		}
	}
	for name := range w.cache.services {
		if w.services[name] == nil {
			behind = append(behind, name)
		}
	}
	slices.Sort(behind)
	return behind
}

// isSynced reports whether the cache is up to date.
func (w *world) isSynced() bool {
	return w.cache == nil || w.cache.job.ResourceVersion == w.job.ResourceVersion && len(w.unheard()) == 0 &&
		equality.Semantic.DeepEqual(w.cache.group, w.group) && equality.Semantic.DeepEqual(w.cache.membership, w.membership) && maps.Equal(w.cache.configMaps, w.configMaps) && len(w.unheardServices()) == 0
}

func outlinePods(pods []*corev1.Pod) string {
	outlines := make([]string, len(pods))
	for i, pod := range pods {
		outlines[i] = outlinePod(pod)
	}
	return "[" + strings.Join(outlines, " ") + "]"
}

// outlinePod returns a short description of a pod with the state that decisions depend on.
func outlinePod(pod *corev1.Pod) string {
	outline := fmt.Sprintf("%s#%s@%d.%d:%s", strings.TrimPrefix(pod.Name, "job-"), pod.Annotations[names.AnnotationRank],
		podstate.Attempt(pod), podstate.Reschedule(pod), podstate.Phase(pod))
	if podstate.Ready(pod) {
		outline += "+ready"
	}
	if pod.Status.Reason != "" {
		outline += "+" + pod.Status.Reason
	}
	if main := podstate.MainTermination(pod); main != nil {
		outline += fmt.Sprintf("+%d", main.ExitCode)
	}
	if podstate.Terminating(pod) {
		outline += "+going"
	}
	return outline
}

func outlineDecision(observed *Observed, decision *Decision, cause string) string {
	before, after := &observed.Job.Status, &decision.Status
	ranks := map[string]string(nil)
	if after.Scaling != nil {
		ranks = after.Scaling.Ranks
	}
	return fmt.Sprintf("phase %q -> %q (%s), restarts %d -> %d, reschedules %d -> %d, completed %q -> %q, ranks %v; deletes %s, creates %s",
		before.Phase, after.Phase, cause, before.Restarts, after.Restarts, before.Reschedules, after.Reschedules,
		before.CompletedRanks, after.CompletedRanks, ranks, outlinePods(decision.DeletePods), outlinePods(decision.CreatePods))
}
