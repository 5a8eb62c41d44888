// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/workload"
)

// originals are the observed pods and services of a job.
type originals map[types.UID]client.Object

func originalsOf(observed *lifecycle.Observed) originals {
	all := originals{}
	for _, object := range slices.Concat(toObjects(observed.Pods), toObjects(observed.Services)) {
		all[object.GetUID()] = object
	}
	return all
}

// digest identifies the content of a patch that makes an original a desired object.
func (o originals) digest(desired client.Object) string {
	return refusal.DigestPatch(o[desired.GetUID()], desired)
}

// restore puts back what others changed of pods and services.
func (r *Reconciler) restore(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effects {
	if len(decision.RestorePods)+len(decision.RestoreServices) == 0 {
		return nil
	}
	originals := originalsOf(observed)
	restoration := operation{verb: verbRestore, digest: originals.digest, do: func(ctx context.Context, object client.Object) effect {
		return r.restoreObserved(ctx, observed, originals[object.GetUID()], object)
	}}
	pods := r.apply(ctx, observed, restoration, toObjects(decision.RestorePods))
	return append(pods, r.apply(ctx, observed, restoration, toObjects(decision.RestoreServices))...)
}

// restoreObserved puts back what others changed of an observed object. If they change it each time, the operator
// waits between its writes, as it does after a refusal.
func (r *Reconciler) restoreObserved(ctx context.Context, observed *lifecycle.Observed, original, wanted client.Object) effect {
	changed := describeChange(original, wanted, omitted(original, wanted))
	stored, err := r.putBack(ctx, original, wanted)
	if err != nil {
		return effect{err: err}
	}
	if r.states.isChangedEachTime(observed, stored) {
		return effect{err: &refusal.ChangedError{Who: "another writer", What: changed}}
	}
	return effect{object: wanted, reason: v2alpha1.ReasonRestored, note: changed}
}

// putBack patches an object that others changed, unless it no longer exists. It returns a ChangedError if
// admission changes it again, and the object as it is stored.
func (r *Reconciler) putBack(ctx context.Context, original, wanted client.Object) (client.Object, error) {
	desired, err := controllers.DeepCopy(original)
	if err != nil {
		return nil, err
	}
	desired.SetLabels(maps.Clone(wanted.GetLabels()))
	desired.SetAnnotations(maps.Clone(wanted.GetAnnotations()))
	desired.SetOwnerReferences(wanted.GetOwnerReferences())
	if service, isService := wanted.(*corev1.Service); isService {
		desired = service.DeepCopy()
	}
	patch := client.MergeFrom(original)
	if !slices.EqualFunc(original.GetOwnerReferences(), wanted.GetOwnerReferences(), isSameReference) ||
		original.GetAnnotations()[names.AnnotationResources] != wanted.GetAnnotations()[names.AnnotationResources] {
		// The patch replaces a list that other writers change too, or follows from requests that the operator resizes.
		patch = client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})
	}
	if err := client.IgnoreNotFound(r.client.Patch(ctx, desired, patch, controllers.FieldOwner)); err != nil {
		return nil, fmt.Errorf("putting back what others changed of %s %s/%s: %w", typeOf(original), original.GetNamespace(), original.GetName(), err)
	}
	if stripped := strippedFrom(desired, wanted); stripped != "" {
		return desired, &refusal.StrippedError{Annotation: stripped}
	}
	if again := describeChange(desired, wanted, omitted(original, wanted)); again != "" {
		return desired, &refusal.ChangedError{Who: "admission", What: again}
	}
	return desired, nil
}

// strippedFrom returns the first annotation of a wanted object that a stored one lacks; "" for none.
func strippedFrom(stored, wanted client.Object) string {
	for _, key := range slices.Sorted(maps.Keys(wanted.GetAnnotations())) {
		if _, kept := stored.GetAnnotations()[key]; !kept {
			return key
		}
	}
	return ""
}

func isSameReference(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.APIVersion == b.APIVersion
}

// omitted returns the operator's annotations that a wanted object does not have.
func omitted(original, wanted client.Object) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(original.GetAnnotations())), func(key string) bool {
		_, isWanted := wanted.GetAnnotations()[key]
		return isWanted || !names.IsIdentifying(key)
	})
}

// describeChange names the labels, annotations and references of a wanted object that a stored one does not have, and
// the omitted annotations that it has; "" for none.
func describeChange(stored, wanted client.Object, omitted []string) string {
	changed := append(describeService(stored, wanted), append(lacking("label ", stored.GetLabels(), wanted.GetLabels()),
		lacking("annotation ", stored.GetAnnotations(), wanted.GetAnnotations())...)...)
	for _, key := range omitted {
		if _, has := stored.GetAnnotations()[key]; has {
			changed = append(changed, "annotation "+key)
		}
	}
	if owner := metav1.GetControllerOf(wanted); owner != nil && !slices.ContainsFunc(stored.GetOwnerReferences(), func(reference metav1.OwnerReference) bool {
		return reference.UID == owner.UID && reference.Controller != nil && *reference.Controller
	}) {
		changed = append(changed, "the owner reference")
	}
	return state.Few(changed, ", ")
}

// describeService names the fields of a wanted service that a stored one does not have.
func describeService(stored, wanted client.Object) []string {
	before, okBefore := stored.(*corev1.Service)
	after, okAfter := wanted.(*corev1.Service)
	if !okBefore || !okAfter {
		return nil
	}
	var changed []string
	if !maps.Equal(before.Spec.Selector, after.Spec.Selector) {
		changed = append(changed, "the selector")
	}
	if !slices.EqualFunc(before.Spec.Ports, after.Spec.Ports, workload.IsSamePort) {
		changed = append(changed, "the ports")
	}
	if before.Spec.Type != after.Spec.Type || before.Spec.PublishNotReadyAddresses != after.Spec.PublishNotReadyAddresses {
		changed = append(changed, "the type")
	}
	return changed
}

func lacking(kind string, stored, wanted map[string]string) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if value, has := stored[key]; !has || value != wanted[key] {
			keys = append(keys, kind+key)
		}
	}
	return keys
}

// restoreCreated puts back what admission changed of the metadata of an object that was created or exists: its
// owner, and the labels and annotations by which it is found. It returns the object as it is stored then.
func (r *Reconciler) restoreCreated(ctx context.Context, job *v2alpha1.DIJob, stored, sent client.Object) (client.Object, error) {
	labels := withOurs(stored.GetLabels(), sent.GetLabels(), names.IsSelecting)
	annotations := withOurs(stored.GetAnnotations(), sent.GetAnnotations(), names.IsIdentifying)
	isOwned := metav1.IsControlledBy(stored, job) || !metav1.IsControlledBy(sent, job)
	if maps.Equal(labels, stored.GetLabels()) && maps.Equal(annotations, stored.GetAnnotations()) && isOwned {
		return stored, nil
	}
	wanted, err := controllers.DeepCopy(stored)
	if err != nil {
		return nil, err
	}
	wanted.SetLabels(labels)
	wanted.SetAnnotations(annotations)
	if !isOwned {
		wanted.SetOwnerReferences(state.OwnedBy(stored, job, versionOf(sent)))
	}
	return r.putBack(ctx, stored, wanted)
}

// versionOf returns the version in which an object names the job that controls it.
func versionOf(object client.Object) string {
	_, version, _ := strings.Cut(metav1.GetControllerOf(object).APIVersion, "/")
	return version
}

// withOurs returns stored labels or annotations with ours as they were sent.
func withOurs(stored, sent map[string]string, isOurs keys) map[string]string {
	result := maps.Clone(stored)
	for key, value := range sent {
		if !isOurs(key) {
			continue
		}
		if result == nil {
			result = map[string]string{}
		}
		result[key] = value
	}
	return result
}

// restoration is how often an object was put back lately.
type restoration struct {
	count   int
	last    time.Time
	version string
}

// toleratedRestorations is how often an object is put back at once.
const toleratedRestorations = 10

// isChangedEachTime records that an object was put back, as it is stored. It reports whether that happens again and
// again. A repeat that changed nothing does not count: the cache was behind.
func (s *jobStates) isChangedEachTime(observed *lifecycle.Observed, object client.Object) (again bool) {
	s.update(client.ObjectKeyFromObject(observed.Job), func(known *jobState) {
		maps.DeleteFunc(known.restored, func(_ types.UID, of restoration) bool { return observed.Now.Sub(of.last) > 2*state.LongestRefusalDelay })
		if known.restored == nil {
			known.restored = map[types.UID]restoration{}
		}
		of := known.restored[object.GetUID()]
		if version := object.GetResourceVersion(); of.version != version {
			of.count, of.last, of.version = of.count+1, observed.Now, version
		}
		known.restored[object.GetUID()] = of
		again = of.count > toleratedRestorations
	})
	return again
}

// missed is an object of a job that left the cache without being deleted. Others removed its owner, or changed the label
// by which the cache selects it.
type missed struct {
	job  types.UID
	name string
	// isPod is set for a pod. It is read live until it is back, or gone.
	isPod bool
	// isStray is set for a pod that had no owner when it was found.
	isStray bool
}

// remember records a pod that the cache lacks.
func (s *jobStates) remember(job *v2alpha1.DIJob, pod *corev1.Pod) {
	s.update(client.ObjectKeyFromObject(job), func(known *jobState) {
		if known.missed == nil {
			known.missed = map[types.UID]missed{}
		}
		if _, isKnown := known.missed[pod.UID]; !isKnown {
			known.missed[pod.UID] = missed{job: job.UID, name: pod.Name, isPod: true, isStray: isStray(job, pod)}
		}
	})
}

// miss records an object that its job no longer has in the cache.
func (s *jobStates) miss(job types.NamespacedName, object client.Object) {
	owner := metav1.GetControllerOf(object)
	_, isPod := object.(*corev1.Pod)
	s.update(job, func(known *jobState) {
		if _, isDeleted := known.deleted[object.GetUID()]; isDeleted {
			return
		}
		if known.missed == nil {
			known.missed = map[types.UID]missed{}
		}
		known.missed[object.GetUID()] = missed{job: owner.UID, name: object.GetName(), isPod: isPod}
	})
}

// misses reports whether an object was one of a job, and left the cache.
func (s *jobStates) misses(job *v2alpha1.DIJob, object client.Object) (is bool) {
	s.update(client.ObjectKeyFromObject(job), func(known *jobState) { is = known.missed[object.GetUID()].job == job.UID })
	return is
}

// missedPods returns the pods of a job that left the cache, by UID, and forgets those that are back.
func (s *jobStates) missedPods(observed *lifecycle.Observed) map[types.UID]missed {
	pods := map[types.UID]missed{}
	s.update(client.ObjectKeyFromObject(observed.Job), func(known *jobState) {
		for _, pod := range observed.Pods {
			delete(known.missed, pod.UID)
		}
		for uid, each := range known.missed {
			if each.job != observed.Job.UID {
				delete(known.missed, uid)
			} else if each.isPod {
				pods[uid] = each
			}
		}
	})
	return pods
}

// findMissed adds the pods that left the cache without being deleted. When the job is suspended, held or shrunk, it lists
// all its pods live, because another operator may have seen them leave, or none.
func (r *Reconciler) findMissed(ctx context.Context, observed *lifecycle.Observed) error {
	known := set.New[types.UID]()
	for uid, each := range r.states.missedPods(observed) {
		found, err := r.findMissedPod(ctx, observed.Job, uid, each.name)
		switch {
		case err != nil:
			return err
		case found == nil:
			r.states.update(client.ObjectKeyFromObject(observed.Job), func(known *jobState) { delete(known.missed, uid) })
			continue
		case each.isStray && metav1.GetControllerOf(found) == nil:
			addStray(observed, found)
		default:
			observed.Pods = append(observed.Pods, found)
		}
		known.Insert(uid)
	}
	if !mayLackPods(observed) {
		return nil
	}
	all, err := r.livePods(ctx, observed.Job)
	if err != nil {
		return err
	}
	for _, pod := range observed.Pods {
		known.Insert(pod.UID)
	}
	all = slices.DeleteFunc(all, func(pod *corev1.Pod) bool { return known.Has(pod.UID) })
	observed.Pods = withoutNamesakes(observed.Pods, all)
	for _, pod := range all {
		r.states.remember(observed.Job, pod)
		addLive(observed, pod)
	}
	return nil
}

// withoutNamesakes returns the pods whose names no pod has that was read live. Those of the cache are gone.
func withoutNamesakes(pods, live []*corev1.Pod) []*corev1.Pod {
	taken := set.New[string]()
	for _, pod := range live {
		taken.Insert(pod.Name)
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return taken.Has(pod.Name) })
}

// mayLackPods reports whether the cache may lack pods that the job must not have, so that no creation shows them.
func mayLackPods(observed *lifecycle.Observed) bool {
	return state.MustHaveNoPods(observed.Job) || !state.IsCoordinatorLed(observed.Job) && sizing.LacksRemoved(*observed) ||
		state.IsCoordinatorLed(observed.Job) && coordinatorled.LacksRemoved(*observed)
}

// findMissedPod reads live a pod that left the cache; nil if it is gone, or belongs to another owner. The garbage collector
// removes the owner as well, if a deletion of the job orphans its pods, so the job is read, too.
func (r *Reconciler) findMissedPod(ctx context.Context, job *v2alpha1.DIJob, uid types.UID, name string) (*corev1.Pod, error) {
	pod, err := controllers.Find(ctx, r.live, types.NamespacedName{Namespace: job.Namespace, Name: name}, &corev1.Pod{})
	if err != nil || pod == nil || pod.UID != uid {
		return nil, err
	}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.UID != job.UID {
		return nil, nil
	}
	if owner == nil {
		stored, err := controllers.Find(ctx, r.live, client.ObjectKeyFromObject(job), &v2alpha1.DIJob{})
		if err != nil || stored == nil || stored.UID != job.UID || !stored.DeletionTimestamp.IsZero() {
			return nil, err
		}
	}
	controllers.Shrink(pod)
	return pod, nil
}
