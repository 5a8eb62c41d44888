// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// A cache may have the Membership of a job, and still an earlier job of its name.
func TestTheMembershipOfAnotherJobIsDeletedOnlyForTheJobThatHasTheName(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	expect.NoError(t, v2alpha1.AddToScheme(scheme))
	for name, tc := range map[string]struct {
		// known is the job that the operator knows, of those that the Membership and the API server name.
		known, of, stored types.UID
		isKept            bool
	}{
		"an earlier job's":              {known: "second", of: "first", stored: "second"},
		"its own":                       {known: "first", of: "first", stored: "first"},
		"that of the job after it":      {known: "first", of: "second", stored: "second", isKept: true},
		"an earlier job's, and it goes": {known: "second", of: "first", stored: "third", isKept: true},
		"another job's, and none is":    {known: "first", of: "second", isKept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meta := metav1.ObjectMeta{Namespace: "n", Name: "j"}
			list := &v2alpha1.Membership{ObjectMeta: meta, Spec: v2alpha1.MembershipSpec{JobUID: tc.of}}
			list.UID = "list"
			built := fake.NewClientBuilder().WithScheme(scheme).WithObjects(list)
			job := &v2alpha1.DIJob{ObjectMeta: meta}
			if job.UID = tc.stored; job.UID != "" {
				built = built.WithObjects(job.DeepCopy())
			}
			job.UID = tc.known
			api := built.Build()
			r := &Reconciler{client: api, live: api, clock: clock.RealClock{}}
			done := r.writeMembership(t.Context(), &lifecycle.Observed{Job: job, Membership: list}, &lifecycle.Decision{DeleteMembership: true})
			expect.NoError(t, done.err)
			stored, err := controllers.Find(t.Context(), api, client.ObjectKeyFromObject(list), &v2alpha1.Membership{})
			expect.NoError(t, err)
			expect.Equal(t, "it is there", tc.isKept, stored != nil)
		})
	}
}
