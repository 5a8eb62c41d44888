// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/workload"
)

// effect is the result of one write.
type effect struct {
	object client.Object
	reason string
	err    error
	// note describes a resize for its Event.
	note string
}

// effects are the results of a decision's writes.
type effects []effect

// nameConflictError is the result of a create if an object with the name exists that the job does not own.
type nameConflictError struct {
	text string
}

// Error implements error.
func (e nameConflictError) Error() string {
	return e.text
}

// conflictWith returns the error for an object that has the name of a creation.
func conflictWith(existing client.Object) nameConflictError {
	owner := metav1.GetControllerOf(existing)
	if owner == nil && len(existing.GetOwnerReferences()) > 0 {
		owner = &existing.GetOwnerReferences()[0]
	}
	if owner == nil {
		return nameConflictError{"exists and has no owner"}
	}
	return nameConflictError{fmt.Sprintf("exists and belongs to %s %s", owner.Kind, owner.Name)}
}

// leavingError is returned for a creation if an object that will be deleted has the name.
type leavingError struct {
	// leaving is the deletion timestamp; zero if there is none yet.
	leaving time.Time
}

// Error implements error.
func (leavingError) Error() string {
	return "exists and will be deleted"
}

// isTaken reports whether another object has the name of a creation.
func (e *effect) isTaken() bool {
	return errors.As(e.err, &nameConflictError{}) || errors.As(e.err, &leavingError{})
}

// errors joins the errors that are retried with backoff. It omits names that another object has, because
// they set a condition and have their own retry. It also omits writes that wait, because they have their
// own time.
func (e effects) errors() error {
	var all []error
	for i := range e {
		if e[i].err != nil && !e[i].isTaken() && !e[i].waits() {
			all = append(all, e[i].err)
		}
	}
	return errors.Join(all...)
}

// hasFailed reports whether a write failed.
func (e effects) hasFailed() bool {
	return slices.ContainsFunc(e, func(one effect) bool { return one.err != nil })
}

// wait reports whether a write waits because the API server refuses it.
func (e effects) wait() bool {
	return slices.ContainsFunc(e, func(one effect) bool { return one.waits() })
}

// created reports whether anything was created.
func (e effects) created() bool {
	return slices.ContainsFunc(e, func(one effect) bool { return one.reason == v2alpha1.ReasonSuccessfulCreate })
}

// taken returns the creations whose names other objects have.
func (e effects) taken() effects {
	var taken effects
	for i := range e {
		if e[i].isTaken() {
			taken = append(taken, e[i])
		}
	}
	return taken
}

// act carries out a decision. It creates no pod before it has written the Membership, the PodGroup, the
// ConfigMaps and the Secrets that pods depend on.
func (r *Reconciler) act(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effects {
	done := append(r.adopt(ctx, observed, decision), r.restore(ctx, observed, decision)...)
	done = append(done, r.release(ctx, observed, decision)...)
	for _, objects := range [][]client.Object{
		toObjects(decision.DeletePods), toObjects(decision.DeleteServices), toObjects(decision.DeleteConfigMaps), toObjects(decision.DeletePodGroups),
	} {
		done = append(done, r.apply(ctx, observed, r.deletion(), objects)...)
	}
	done = append(done, r.apply(ctx, observed, operation{verb: verbDelete, digest: refusal.NoContent, do: r.removeSecret}, toObjects(decision.DeleteSecrets))...)
	done = append(done, r.writeBudget(ctx, observed, decision)...)
	done = append(done, r.resizePods(ctx, observed, decision)...)
	done = append(done, r.apply(ctx, observed, operation{verb: verbForce, digest: refusal.NoContent, do: r.removeByForce}, toObjects(decision.ForceDeletePods))...)
	list := r.writeMembership(ctx, observed, decision)
	done = append(done, list)
	if list.err != nil {
		return done
	}
	group := r.writePodGroup(ctx, observed, decision)
	done = append(done, group)
	if group.err != nil {
		return done
	}
	// The Membership that counts them as lost is written.
	r.recordEvents(observed.Job, decision.Losses)
	creation := &creation{job: observed.Job, newer: decision.NewerFields}
	configMaps := r.createAll(ctx, creation, toObjects(decision.CreateConfigMaps))
	done = append(done, configMaps...)
	if configMaps.hasFailed() {
		return done
	}
	secrets := r.createSecrets(ctx, decision.CreateSecrets)
	done = append(done, secrets...)
	if secrets.hasFailed() {
		return done
	}
	pods := r.createAll(ctx, creation, toObjects(decision.CreatePods))
	if done = append(done, pods...); len(pods) > 0 && decision.More && !pods.hasFailed() {
		// The next reconcile creates more pods. The names of a Service resolve only once its pods have addresses,
		// and while it exists the scheduler compares each new pod with all others of the job.
		return done
	}
	return append(done, r.createAll(ctx, creation, toObjects(decision.CreateServices))...)
}

// creation is the creation of a job's objects in one reconcile.
type creation struct {
	job *v2alpha1.DIJob
	// newer are the fields of pods that their Go type does not have, by the name of the pod.
	newer map[string]workload.NewerFields
	// failed has the kinds of objects that could not be created.
	failed sync.Map
}

// createAll creates objects in parallel and returns the results in their order.
func (r *Reconciler) createAll(ctx context.Context, creation *creation, objects []client.Object) effects {
	done := make(effects, len(objects))
	slots := make(chan struct{}, refusal.Parallelism)
	var group sync.WaitGroup
	for i, object := range objects {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			done[i] = r.createUnlessFailed(ctx, creation, object)
		})
	}
	group.Wait()
	return done
}

// createUnlessFailed creates an object. After a failure it skips further objects of the kind, because they usually
// fail for the same reason.
func (r *Reconciler) createUnlessFailed(ctx context.Context, creation *creation, object client.Object) effect {
	kind := state.KindOf(creation.job, object)
	if _, hasFailed := creation.failed.Load(kind); hasFailed {
		return effect{}
	}
	done := r.create(ctx, creation.job, object, creation.newer[object.GetName()])
	if done.err != nil && !done.isTaken() {
		creation.failed.Store(kind, true)
	}
	return done
}

func (r *Reconciler) writeMembership(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effect {
	switch {
	case decision.DeleteMembership:
		return r.deleteMembership(ctx, observed)
	case decision.CreateMembership != nil:
		return r.create(ctx, observed.Job, decision.CreateMembership, nil)
	case decision.UpdateMembership != nil:
		return r.writeMembers(ctx, observed, decision.UpdateMembership)
	case decision.MembershipStatus != nil:
		return r.writeMembershipStatus(ctx, observed, decision.MembershipStatus)
	}
	return effect{}
}

// deleteMembership deletes the observed Membership. That of another job is an earlier one's only if a live read shows that the
// observed job has the name: the caches may have the list of the next job before that job itself.
func (r *Reconciler) deleteMembership(ctx context.Context, observed *lifecycle.Observed) effect {
	if observed.Membership.Spec.JobUID != observed.Job.UID {
		if hasName, err := r.hasName(ctx, observed.Job); err != nil || !hasName {
			return effect{err: err}
		}
	}
	done := r.applyOne(ctx, observed, r.deletion(), observed.Membership)
	if done.err == nil {
		return effect{}
	}
	return done
}

// writeMembers writes the members of a ScalePlan. The patch holds for the observed version only, because
// di-server writes them too.
func (r *Reconciler) writeMembers(ctx context.Context, observed *lifecycle.Observed, wanted *v2alpha1.Membership) effect {
	return r.applyOne(ctx, observed, operation{
		verb:   verbUpdate,
		digest: func(client.Object) string { return refusal.Digest(wanted.Spec) },
		do: func(ctx context.Context, _ client.Object) effect {
			patch := client.MergeFromWithOptions(observed.Membership, client.MergeFromWithOptimisticLock{})
			if err := client.IgnoreNotFound(r.client.Patch(ctx, wanted, patch, controllers.FieldOwner)); err != nil {
				return effect{err: fmt.Errorf("patching the members of membership %s/%s: %w", wanted.Namespace, wanted.Name, err)}
			}
			r.assumed.add(observed.Job, wanted, r.clock.Now())
			return effect{}
		},
	}, wanted)
}

func (r *Reconciler) writeMembershipStatus(ctx context.Context, observed *lifecycle.Observed, status *v2alpha1.MembershipStatus) effect {
	stored := observed.Membership.DeepCopy()
	stored.Status = *status
	return r.applyOne(ctx, observed, operation{
		verb:   verbUpdate,
		digest: func(client.Object) string { return refusal.Digest(status) },
		do: func(ctx context.Context, _ client.Object) effect {
			if err := r.client.Status().Update(ctx, stored); err != nil {
				return effect{err: fmt.Errorf("updating the status of membership %s/%s: %w", stored.Namespace, stored.Name, err)}
			}
			r.assumed.add(observed.Job, stored, r.clock.Now())
			r.states.recordStatusWrite(client.ObjectKeyFromObject(observed.Job), r.clock.Now())
			return effect{}
		},
	}, stored)
}

// release removes finalizers from pods. Each patch includes the resource version, because other writers
// change the list too.
func (r *Reconciler) release(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effects {
	if len(decision.ReleasePods) == 0 {
		return nil
	}
	originals := originalsOf(observed)
	return r.apply(ctx, observed, operation{
		verb:   verbRelease,
		digest: originals.digest,
		do: func(ctx context.Context, pod client.Object) effect {
			patch := client.MergeFromWithOptions(originals[pod.GetUID()], client.MergeFromWithOptimisticLock{})
			if err := client.IgnoreNotFound(r.client.Patch(ctx, pod, patch)); err != nil {
				return effect{err: fmt.Errorf("taking Kueue's finalizer from pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)}
			}
			return effect{}
		},
	}, toObjects(decision.ReleasePods))
}

// deletion deletes observed objects, by UID.
func (r *Reconciler) deletion() operation {
	return operation{verb: verbDelete, digest: refusal.NoContent, do: r.remove}
}

// remove deletes an observed object, by UID. It succeeds if the object no longer exists.
func (r *Reconciler) remove(ctx context.Context, object client.Object) effect {
	return r.removeWith(ctx, object)
}

// removeByForce deletes a pod with grace period 0.
func (r *Reconciler) removeByForce(ctx context.Context, object client.Object) effect {
	return r.removeWith(ctx, object, client.GracePeriodSeconds(0))
}

func (r *Reconciler) removeWith(ctx context.Context, object client.Object, options ...client.DeleteOption) effect {
	uid := object.GetUID()
	err := r.client.Delete(ctx, object, append([]client.DeleteOption{client.Preconditions{UID: &uid}}, options...)...)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return effect{}
	case err != nil:
		err = fmt.Errorf("deleting %s %s/%s: %w", typeOf(object), object.GetNamespace(), object.GetName(), err)
		return effect{object: object, reason: v2alpha1.ReasonFailedDelete, err: err}
	}
	return effect{object: object, reason: v2alpha1.ReasonSuccessfulDelete}
}

// create creates an object. If the job already has an object with the name, an earlier reconcile created
// it and the cache is behind.
func (r *Reconciler) create(ctx context.Context, job *v2alpha1.DIJob, object client.Object, newer workload.NewerFields) effect {
	if _, isPod := object.(*corev1.Pod); isPod {
		r.options.Shards.Mark(object, client.ObjectKeyFromObject(job))
	}
	sent, err := controllers.DeepCopy(object)
	if err != nil {
		return effect{object: object, reason: v2alpha1.ReasonFailedCreate, err: err}
	}
	err = r.send(ctx, object, newer)
	switch {
	case err == nil:
		return r.accept(ctx, job, object, sent)
	case apierrors.IsAlreadyExists(err):
		err = r.checkOwner(ctx, job, object)
		if err == nil {
			return effect{}
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The namespace is terminating, and the job with it.
		return effect{}
	}
	err = fmt.Errorf("creating %s %s/%s: %w", typeOf(object), object.GetNamespace(), object.GetName(), err)
	return effect{object: object, reason: v2alpha1.ReasonFailedCreate, err: err}
}

// accept compares a created object with what was sent. It puts back what can be, deletes a pod that could never
// end as the job requires, and notes on a pod what else admission changed.
func (r *Reconciler) accept(ctx context.Context, job *v2alpha1.DIJob, created, sent client.Object) effect {
	if pod, isPod := created.(*corev1.Pod); isPod {
		wanted, _ := sent.(*corev1.Pod)
		altered := workload.Altered(wanted, pod)
		if altered.Refused != "" {
			err := error(&refusal.ChangedError{Who: "admission", What: altered.Refused})
			if gone := r.removeByForce(ctx, pod); gone.err != nil {
				err = errors.Join(err, gone.err)
			}
			return effect{object: created, reason: v2alpha1.ReasonFailedCreate, err: err}
		}
		if altered.Noted != "" {
			metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationAltered, altered.Noted)
		}
	}
	stored, err := r.restoreCreated(ctx, job, created, sent)
	r.assumed.add(job, cmp.Or(stored, created), r.clock.Now())
	if err != nil {
		return effect{object: created, reason: v2alpha1.ReasonFailedUpdate, err: err}
	}
	return effect{object: created, reason: v2alpha1.ReasonSuccessfulCreate}
}

// send sends a creation. The pod includes the fields that its Go type does not have. For fields that the
// API server does not have either, the webhook has returned a warning.
func (r *Reconciler) send(ctx context.Context, object client.Object, newer workload.NewerFields) error {
	pod, isPod := object.(*corev1.Pod)
	if !isPod || newer == nil {
		return r.client.Create(ctx, object)
	}
	content, err := newer.Over(pod)
	if err != nil {
		return err
	}
	whole := &unstructured.Unstructured{Object: content}
	whole.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := r.client.Create(ctx, whole, client.FieldValidation(metav1.FieldValidationIgnore)); err != nil {
		return err
	}
	created := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(whole.Object, created); err != nil {
		return fmt.Errorf("decoding what was created: %w", err)
	}
	created.TypeMeta = pod.TypeMeta
	*pod = *created
	return nil
}

func (r *Reconciler) checkOwner(ctx context.Context, job *v2alpha1.DIJob, object client.Object) error {
	existing, err := controllers.DeepCopy(object)
	if err != nil {
		return err
	}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return fmt.Errorf("looking up the one that exists: %w", err)
	}
	leaving := existing.GetDeletionTimestamp()
	switch {
	case metav1.IsControlledBy(existing, job), leaving == nil && (state.IsDisowned(existing, job) || r.states.misses(job, existing)):
	case leaving != nil:
		return leavingError{leaving.Time}
	case slices.Equal(controllers.OwnerName(existing), []string{job.Name}):
		return leavingError{}
	default:
		return conflictWith(existing)
	}
	if configMap, isConfigMap := existing.(*corev1.ConfigMap); isConfigMap && !workload.IsNodesConfigMap(job, configMap) {
		return nameConflictError{"exists and is no list of the job's peers"}
	}
	if _, isGroup := existing.(*unstructured.Unstructured); isGroup && existing.GetDeletionTimestamp() != nil {
		return errGoing
	}
	// Others may have changed the label by which the cache selects it, or its owner. Its annotations may be those of
	// another attempt, if the cache is behind.
	sent, err := controllers.DeepCopy(object)
	if err != nil {
		return err
	}
	sent.SetAnnotations(nil)
	_, err = r.restoreCreated(ctx, job, existing, sent)
	return err
}

func toObjects[T client.Object](items []T) []client.Object {
	objects := make([]client.Object, len(items))
	for i, item := range items {
		objects[i] = item
	}
	return objects
}

// typeOf returns the type of an object for messages.
func typeOf(object client.Object) string {
	if _, is := object.(*unstructured.Unstructured); is {
		return object.GetObjectKind().GroupVersionKind().GroupKind().String()
	}
	return fmt.Sprintf("%T", object)
}
