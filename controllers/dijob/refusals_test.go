// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// forbidden returns an answer of the API server to the creation of a pod.
func forbidden(why string) error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "job-learner-0", errors.New(why))
	return fmt.Errorf("creating pod: %w", err)
}

func TestARefusalSaysWhoWhyAndWhatKind(t *testing.T) {
	t.Parallel()
	const who = "pod job-learner-0 (learner) is refused: "
	tests := map[string]struct {
		errs        []error
		wantReason  string
		wantMessage string
	}{
		"nothing":              {nil, "", ""},
		"a fault that passes":  {[]error{apierrors.NewTooManyRequests("busy", 1)}, "", ""},
		"a name that is taken": {[]error{nameConflictError{"exists and has no owner"}}, "", ""},
		"a quota, without what is used": {
			[]error{forbidden("exceeded quota: team, requested: cpu=1,pods=1, used: cpu=7,pods=2, limited: cpu=8,pods=2")},
			v2alpha1.ReasonQuotaExceeded, who + "exceeded quota: team, requested: cpu=1,pods=1, limited: cpu=8,pods=2",
		},
		"a quota that wants to know more": {
			[]error{forbidden("failed quota: team: must specify limits.cpu for: di-container")},
			v2alpha1.ReasonResourcesMissing,
			who + "failed quota: team: must specify limits.cpu for: di-container: set in the template resources.limits.cpu of container di-container",
		},
		"a quota that names no containers": {
			[]error{forbidden("failed quota: team: must specify limits.cpu,memory")}, v2alpha1.ReasonResourcesMissing,
			who + "failed quota: team: must specify limits.cpu,memory: set in the template resources.limits.cpu of each container, resources.requests.memory of each container",
		},
		"a LimitRange": {
			[]error{forbidden("maximum cpu usage per Container is 1, but limit is 2")}, v2alpha1.ReasonLimitRangeViolation,
			who + "maximum cpu usage per Container is 1, but limit is 2: set in the template resources.limits.cpu of each container to at most 1",
		},
		"a LimitRange that wants a limit": {
			[]error{forbidden("maximum cpu usage per Container is 1.  No limit is specified")}, v2alpha1.ReasonLimitRangeViolation,
			who + "maximum cpu usage per Container is 1.  No limit is specified: set in the template resources.limits.cpu of each container to at most 1",
		},
		"a Pod Security Standard, for two": {
			[]error{forbidden(`violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`), forbidden("no")},
			v2alpha1.ReasonPodSecurityViolation,
			who + `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true); 1 other waits`,
		},
		"a webhook, for three": {
			[]error{forbidden("a"), forbidden("b"), forbidden("c")},
			v2alpha1.ReasonFailedCreate, who + "a; 2 others wait",
		},
		"a webhook that does not answer": {
			[]error{apierrors.NewInternalError(errors.New(`failed calling webhook "policy": context deadline exceeded`))},
			v2alpha1.ReasonFailedCreate, who + `Internal error occurred: failed calling webhook "policy": context deadline exceeded`,
		},
		"an object that is too large": {
			[]error{errors.New("etcdserver: request is too large")},
			v2alpha1.ReasonFailedCreate, who + "etcdserver: request is too large",
		},
		"another fault of the API server": {[]error{apierrors.NewInternalError(errors.New("broken"))}, "", ""},
		"a template that is no pod": {
			[]error{apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "job-learner-0", nil)},
			v2alpha1.ReasonFailedCreate, who + `Pod "job-learner-0" is invalid`,
		},
		"a bad request": {
			[]error{apierrors.NewBadRequest("admission webhook \"policy\" denied the request: no")},
			v2alpha1.ReasonFailedCreate, who + "admission webhook \"policy\" denied the request: no",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-learner-0", Labels: map[string]string{"diengine/task-name": "learner"}}}
			done := effects{{object: pod, reason: v2alpha1.ReasonSuccessfulCreate}}
			for _, err := range tc.errs {
				done = append(done, effect{object: pod, reason: v2alpha1.ReasonFailedCreate, err: err})
			}
			reason, message := done.refusals(&v2alpha1.DIJob{}, map[string]int{"learner": 1 + len(tc.errs)})
			if reason != tc.wantReason || message != tc.wantMessage {
				t.Errorf("reason and message are %q and %q, want %q and %q", reason, message, tc.wantReason, tc.wantMessage)
			}
		})
	}
}
