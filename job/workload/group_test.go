// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

func groupOf(namespace, group, template string) string {
	return Group(&v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
		Spec: v2alpha1.DIJobSpec{Group: group, Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: jobs.Raw(`{"spec":{"containers":[{"image":"learner"}]}}`)},
			{Type: v2alpha1.TaskTypeCollector, Template: jobs.Raw(template)},
		}},
	})
}

func TestJobsOfOneProgramInOneNamespaceAreAGroup(t *testing.T) {
	t.Parallel()
	const one = `{"spec":{"containers":[{"image":"a","command":["train"],"args":["--lr=1"],"resources":{"limits":{"nvidia.com/gpu":1}}}]}}`
	same := groupOf("x", "", one)
	if again := groupOf("x", "", `{"metadata":{"labels":{"a":"b"}},`+one[1:]); again != same {
		t.Errorf("labels change the group %q to %q", same, again)
	}
	for what, other := range map[string]string{
		"another namespace": groupOf("y", "", one),
		"another image":     groupOf("x", "", `{"spec":{"containers":[{"image":"b","command":["train"],"args":["--lr=1"],"resources":{"limits":{"nvidia.com/gpu":1}}}]}}`),
		"another argument":  groupOf("x", "", `{"spec":{"containers":[{"image":"a","command":["train"],"args":["--lr=2"],"resources":{"limits":{"nvidia.com/gpu":1}}}]}}`),
		"another request":   groupOf("x", "", `{"spec":{"containers":[{"image":"a","command":["train"],"args":["--lr=1"],"resources":{"limits":{"nvidia.com/gpu":2}}}]}}`),
		"a named group":     groupOf("x", "ppo", one),
	} {
		if other == same || other == "" {
			t.Errorf("%s is group %q, as is the job without it", what, other)
		}
	}
}

func TestTheSpecNamesTheGroupOfAJob(t *testing.T) {
	t.Parallel()
	if got, want := groupOf("x", "ppo", `{}`), "x/ppo"; got != want {
		t.Errorf("the group is %q, want %q", got, want)
	}
	if got := groupOf("x", "", `{}`); got != "" {
		t.Errorf("a job without a readable template is in group %q", got)
	}
	if got := Group(&v2alpha1.DIJob{}); got != "" {
		t.Errorf("a job without tasks is in group %q", got)
	}
}
