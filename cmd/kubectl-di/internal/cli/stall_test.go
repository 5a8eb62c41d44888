// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAJobThatIsStuckForTooLongEndsTheWait(t *testing.T) {
	t.Parallel()
	fine, stuck := &v2alpha1.DIJob{}, &v2alpha1.DIJob{}
	stuck.Namespace, stuck.Name = "rl", "pong"
	stuck.Status.Conditions = []v2alpha1.DIJobCondition{{
		Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonImagePull, Message: "manifest unknown",
	}}
	const want = "job rl/pong has been stuck for 5m0s, and continues: manifest unknown\nwhat would let it run:\n  Correct the image's name and tag."
	type seen struct {
		job   *v2alpha1.DIJob
		lasts time.Duration
	}
	for name, tc := range map[string]struct {
		after time.Duration
		seen  []seen
		want  string
	}{
		"never without the flag":            {0, []seen{{stuck, time.Hour}}, ""},
		"not before":                        {5 * time.Minute, []seen{{stuck, 4 * time.Minute}}, ""},
		"then":                              {5 * time.Minute, []seen{{stuck, 5*time.Minute + 1}}, want},
		"in total, of several states":       {5 * time.Minute, []seen{{stuck, 3 * time.Minute}, {stuck, 3 * time.Minute}}, want},
		"not with a break":                  {5 * time.Minute, []seen{{stuck, 4 * time.Minute}, {fine, 1}, {stuck, 4 * time.Minute}}, ""},
		"not one that makes progress":       {5 * time.Minute, []seen{{fine, time.Hour}}, ""},
		"after a break that is long enough": {5 * time.Minute, []seen{{stuck, 1}, {fine, time.Hour}, {stuck, time.Hour}}, want},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stalling := (&Stall{After: tc.after}).Watch(t.Context())
				for _, one := range tc.seen {
					stalling.See(one.job)
					<-time.After(one.lasts)
				}
				synctest.Wait()
				isEnded := ctx.Err() != nil
				got := ""
				if err := stalling.End(); err != nil {
					got = err.Error()
				}
				expect.Equal(t, "error", tc.want, got)
				expect.Equal(t, "whether the context has ended", tc.want != "", isEnded)
			})
		})
	}
}
