// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestManyPodsOfOnePassHaveOneEvent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		effect effect
		want   string
	}{
		"created":          {effect{reason: v2alpha1.ReasonSuccessfulCreate}, "Normal SuccessfulCreate created 17 pods"},
		"deleted":          {effect{reason: v2alpha1.ReasonSuccessfulDelete}, "Normal SuccessfulDelete deleted 17 pods"},
		"not created":      {effect{reason: v2alpha1.ReasonFailedCreate, err: errors.New("no")}, "Warning FailedCreate 17 pods: no"},
		"not deleted":      {effect{reason: v2alpha1.ReasonFailedDelete, err: errors.New("no")}, "Warning FailedDelete 17 pods: no"},
		"to be waited for": {effect{reason: v2alpha1.ReasonFailedCreate, err: leavingError{}}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := events.NewFakeRecorder(100)
			r := &Reconciler{recorder: recorder}
			var done effects
			for i := range maxSingleEvents + 1 {
				one := tc.effect
				one.object = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("job-collector-%d", i)}}
				done = append(done, one)
			}
			r.recordWrites(&v2alpha1.DIJob{}, done)
			if got := strings.Join(eventsOf(recorder), "\n"); got != tc.want {
				t.Errorf("told is %q, want %q", got, tc.want)
			}
			if r.recordWrites(&v2alpha1.DIJob{}, done[:maxSingleEvents]); tc.want != "" && len(eventsOf(recorder)) != maxSingleEvents {
				t.Error("few pods do not have an event each")
			}
		})
	}
}
