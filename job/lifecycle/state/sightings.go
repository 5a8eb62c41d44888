// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Sightings remember when this operator first saw what ends by time and costs a pod: by its own clock, as
// the clocks of those who recorded it may differ by an hour. They are not stored: a new operator sees all
// of it again, and waits the whole time. The zero value remembers nothing.
type Sightings struct {
	since map[string]time.Time
}

// See adds to an observation since when this operator sees what it observes, and forgets the rest.
func (s *Sightings) See(observed *Observed) {
	since := map[string]time.Time{}
	keys := timed(observed)
	if begin := beginOf(observed.Job); observed.Job.Status.Phase == "" || !s.since[begin].IsZero() {
		keys = append(keys, begin)
	}
	for _, key := range keys {
		first, isKnown := s.since[key]
		if !isKnown || first.After(observed.Now) {
			first = observed.Now
		}
		since[key] = first
	}
	s.since, observed.since = since, since
}

// timed returns the keys of what is observed and ends by time.
func timed(observed *Observed) []string {
	var keys []string
	if HasHistoryFinalizer(observed.Job) && !observed.Job.DeletionTimestamp.IsZero() {
		keys = append(keys, endOf(observed.Job))
	}
	for _, pod := range observed.Pods {
		switch {
		case podstate.Terminating(pod):
			keys = append(keys, deletionOf(pod))
		case podstate.Finished(pod), podstate.FailedOrLost(pod):
			keys = append(keys, finishOf(pod))
		}
	}
	for _, object := range observed.LeftBehind {
		keys = append(keys, leftBehind(object))
	}
	if scaling := observed.Job.Status.Scaling; scaling != nil && scaling.Membership != nil && scaling.Membership.LeavingSince != nil {
		keys = append(keys, leavingOf(scaling.Membership))
	}
	if observed.Membership != nil {
		for i := range observed.Membership.Spec.Requests {
			keys = append(keys, requestOf(&observed.Membership.Spec.Requests[i]))
		}
		keys = append(keys, removed(observed)...)
	}
	return keys
}

// removed returns the keys of members that are gone and that pods were created for.
func removed(observed *Observed) []string {
	list := observed.Membership
	if list.Spec.JobUID != observed.Job.UID || !list.DeletionTimestamp.IsZero() {
		return nil
	}
	members := make(map[string]bool, len(list.Spec.Members))
	for i := range list.Spec.Members {
		members[list.Spec.Members[i].Slot] = true
	}
	var keys []string
	for _, pod := range observed.Pods {
		if slot := pod.Annotations[names.AnnotationSlot]; slot != "" && !members[slot] {
			keys = append(keys, removalOf(slot))
		}
	}
	return keys
}

func beginOf(job *v2alpha1.DIJob) string { return "begin of job " + string(job.UID) }

func endOf(job *v2alpha1.DIJob) string { return "deletion of job " + string(job.UID) }

func deletionOf(pod *corev1.Pod) string { return "deletion of " + string(pod.UID) }

func finishOf(pod *corev1.Pod) string { return "finish of " + string(pod.UID) }

func leftBehind(object metav1.Object) string {
	return "left behind by " + string(metav1.GetControllerOf(object).UID)
}

func leavingOf(list *v2alpha1.PublishedMembership) string {
	return fmt.Sprintf("leaving since %d", list.LeavingSince.Unix())
}

func removalOf(slot string) string { return "removal of member " + slot }

func requestOf(request *v2alpha1.RecordedRequest) string {
	return fmt.Sprintf("request %s at %d of %v and %v", request.ID, request.Time.Unix(), request.Collectors, request.Learners)
}

// seen returns since when this operator sees something; now for what it sees for the first time.
func (o *Observed) seen(key string) time.Time {
	if since, isKnown := o.since[key]; isKnown {
		return since
	}
	return o.Now
}

// ActiveSince returns since when the job is active. An operator that has seen the job begin counts from then: the API
// server recorded its creation by another clock.
func (o *Observed) ActiveSince() time.Time {
	created := o.Job.CreationTimestamp.Time
	if begin, hasSeen := o.since[beginOf(o.Job)]; hasSeen {
		created = begin
	}
	return activeSince(o.Job, created, o.Now)
}

// JobDeletionSeen returns since when this operator sees that the job is being deleted and waits for the history.
func (o *Observed) JobDeletionSeen() time.Time { return o.seen(endOf(o.Job)) }

// DeletionSeen returns since when this operator sees that a pod is being deleted.
func (o *Observed) DeletionSeen(pod *corev1.Pod) time.Time { return o.seen(deletionOf(pod)) }

// DelayLeft returns how long a delay before a finished pod is replaced still lasts. It counts from a time by the clock
// of another machine, but ends at the latest a delay after this operator saw that the pod has finished.
func (o *Observed) DelayLeft(pod *corev1.Pod, since time.Time, delay time.Duration) time.Duration {
	if seen := o.seen(finishOf(pod)); seen.Before(since) {
		since = seen
	}
	return since.Add(delay).Sub(o.Now)
}

// LeftBehindSeen returns since when this operator sees what an earlier job left behind that controls an object.
func (o *Observed) LeftBehindSeen(object metav1.Object) time.Time { return o.seen(leftBehind(object)) }

// LeavingSeen returns since when this operator sees the members leave that leave now.
func (o *Observed) LeavingSeen(list *v2alpha1.PublishedMembership) time.Time {
	return o.seen(leavingOf(list))
}

// RequestSeen returns since when this operator sees a recorded request.
func (o *Observed) RequestSeen(request *v2alpha1.RecordedRequest) time.Time {
	return o.seen(requestOf(request))
}

// RemovalSeen returns since when this operator sees a pod whose member is gone.
func (o *Observed) RemovalSeen(slot string) time.Time { return o.seen(removalOf(slot)) }
