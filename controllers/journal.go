// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// believed is how long the operator takes for granted what it wrote and no
// watch has told of. Only an object that went while a watch was broken lasts
// that long.
const believed = 30 * time.Second

// journal remembers of each job what the operator wrote and its caches may not
// have yet, so that no reconcile recreates what an earlier one created, or decides
// on a status that it knows to be old. It is lost with the process, which then
// finds out by asking.
type journal struct {
	mutex sync.Mutex
	jobs  map[types.NamespacedName]*journalEntry
}

// journalEntry is what is remembered of one job.
type journalEntry struct {
	// written is when a status was last written.
	written time.Time
	// pods is how many the job had when it was last looked at.
	pods int
	// due is when the job was to be looked at again, though the last pass failed.
	due time.Time
	// refusals are what the API server refused to create, by kind, of the job and
	// its configuration in the versions that refusedOf says.
	refusals  map[string]lifecycle.Refusal
	refusedOf string
	// refusedWrites are what it refused besides, by verb, of the same versions.
	refusedWrites map[string]refusedWrites
	// conflicts are the names that others have.
	conflicts []conflict
	// ours are the objects as they were last written, by kind and name.
	ours map[string]belief
}

// belief is an object as it was written at a time.
type belief struct {
	object client.Object
	at     time.Time
}

// beliefKey tells the objects of one job apart. They share its namespace.
func beliefKey(object client.Object) string {
	return fmt.Sprintf("%T %s", object, object.GetName())
}

// on does something with a job's entry, which it makes where there is none.
func (j *journal) on(job types.NamespacedName, do func(*journalEntry)) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	entry := j.jobs[job]
	if entry == nil {
		entry = &journalEntry{ours: map[string]belief{}}
		if j.jobs == nil {
			j.jobs = map[types.NamespacedName]*journalEntry{}
		}
		j.jobs[job] = entry
	}
	do(entry)
}

// forget drops what is remembered of a job that is gone.
func (j *journal) forget(job types.NamespacedName) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	delete(j.jobs, job)
}

// wrote remembers an object as the API server returned it.
func (j *journal) wrote(job *v2alpha1.DIJob, object client.Object, now time.Time) {
	shrink(object)
	j.on(client.ObjectKeyFromObject(job), func(entry *journalEntry) {
		entry.ours[beliefKey(object)] = belief{object: object, at: now}
	})
}

// wroteStatus remembers when a status was written.
func (j *journal) wroteStatus(job *v2alpha1.DIJob, now time.Time) {
	j.on(client.ObjectKeyFromObject(job), func(entry *journalEntry) { entry.written = now })
}

// saw ends the belief in an object that a watch told of in this version or a
// later one, or told to be gone.
func (j *journal) saw(job types.NamespacedName, object client.Object, gone bool) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	entry := j.jobs[job]
	if entry == nil {
		return
	}
	key := beliefKey(object)
	ours, found := entry.ours[key]
	if found && (!isOlder(object, ours.object) || gone && object.GetUID() == ours.object.GetUID()) {
		delete(entry.ours, key)
	}
}

// setDue remembers in how long a job is to be looked at again, of which the
// queue is not told where a pass fails; 0 for never.
func (j *journal) setDue(job types.NamespacedName, after time.Duration, now time.Time) {
	j.on(job, func(entry *journalEntry) {
		entry.due = time.Time{}
		if after > 0 {
			entry.due = now.Add(after)
		}
	})
}

// due returns when a job of which a pass failed is to be looked at again,
// the zero time for never.
func (j *journal) due(job types.NamespacedName) time.Time {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if entry := j.jobs[job]; entry != nil {
		return entry.due
	}
	return time.Time{}
}

// size returns how many pods a job had when it was last looked at.
func (j *journal) size(job types.NamespacedName) int {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if entry := j.jobs[job]; entry != nil {
		return entry.pods
	}
	return 0
}

// latest returns a job as it is cached, or as it was written after that.
func (j *journal) latest(cached *v2alpha1.DIJob) *v2alpha1.DIJob {
	latest := cached
	j.on(client.ObjectKeyFromObject(cached), func(entry *journalEntry) {
		key := beliefKey(cached)
		ours, ok := entry.ours[key].object.(*v2alpha1.DIJob)
		if ok && ours.UID == cached.UID && isOlder(cached, ours) {
			latest = ours
			return
		}
		delete(entry.ours, key)
	})
	return latest
}

// believes reports whether the caches may still lack something that a job owns.
func (j *journal) believes(job *v2alpha1.DIJob) bool {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	entry := j.jobs[client.ObjectKeyFromObject(job)]
	if entry == nil {
		return false
	}
	for _, each := range entry.ours {
		if _, isJob := each.object.(*v2alpha1.DIJob); !isJob {
			return true
		}
	}
	return false
}

// beliefs returns what is believed of a job. They are to be read before the
// caches are: what a watch tells of in between is missing from neither then.
func (j *journal) beliefs(job types.NamespacedName) map[string]belief {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if entry := j.jobs[job]; entry != nil {
		return maps.Clone(entry.ours)
	}
	return nil
}

// complete adds to what the caches have of a job what was written after that,
// by what was believed before they were read.
func (j *journal) complete(observed *lifecycle.Observed, beliefs map[string]belief) {
	j.on(client.ObjectKeyFromObject(observed.Job), func(entry *journalEntry) {
		entry.drop(observed, beliefs)
		for _, each := range beliefs {
			switch object := each.object.(type) {
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
		observed.Written, entry.pods = entry.written, len(observed.Pods)+len(observed.TakenPods)
	})
}

// drop ends the beliefs that the caches have caught up with, that are too old,
// and those of another job of the name.
func (e *journalEntry) drop(observed *lifecycle.Observed, beliefs map[string]belief) {
	if len(beliefs) == 0 {
		return
	}
	known := make(map[string]client.Object, len(observed.Pods))
	for _, object := range slices.Concat(
		toObjects(observed.Pods), toObjects(observed.Services), toObjects(observed.ConfigMaps), toObjects(observed.PodGroups),
	) {
		known[beliefKey(object)] = object
	}
	if observed.Membership != nil {
		known[beliefKey(observed.Membership)] = observed.Membership
	}
	for key, each := range beliefs {
		if _, isJob := each.object.(*v2alpha1.DIJob); isJob {
			continue
		}
		cached := known[key]
		isCached := cached != nil && !isOlder(cached, each.object)
		if isCached || observed.Now.Sub(each.at) > believed || !slices.Contains(controllerUID(each.object), string(observed.Job.UID)) {
			delete(beliefs, key)
			delete(e.ours, key)
		}
	}
}
