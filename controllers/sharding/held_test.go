// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/shards"
)

func TestOnlyDeletionsOfJobsOfOtherShardsPass(t *testing.T) {
	t.Parallel()
	h := NewHeld(2)
	h.set(1, true)
	changes := h.Changes()
	for i := range 8 {
		job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("job-%d", i)}}
		isHeld := shards.Of(client.ObjectKeyFromObject(job), 2) == 1
		if got := changes.Create(event.CreateEvent{Object: job}); got != isHeld {
			t.Errorf("creation of %s: passes %t, want %t", job.Name, got, isHeld)
		}
		if got := changes.Update(event.UpdateEvent{ObjectOld: job, ObjectNew: job}); got != isHeld {
			t.Errorf("update of %s: passes %t, want %t", job.Name, got, isHeld)
		}
		if !changes.Delete(event.DeleteEvent{Object: job}) {
			t.Errorf("the deletion of %s does not pass", job.Name)
		}
	}
}

func TestAllChangesPassWithOneShard(t *testing.T) {
	t.Parallel()
	var h *Held
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job"}}
	if !h.Changes().Create(event.CreateEvent{Object: job}) {
		t.Error("the creation of a job does not pass")
	}
}

func TestAnEventDoesNotWaitForTheReconcileThatKeepsAShard(t *testing.T) {
	t.Parallel()
	held := NewHeld(1)
	held.set(0, true)
	reconcile := &held.shards[0]
	reconcile.RLock()
	released := make(chan struct{})
	go func() {
		defer close(released)
		held.set(0, false)
	}()
	for reconcile.TryRLock() {
		// The release does not wait yet.
		reconcile.RUnlock()
		runtime.Gosched()
	}
	if !held.has(0) {
		t.Error("the shard is released during a reconcile")
	}
	reconcile.RUnlock()
	<-released
	if held.has(0) {
		t.Error("the shard is not released")
	}
}
