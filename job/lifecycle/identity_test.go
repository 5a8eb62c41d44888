// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"testing"

	"opendilab.org/di-orchestrator/internal/names"
)

func TestAPodWithTheLabelOfAnotherShardGetsThatOfItsJobButNotOneOfAnEarlierNumberOfShards(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{"2-of-2": "1-of-2", "1-of-2": "", "3-of-4": "", "": "", "none": ""} {
		w := startedJob(t)
		for _, pod := range w.pods {
			pod.Labels = maps.Clone(pod.Labels)
			if pod.Labels[names.LabelShard] = label; label == "" {
				delete(pod.Labels, names.LabelShard)
			}
		}
		observed := w.observe()
		observed.ShardLabel = "1-of-2"
		decision := Decide(observed)
		if restored := len(decision.RestorePods) > 0; restored != (want != "") {
			t.Errorf("label %q: %d pods are put back", label, len(decision.RestorePods))
		}
		for _, pod := range decision.RestorePods {
			if got := pod.Labels[names.LabelShard]; got != want {
				t.Errorf("label %q: got %q, want %q", label, got, want)
			}
		}
		if len(decision.DeletePods)+len(decision.CreatePods) > 0 {
			t.Errorf("label %q: pods are replaced", label)
		}
	}
}
