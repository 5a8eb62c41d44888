// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"fmt"
	"testing"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// TestEachStateOfThePageIsDesignedInABrowser shows what is there without jobs, rights, a connection or a session.
func TestEachStateOfThePageIsDesignedInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	empty := w.namespace(t)
	w.operatorOf(t, ns, "v2.7.0")
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	user := w.printedURL(t, ns, "-n", ns, "--server-namespace", ns)
	stranger := w.printedURL(t, ns, "-n", ns, "--as", "nina")
	inABrowser(t, "states.mjs", user.String(), w.printedURL(t, empty, "-n", empty).String(), stranger.String(), ns)
}

// TestJobsAreCreatedAndChangedTogetherInABrowser pastes, clones and undoes, and changes several jobs at once.
func TestJobsAreCreatedAndChangedTogetherInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	for i := range 4 {
		w.scalable(t, ns, fmt.Sprintf("sweep-%d", i), func(job *v2alpha1.DIJob) { job.Spec.Elastic.MaxReplicas = ptr.To[int32](6) })
	}
	done := w.workers(t, ns, "done", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.setStatus(t, done, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	inABrowser(t, "together.mjs", w.printedURL(t, ns, "-n", ns).String(), ns)
	left := &v2alpha1.DIJobList{}
	expect.NoError(t, w.live.List(t.Context(), left))
	found := map[string]bool{}
	for i := range left.Items {
		if job := &left.Items[i]; job.Namespace == ns && job.DeletionTimestamp == nil {
			found[job.Name] = ptr.Deref(job.Spec.Suspend, false)
		}
	}
	want := map[string]bool{"sweep-1": false, "sweep-2": true, "sweep-3": true, "pasted": false, "sweep-0-copy": false}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("the jobs and whether they are suspended: %v, want %v", found, want)
	}
}
