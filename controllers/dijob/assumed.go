// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/assume"
	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// assumedObjects are the jobs, and the objects of each job, that the operator wrote and
// its caches may not have yet.
type assumedObjects struct {
	jobs, owned assume.Cache
}

// add remembers an object of a job, or the job itself, as the API server returned it.
func (a *assumedObjects) add(job *v2alpha1.DIJob, object client.Object, now time.Time) {
	controllers.Shrink(object)
	cache := &a.owned
	if _, isJob := object.(*v2alpha1.DIJob); isJob {
		cache = &a.jobs
	}
	cache.Assume(client.ObjectKeyFromObject(job), object, now)
}

// forget drops what is assumed of a job that is gone.
func (a *assumedObjects) forget(job types.NamespacedName) {
	a.jobs.Forget(job)
	a.owned.Forget(job)
}

// complete adds to the observed objects those that the caches lack, by what was
// assumed before the caches were read.
func (a *assumedObjects) complete(observed *lifecycle.Observed, listed assume.Objects) {
	cached := slices.Concat(
		toObjects(observed.Pods), toObjects(observed.Services), toObjects(observed.ConfigMaps), toObjects(observed.PodGroups),
	)
	if observed.Membership != nil {
		cached = append(cached, observed.Membership)
	}
	isOwned := func(object client.Object) bool { return isOfJob(object, observed.Job) }
	for _, object := range a.owned.Missing(client.ObjectKeyFromObject(observed.Job), listed, cached, observed.Now, isOwned) {
		switch object := object.(type) {
		case *corev1.Pod:
			observed.Pods = append(observed.Pods, object)
		case *corev1.Service:
			observed.Services = append(observed.Services, object)
		case *corev1.ConfigMap:
			observed.ConfigMaps = append(observed.ConfigMaps, object)
		case *v2alpha1.Membership:
			observed.Membership = object
		case *unstructured.Unstructured:
			observed.PodGroups = []*unstructured.Unstructured{object}
		}
	}
}

// complete adds to the observed objects what only the operator's memory has.
func (r *Reconciler) complete(observed *lifecycle.Observed, listed assume.Objects) {
	r.assumed.complete(observed, listed)
	r.states.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) {
		observed.Written, state.pods = state.statusWritten, len(observed.Pods)+len(observed.TakenPods)
	})
}
