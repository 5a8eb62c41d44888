// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/assume"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// jobStates is the in-memory state of all jobs between reconciles. A new process rebuilds it from the
// answers of the API server.
type jobStates struct {
	mutex sync.Mutex
	jobs  map[types.NamespacedName]*jobState
}

// jobState is the in-memory state of one job.
type jobState struct {
	// statusWritten is when a status was last written.
	statusWritten time.Time
	// pods is the number of the job's pods in the last reconcile.
	pods int
	// due is when the job is reconciled again although the last reconcile failed.
	due time.Time
	// refusals are the creations that the API server refused, by kind. They apply to the versions of the
	// job and its configuration in refusedOf.
	refusals  map[string]state.Refusal
	refusedOf string
	// refusedWrites are the other refusals, by verb, for the same versions.
	refusedWrites map[string]refusal.Writes
	// deleted are the pods that were deleted less than assume.TTL ago, with the times. A cache that is behind
	// shows them without a deletion timestamp, and they are deleted again.
	deleted map[types.UID]time.Time
	// probeKills describe how a probe ended pods, "" for those that no probe ended.
	probeKills map[types.UID]string
	// faultySince is since when each reconcile had a write without a final answer; zero if the last had none.
	faultySince time.Time
	// restored counts how often objects were put back lately, and missed are pods that left the cache.
	restored map[types.UID]restoration
	missed   map[types.UID]missed
	// conflicts are the names that objects of other owners have.
	conflicts []conflict
	// sightings are since when the operator sees what ends by time.
	sightings state.Sightings
}

// update calls a function with the state of a job, which it creates if there is none.
func (s *jobStates) update(job types.NamespacedName, do func(*jobState)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	state := s.jobs[job]
	if state == nil {
		state = &jobState{}
		if s.jobs == nil {
			s.jobs = map[types.NamespacedName]*jobState{}
		}
		s.jobs[job] = state
	}
	do(state)
}

// get returns a copy of a job's state.
func (s *jobStates) get(job types.NamespacedName) jobState {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if state := s.jobs[job]; state != nil {
		return *state
	}
	return jobState{}
}

// forget drops the state of a job that no longer exists.
func (s *jobStates) forget(job types.NamespacedName) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.jobs, job)
}

// setDue records the delay after which a job is reconciled again although a reconcile failed. The queue
// knows only the backoff. 0 means never.
func (s *jobStates) setDue(job types.NamespacedName, after time.Duration, now time.Time) {
	s.update(job, func(state *jobState) {
		state.due = time.Time{}
		if after > 0 {
			state.due = now.Add(after)
		}
	})
}

// see adds to an observation since when the operator sees what ends by time.
func (s *jobStates) see(observed *lifecycle.Observed) {
	s.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) { state.sightings.See(observed) })
}

// recordStatusWrite records when a status was written.
func (s *jobStates) recordStatusWrite(job types.NamespacedName, now time.Time) {
	s.update(job, func(state *jobState) { state.statusWritten = now })
}

// newDeletions returns the writes without deletions of pods that were deleted before.
func (s *jobStates) newDeletions(job *v2alpha1.DIJob, done effects, now time.Time) effects {
	isDeletion := func(one effect) bool { return one.reason == v2alpha1.ReasonSuccessfulDelete && one.isPod() }
	if !slices.ContainsFunc(done, isDeletion) {
		return done
	}
	kept := slices.Clone(done)
	s.update(client.ObjectKeyFromObject(job), func(state *jobState) {
		maps.DeleteFunc(state.deleted, func(_ types.UID, at time.Time) bool { return now.Sub(at) > assume.TTL })
		kept = slices.DeleteFunc(kept, func(one effect) bool {
			if !isDeletion(one) {
				return false
			}
			if state.deleted == nil {
				state.deleted = map[types.UID]time.Time{}
			}
			_, isKnown := state.deleted[one.object.GetUID()]
			state.deleted[one.object.GetUID()] = now
			return isKnown
		})
	})
	return kept
}

// assumedObjects are the jobs, and the objects of each job, that the operator wrote and that its caches
// may not have yet.
type assumedObjects struct {
	jobs, owned assume.Cache
}

// add adds an object of a job, or the job itself, as the API server returned it.
func (a *assumedObjects) add(job *v2alpha1.DIJob, object client.Object, now time.Time) {
	controllers.Shrink(object)
	cache := &a.owned
	if _, isJob := object.(*v2alpha1.DIJob); isJob {
		cache = &a.jobs
	}
	cache.Assume(client.ObjectKeyFromObject(job), object, now)
}

// forget drops the assumed objects of a job that no longer exists.
func (a *assumedObjects) forget(job types.NamespacedName) {
	a.jobs.Forget(job)
	a.owned.Forget(job)
}

// complete adds the assumed objects that the caches do not have to the observed objects. The assumed
// objects must have been listed before the caches were read.
func (a *assumedObjects) complete(observed *lifecycle.Observed, listed assume.Objects) {
	cached := slices.Concat(
		toObjects(observed.Pods), toObjects(observed.Services), toObjects(observed.ConfigMaps), toObjects(observed.PodGroups),
	)
	if observed.Membership != nil {
		cached = append(cached, observed.Membership)
	}
	if observed.Budget != nil {
		cached = append(cached, observed.Budget)
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
		case *policyv1.PodDisruptionBudget:
			observed.Budget = object
		case *v2alpha1.Membership:
			observed.Membership = object
		case *unstructured.Unstructured:
			observed.PodGroups = []*unstructured.Unstructured{object}
		}
	}
}

// complete adds the state that only the operator's memory has to the observed objects.
func (r *Reconciler) complete(observed *lifecycle.Observed, listed assume.Objects) {
	r.assumed.complete(observed, listed)
	r.states.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) {
		observed.Written, state.pods = state.statusWritten, len(observed.Pods)+len(observed.TakenPods)
	})
}
