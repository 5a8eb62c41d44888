// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package problems

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestManyPodsAreCountedInSteps(t *testing.T) {
	problems := make([]podProblem, 100)
	for i := range problems {
		problems[i].pod = &corev1.Pod{}
	}
	for count, want := range map[int]string{3: "", 4: "; and 1 more pod", 12: "; and 9 more pods", 13: "; and 10+ more pods", 100: "; and 50+ more pods"} {
		message := describeProblems(problems[:count])
		if rest := strings.TrimPrefix(message, describeProblems(problems[:namedProblems])); rest != want {
			t.Errorf("of %d pods the rest are counted as %q, want %q", count, rest, want)
		}
	}
}
