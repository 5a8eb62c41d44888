// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// collectorTime is how long the garbage collector has for what an earlier job left behind. It never deletes that if a
// new job had the name before the collector saw that the earlier one was gone.
const collectorTime = 10 * time.Second

// LeftBehind is what earlier jobs of the name left behind.
type LeftBehind struct {
	// Due are the objects to delete, once a live read shows that the observed job has the name.
	Due []state.Object
	// Next is after how long to look again, 0 for never.
	Next time.Duration
}

// FindLeftBehind returns what earlier jobs of the name left behind. An object that something else owns too is not
// deleted.
func FindLeftBehind(observed *state.Observed) LeftBehind {
	var found LeftBehind
	owners := map[types.UID]bool{}
	for _, object := range observed.LeftBehind {
		owners[metav1.GetControllerOf(object).UID], owners[object.GetUID()] = true, true
	}
	isOthers := func(owner metav1.OwnerReference) bool { return !owners[owner.UID] }
	for _, object := range observed.LeftBehind {
		if object.GetDeletionTimestamp() != nil || slices.ContainsFunc(object.GetOwnerReferences(), isOthers) {
			continue
		}
		left := observed.LeftBehindSeen(object).Add(collectorTime).Sub(observed.Now)
		if left <= 0 {
			found.Due = append(found.Due, object)
			left = collectorTime
		}
		found.Next = state.Sooner(found.Next, left)
	}
	return found
}
