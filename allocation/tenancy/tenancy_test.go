// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/allocation/tenancy"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// team is a tenant's only job: how many replicas it wants, had and has.
type team struct {
	name             string
	wanted, had, has int32
}

// play returns the messages by tenant, and the standings, of a node of some GPUs or CPUs and jobs of a GPU or a CPU each.
func play(t *testing.T, capacity int64, of corev1.ResourceName, weights []shares.Tenant, teams ...team) (map[string]allocation.Placement, []tenancy.Standing) {
	t.Helper()
	amount := func(count int64) corev1.ResourceList {
		return corev1.ResourceList{of: *resource.NewQuantity(count, resource.DecimalSI)}
	}
	snapshot := allocation.NewSnapshot([]*corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: amount(capacity),
		},
	}})
	pod := &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amount(1)}}}}
	round := &allocation.Round{Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{}, Tenants: shares.New(weights)}
	decided := map[types.NamespacedName]allocation.Placement{}
	for _, each := range teams {
		job := &allocation.Job{
			Name: types.NamespacedName{Namespace: each.name, Name: "job"}, Min: 1, Wanted: each.wanted,
			Tasks: []allocation.Task{{Name: "worker", Pod: snapshot.RequirementsOf(pod)}},
		}
		round.Jobs = append(round.Jobs, job)
		round.Previous[job.Name] = slices.Repeat([]string{"node"}, int(each.had))
		placement := allocation.Placement{Nodes: slices.Repeat([]string{"node"}, int(each.has)), Message: fmt.Sprintf("%d replicas", each.has)}
		switch each.has {
		case 0:
			placement.Reason = allocation.ReasonInsufficientCapacity
		case each.wanted:
			placement.Reason = allocation.ReasonPlaced
		default:
			placement.Reason = allocation.ReasonPartiallyPlaced
		}
		decided[job.Name] = placement
	}
	standings := tenancy.Standings(round, decided)
	tenancy.Explain(round, decided, standings)
	answers := map[string]allocation.Placement{}
	for name, placement := range decided {
		answers[name.Namespace] = placement
	}
	return answers, standings
}

func TestMessagesSayWhatTenantsHoldAndBorrow(t *testing.T) {
	t.Parallel()
	equal, threeToOne := []shares.Tenant{{Name: "a"}}, []shares.Tenant{{Name: "a", Weight: 3}}
	for name, tc := range map[string]struct {
		capacity int64
		of       corev1.ResourceName
		weights  []shares.Tenant
		teams    []team
		want     map[string]string
	}{
		"a borrower": {
			16, gpu, equal, []team{{"a", 12, 12, 12}, {"b", 4, 4, 4}},
			map[string]string{"a": "12 replicas; tenant a holds 12 of its 8 nvidia.com/gpu, 4 of them lent by tenant b", "b": "4 replicas"},
		},
		"a job that has less than it wants": {
			16, gpu, threeToOne, []team{{"a", 20, 12, 12}, {"b", 20, 4, 4}},
			map[string]string{"a": "12 replicas; tenant a holds 12 of its 12 nvidia.com/gpu", "b": "4 replicas; tenant b holds 4 of its 4 nvidia.com/gpu"},
		},
		"a tenant that wants nothing": {
			16, gpu, threeToOne, []team{{"a", 0, 0, 0}, {"b", 16, 16, 16}},
			map[string]string{"a": "0 replicas", "b": "16 replicas"},
		},
		"a part of a GPU is no loan": {
			10, gpu, threeToOne, []team{{"a", 8, 8, 8}, {"b", 2, 2, 2}},
			map[string]string{"a": "8 replicas", "b": "2 replicas"},
		},
		"several lenders": {
			20, gpu, equal, []team{{"a", 16, 16, 16}, {"b", 1, 1, 1}, {"c", 2, 2, 2}, {"d", 1, 1, 1}, {"e", 0, 0, 0}},
			map[string]string{"a": "16 replicas; tenant a holds 16 of its 5 nvidia.com/gpu, 11 of them lent by tenant b, tenant d and tenant c"},
		},
		"CPUs where no job wants GPUs": {
			16, corev1.ResourceCPU, equal, []team{{"a", 12, 12, 12}, {"b", 4, 4, 4}},
			map[string]string{"a": "12 replicas; tenant a holds 12 of its 8 cpu, 4 of them lent by tenant b"},
		},
		"without tenants": {16, gpu, nil, []team{{"a", 20, 12, 12}}, map[string]string{"a": "12 replicas"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers, _ := play(t, tc.capacity, tc.of, tc.weights, tc.teams...)
			for team, want := range tc.want {
				expect.Equal(t, "message of "+team, want, answers[team].Message)
				expect.Equal(t, "what "+team+" gives back", "", answers[team].GivesBack)
			}
		})
	}
}

func TestAJobThatLosesBorrowedReplicasLearnsToWhom(t *testing.T) {
	t.Parallel()
	threeToOne := []shares.Tenant{{Name: "a", Weight: 3}}
	answers, _ := play(t, 16, gpu, threeToOne, team{"a", 12, 0, 12}, team{"b", 16, 16, 4})
	expect.Equal(t, "event", "the job gives back 12 nvidia.com/gpu to tenant a, which tenant b had borrowed: "+
		"4 replicas; tenant b holds 4 of its 4 nvidia.com/gpu", answers["b"].GivesBack)
	if answers, _ = play(t, 16, gpu, threeToOne, team{"a", 12, 12, 8}, team{"b", 4, 4, 4}); answers["a"].GivesBack != "" {
		t.Errorf("a job that shrinks within its share gives back nothing, got %q", answers["a"].GivesBack)
	}
	if answers, _ = play(t, 16, gpu, threeToOne, team{"b", 16, 16, 0}, team{"a", 16, 0, 16}); !strings.Contains(answers["b"].GivesBack, "gives back 16 ") {
		t.Errorf("a job that stops gives back all, got %q", answers["b"].GivesBack)
	}
}

func TestStandingsHaveWhatTenantsWantHoldAndMayHold(t *testing.T) {
	t.Parallel()
	_, standings := play(t, 16, gpu, []shares.Tenant{{Name: "a", Weight: 3}}, team{"a", 20, 10, 10}, team{"b", 6, 6, 6}, team{"c", 0, 0, 0})
	var got []string
	for _, s := range standings {
		got = append(got, fmt.Sprintf("%s wants %g %s, holds %g and is entitled to %g", s.Tenant, s.Wants, s.Resource, s.Holds, s.Entitled))
	}
	expect.Equal(t, "standings", []string{
		"a wants 20 nvidia.com/gpu, holds 10 and is entitled to 12", "b wants 6 nvidia.com/gpu, holds 6 and is entitled to 4",
	}, got)
}
