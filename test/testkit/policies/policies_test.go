// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	account = "system:serviceaccount:di-system:di-orchestrator-"
	author  = "author"
)

// job returns a job with a status.
func job(status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "metadata": map[string]any{"name": "job", "namespace": "space"},
		"spec": map[string]any{"tasks": []any{map[string]any{"name": "learner", "replicas": int64(1)}}}, "status": status,
	}}
}

func TestAPolicyJudgesTheWritesOfItsAccount(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("..", "..", "..", "config", "policy")
	manifests, err := Read(folder, filepath.Join(folder, "submitters"))
	expect.NoError(t, err)
	set, err := Compile(manifests, func(user string) bool { return user == author })
	expect.NoError(t, err)
	jobs := schema.GroupVersionResource{Group: "diengine.opendilab.org", Version: "v2alpha1", Resource: "dijobs"}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	requested, ended := map[string]any{"requests": []any{}, "phase": "Running"}, map[string]any{"phase": "Failed"}
	resized := job(nil)
	resized.Object["spec"] = map[string]any{"tasks": []any{map[string]any{"name": "learner", "replicas": int64(2)}}}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "pod", "namespace": "space"}}}
	running := job(map[string]any{"phase": "Running"})
	held := func(isDeleted bool, finalizers ...string) *unstructured.Unstructured {
		held := job(map[string]any{"phase": "Running"})
		held.SetFinalizers(finalizers)
		if isDeleted {
			held.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1_000, 0)})
		}
		return held
	}
	const ours, others = names.FinalizerHistory, "example.com/archive"
	labelled := held(true, others)
	labelled.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "free"})
	other := held(true, others)
	other.Object["spec"] = resized.Object["spec"]
	history := func(object, old *unstructured.Unstructured) Write {
		return Write{User: account + "history", Object: object, Old: old}
	}
	for name, tc := range map[string]struct {
		write Write
		want  string
	}{
		"di-server records a request":    {Write{User: account + "server", Subresource: "status", Object: job(requested), Old: running}, ""},
		"di-server ends a job":           {Write{User: account + "server", Subresource: "status", Object: job(ended), Old: running}, "may change nothing of a job's status but"},
		"the operator ends a job":        {Write{User: account + "operator", Subresource: "status", Object: job(ended), Old: running}, ""},
		"di-server resizes a fixed task": {Write{User: account + "server", Object: resized, Old: job(nil)}, "may change no task"},
		"the author resizes a task":      {Write{User: author, Object: resized, Old: job(nil)}, ""},
		"a stranger resizes a task":      {Write{User: "stranger", Object: resized, Old: job(nil)}, "may not create pods"},
		"the webhooks create a pod":      {Write{User: account + "webhook", Operation: admission.Create, Resource: pods, Object: pod}, "in dry run only"},
		"the history lets a job go":      {history(held(true, others), held(true, ours, others)), ""},
		"one that only it holds":         {history(held(true), held(true, ours)), ""},
		"one that is not deleted":        {history(held(false), held(false, ours)), "only from a deleted job"},
		"it removes another finalizer":   {history(held(true, ours), held(true, ours, others)), "only from a deleted job"},
		"it adds one":                    {history(held(true, ours, others), held(true, ours)), "only from a deleted job"},
		"it changes a label":             {history(labelled, held(true, ours, others)), "nothing of a job's metadata"},
		"it removes a label":             {history(held(true, others), labelled), "nothing of a job's metadata"},
		"it changes the spec":            {history(other, held(true, ours, others)), "nothing of a job's spec and status"},
		"it changes the status":          {Write{User: account + "history", Subresource: "status", Object: job(ended), Old: running}, "nothing of a job's spec and status"},
		"it resizes a job":               {Write{User: account + "history", Subresource: "scale", Object: other, Old: held(true, others)}, "nothing of a job's spec and status"},
		"they do in dry run":             {Write{User: account + "webhook", Operation: admission.Create, Resource: pods, Object: pod, DryRun: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			write := tc.write
			if write.Operation == "" {
				write.Operation, write.Resource = admission.Update, jobs
			}
			write.Kind = write.Object.GetObjectKind().GroupVersionKind()
			got, err := set.Refusal(t.Context(), &write)
			expect.NoError(t, err)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("refusal is %q, want %q", got, tc.want)
			}
		})
	}
}
