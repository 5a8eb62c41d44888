// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"math"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestCountsBeyondThePodsOfAJobAreFoundByTheirFields(t *testing.T) {
	t.Parallel()
	task := func(name string, replicas int32) v2alpha1.Task {
		return v2alpha1.Task{Type: v2alpha1.TaskTypeNone, Name: name, Replicas: &replicas}
	}
	elastic := func(replicas, least, most *int32) *v2alpha1.Elastic {
		return &v2alpha1.Elastic{Task: "a", Replicas: replicas, MinReplicas: least, MaxReplicas: most}
	}
	for name, tc := range map[string]struct {
		spec v2alpha1.DIJobSpec
		want []string
	}{
		"as many as may be": {spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{task("a", 60), task("b", 40)}}},
		"a task without a count has one replica": {
			spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{task("a", 100), {Type: v2alpha1.TaskTypeLearner}}},
			want: []string{"spec.tasks: 101: the replicas of all tasks together must be at most 100"},
		},
		"two tasks whose sum is no int32": {
			spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{task("a", math.MaxInt32), task("b", math.MaxInt32)}},
			want: []string{"spec.tasks[0].replicas: 2147483647: must be at most 100", "spec.tasks[1].replicas: 2147483647: must be at most 100"},
		},
		"a stored count below 0 hides no other": {
			spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{task("a", 60), task("b", 60), task("c", -100)}},
			want: []string{"spec.tasks: 120:"},
		},
		"elastic counts for the task": {
			spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{task("a", 1), task("b", 40)}, Elastic: elastic(ptr.To[int32](61), nil, nil)},
			want: []string{"spec.tasks: 101:"},
		},
		"elastic alone": {
			spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{task("a", 1)}, Elastic: elastic(ptr.To[int32](math.MaxInt32), nil, nil)},
			want: []string{"spec.elastic.replicas: 2147483647: must be at most 100"},
		},
		"bounds that the other tasks leave no room for": {
			spec: v2alpha1.DIJobSpec{
				Tasks:   []v2alpha1.Task{task("a", 1), task("b", 40)},
				Elastic: elastic(ptr.To[int32](1), ptr.To[int32](61), ptr.To[int32](math.MaxInt32)),
			},
			want: []string{
				"spec.elastic.minReplicas: 61: must be at most 60, which with the 40 replicas of the other tasks",
				"spec.elastic.maxReplicas: 2147483647: must be at most 60",
			},
		},
		"bounds are not blamed for the other tasks": {
			spec: v2alpha1.DIJobSpec{
				Tasks: []v2alpha1.Task{task("a", 1), task("b", 200)}, Elastic: elastic(nil, ptr.To[int32](1), ptr.To[int32](100)),
			},
			want: []string{"spec.tasks[1].replicas: 200:"},
		},
		"a coordinator decides for itself": {
			spec: v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed, Tasks: []v2alpha1.Task{task("a", 200)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := CheckCounts(&tc.spec, 100)
			if !slices.EqualFunc(found, tc.want, func(e Excess, want string) bool { return strings.HasPrefix(e.String(), want) }) {
				t.Errorf("got %v, want %v", found, tc.want)
			}
		})
	}
}

func TestSumsStayWithinTheirTypes(t *testing.T) {
	t.Parallel()
	if got := Sum(math.MaxInt32, math.MaxInt32); got != math.MaxInt32 {
		t.Errorf("got the sum %d", got)
	}
	if got := Total(math.MaxInt32, math.MaxInt32, -5); got != 2*math.MaxInt32 {
		t.Errorf("got the total %d", got)
	}
}
