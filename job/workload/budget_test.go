// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheWholeNumberOfABudgetFollowsTheReplicas(t *testing.T) {
	t.Parallel()
	most := func(text string) *v2alpha1.Disruption {
		return &v2alpha1.Disruption{MaxUnavailable: ptr.To(intstr.Parse(text))}
	}
	least := func(text string) *v2alpha1.Disruption {
		return &v2alpha1.Disruption{MinAvailable: ptr.To(intstr.Parse(text))}
	}
	for name, tc := range map[string]struct {
		disruption *v2alpha1.Disruption
		replicas   int32
		want       int32
		fails      string
	}{
		"no eviction":                          {most("0"), 4, 4, ""},
		"one at once":                          {most("1"), 4, 3, ""},
		"as many as there are":                 {most("4"), 4, 0, ""},
		"more than there are":                  {most("9"), 4, 0, ""},
		"a percentage of unavailable replicas": {most("25%"), 4, 3, ""},
		"one that is no whole number allows more, rounding": {most("25%"), 5, 3, ""},
		"a small one allows one":                            {most("1%"), 4, 3, ""},
		"0 %":                                               {most("0%"), 4, 4, ""},
		"100 %":                                             {most("100%"), 4, 0, ""},
		"available replicas":                                {least("3"), 4, 3, ""},
		"more available ones than there are":                {least("9"), 4, 4, ""},
		"a percentage of available replicas":                {least("50%"), 4, 2, ""},
		"one that is no whole number requires more":         {least("50%"), 5, 3, ""},
		"all available":                                     {least("100%"), 5, 5, ""},
		"no replicas, and none unavailable":                 {most("0"), 0, 0, ""},
		"no replicas, and some must be available":           {least("2"), 0, 0, ""},
		"the largest numbers":                               {most("2147483647"), 100_000, 0, ""},
		"a word":                                            {most("half"), 4, 4, "spec.disruption.maxUnavailable: half: must be a number"},
		"a negative number":                                 {least("-1"), 4, 0, "spec.disruption.minAvailable: -1: must be a number"},
		"a negative percentage":                             {most("-50%"), 4, 4, "spec.disruption.maxUnavailable: -50%: must be a number"},
		"neither":                                           {&v2alpha1.Disruption{}, 4, 4, "spec.disruption: must have exactly one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := MinAvailable(tc.disruption, tc.replicas)
			expect.Equal(t, "minAvailable", tc.want, got)
			if (err != nil) != (tc.fails != "") || err != nil && !strings.HasPrefix(err.Error(), tc.fails) {
				t.Errorf("the error is %v, want %q", err, tc.fails)
			}
		})
	}
}

func TestABudgetSelectsAllPodsOfItsJobAndNoOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lifecycle v2alpha1.Lifecycle
		own       []map[string]string
		foreign   []map[string]string
	}{
		"worker-led": {
			v2alpha1.LifecycleWorkerLed,
			[]map[string]string{names.WorkerLabels("job", v2alpha1.TaskTypeLearner, "learner", "job-learner-0")},
			[]map[string]string{names.WorkerLabels("job-2", v2alpha1.TaskTypeLearner, "learner", "p"), names.JobLabels("job")},
		},
		"coordinator-led": {
			v2alpha1.LifecycleCoordinatorLed,
			[]map[string]string{
				names.ReplicaLabels("job", names.ReplicaTypeCoordinator, "job-coordinator"),
				names.ReplicaLabels("job", names.ReplicaTypeAggregator, "job-aggregator-x"),
				names.ReplicaLabels("job", names.ReplicaTypeDDPLearner, "job-ddp-learner-x"),
			},
			[]map[string]string{names.JobLabels("other"), names.WorkerJobLabels("job")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "job", UID: "uid"}, Spec: v2alpha1.DIJobSpec{Lifecycle: tc.lifecycle}}
			budget := Budget(job, v2alpha1.Version, 3)
			selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
			expect.NoError(t, err)
			for _, pod := range tc.own {
				expect.Equal(t, "selected", true, selector.Matches(labels.Set(pod)))
			}
			for _, pod := range tc.foreign {
				expect.Equal(t, "selected", false, selector.Matches(labels.Set(pod)))
			}
			expect.Equal(t, "minAvailable", intstr.FromInt32(3), *budget.Spec.MinAvailable)
			expect.Equal(t, "policy", policyv1.AlwaysAllow, *budget.Spec.UnhealthyPodEvictionPolicy)
			expect.Equal(t, "controlled", true, metav1.IsControlledBy(budget, job))
			// The cache of the operator selects budgets by this label.
			expect.Equal(t, "label", names.ControllerName, budget.Labels[names.LabelOperator])
		})
	}
}
