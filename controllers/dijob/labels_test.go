// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
)

func TestLabelsThatOthersChangedArePutBack(t *testing.T) {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "u"}}
	wanted := func() *corev1.Pod {
		labels := names.WorkerLabels("j", v2alpha1.TaskTypeLearner, "learner", "j-learner-0")
		labels[names.LabelShard], labels["app"] = "0-of-2", "a"
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "j-learner-0", Labels: labels, OwnerReferences: []metav1.OwnerReference{*workload.Owner(job, v2alpha1.Version)},
		}}
	}
	changed := func(pod client.Object) {
		labels := maps.Clone(pod.GetLabels())
		labels[names.LabelShard], labels[names.LabelJob], labels["app"] = "1-of-2", "other", "b"
		delete(labels, names.LabelTaskName)
		pod.SetLabels(labels)
	}
	kept := wanted()
	kept.Labels["app"] = "b"
	for name, tc := range map[string]struct {
		exists, onCreate, onPatch bool
		refused                   string
	}{
		"by a user":                   {exists: true},
		"by admission":                {onCreate: true},
		"by admission, and each time": {onCreate: true, onPatch: true, refused: "admission changes label " + names.LabelJob},
	} {
		t.Run(name, func(t *testing.T) {
			built := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if tc.onCreate {
						changed(object)
					}
					return c.Create(ctx, object, options...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					if tc.onPatch {
						return c.Get(ctx, client.ObjectKeyFromObject(object), object)
					}
					return c.Patch(ctx, object, patch, options...)
				},
			})
			if tc.exists {
				existing := wanted()
				changed(existing)
				built = built.WithObjects(existing)
			}
			api := built.Build()
			r := &Reconciler{client: api, live: api, clock: clock.RealClock{}}
			done := r.create(t.Context(), job, wanted(), nil)
			if tc.refused != "" {
				if !done.isRefused() || !strings.Contains(done.err.Error(), tc.refused) {
					t.Errorf("the result is %+v", done)
				}
				return
			}
			var stored corev1.Pod
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(kept), &stored); done.err != nil || err != nil {
				t.Fatal(done.err, err)
			}
			if diff := cmp.Diff(kept.Labels, stored.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}
