// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// world is what was observed of a job and of what belongs to it.
type world struct {
	job        *v2alpha1.DIJob
	isGone     bool
	membership *v2alpha1.Membership
	pods       map[types.UID]*corev1.Pod
	events     map[types.UID]*corev1.Event
	lacks      []string
	history    history
}

func newWorld(job *v2alpha1.DIJob) *world {
	w := &world{job: job, pods: map[types.UID]*corev1.Pod{}, events: map[types.UID]*corev1.Event{}}
	w.history.add(job.Status.Profilings)
	return w
}

// apply takes a change in. A job that was recreated under the same name is
// another one.
func (w *world) apply(change cluster.Change) {
	switch object := change.Object.(type) {
	case *v2alpha1.DIJob:
		w.isGone = change.Gone || object.UID != w.job.UID
		if !w.isGone {
			w.job = object
			w.history.add(object.Status.Profilings)
		}
	case *v2alpha1.Membership:
		if w.membership = object; change.Gone {
			w.membership = nil
		}
	case *corev1.Pod:
		keep(w.pods, object.UID, object, change.Gone)
	case *corev1.Event:
		keep(w.events, object.UID, object, change.Gone)
	}
}

func keep[T any](all map[types.UID]T, uid types.UID, object T, gone bool) {
	if gone {
		delete(all, uid)
		return
	}
	all[uid] = object
}

// lack records that something is not observed.
func (w *world) lack(why string) {
	if !slices.Contains(w.lacks, why) {
		w.lacks = append(w.lacks, why)
	}
}

func (w *world) isFinished() bool {
	return w.isGone || w.job.Status.Phase == v2alpha1.JobSucceeded || w.job.Status.Phase == v2alpha1.JobFailed
}
