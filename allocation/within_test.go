// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const requestsGPU = corev1.ResourceName("requests.nvidia.com/gpu")

func nodeOf(name, gpus string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		Allocatable: listOf("cpu", "64", "memory", "256Gi", "pods", "110", "nvidia.com/gpu", gpus),
	}}
}

func listOf(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func quotaOf(name string, used corev1.ResourceList, hard ...string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: listOf(hard...)},
		Status: corev1.ResourceQuotaStatus{Used: used},
	}
}

func gpuPod(gpus string) *corev1.PodSpec {
	return &corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: listOf("cpu", "500m", "nvidia.com/gpu", gpus), Limits: listOf("cpu", "1", "nvidia.com/gpu", gpus),
	}}}}
}

// tenants are the jobs of a round in several namespaces.
type tenants struct {
	snapshot *allocation.Snapshot
	round    allocation.Round
}

func newTenants(nodes ...*corev1.Node) *tenants {
	snapshot := allocation.NewSnapshot(nodes)
	return &tenants{snapshot, allocation.Round{
		Now: time.Unix(1_700_000_000, 0), Nodes: snapshot.Nodes, Quotas: map[string][]*allocation.Quota{}, Groups: map[string]*allocation.Group{},
		Previous: map[types.NamespacedName][]string{},
	}}
}

func (s *tenants) bound(namespace string, quota *corev1.ResourceQuota) {
	s.round.Quotas[namespace] = append(s.round.Quotas[namespace], allocation.NewQuota(quota, nil))
}

// add adds a job of one elastic task, after the quotas of its namespace.
func (s *tenants) add(namespace, name string, least, wanted int32, spec *corev1.PodSpec) *allocation.Job {
	task := allocation.Task{Name: "trainer", Pod: s.snapshot.RequirementsOf(spec)}
	for _, quota := range s.round.Quotas[namespace] {
		if quota.Tracks(spec) {
			task.Uses = append(task.Uses, allocation.UsesOf(spec))
		} else {
			task.Uses = append(task.Uses, nil)
		}
	}
	job := &allocation.Job{
		Name: types.NamespacedName{Namespace: namespace, Name: name}, Created: s.round.Now.Add(time.Duration(len(s.round.Jobs)) * time.Second),
		Tasks: []allocation.Task{task}, Min: least, Wanted: wanted,
	}
	s.round.Jobs = append(s.round.Jobs, job)
	return job
}

func policies() map[string]allocation.Policy {
	return map[string]allocation.Policy{"fit": fit.Fit{}, "goodput": goodput.New(goodput.DefaultSettings())}
}

func TestAnotherTenantGetsWhatTheQuotaOfTheFirstDoesNotAdmit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		quota *corev1.ResourceQuota
		why   string
	}{
		"GPUs":             {quotaOf("gpus", nil, "requests.nvidia.com/gpu", "2"), "quota gpus leaves 2 of requests.nvidia.com/gpu to it"},
		"GPUs of others":   {quotaOf("gpus", listOf("requests.nvidia.com/gpu", "5"), "requests.nvidia.com/gpu", "7"), "quota gpus leaves 2 of"},
		"pods":             {quotaOf("pods", nil, "pods", "2"), "quota pods leaves 2 of pods"},
		"objects":          {quotaOf("objects", nil, "count/pods", "2"), "quota objects leaves 2 of count/pods"},
		"requests of CPU":  {quotaOf("cpu", nil, "requests.cpu", "1400m"), "quota cpu leaves 1.4 of requests.cpu"},
		"CPU":              {quotaOf("cpu", nil, "cpu", "1"), "quota cpu leaves 1 of cpu"},
		"limits of CPU":    {quotaOf("cpu", nil, "limits.cpu", "2"), "quota cpu leaves 2 of limits.cpu"},
		"the least counts": {quotaOf("both", nil, "pods", "5", "limits.cpu", "2500m"), "quota both leaves 2.5 of limits.cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTenants(nodeOf("a", "8"))
			s.bound("bound", tc.quota)
			first, second := s.add("bound", "first", 1, 8, gpuPod("1")), s.add("free", "second", 6, 6, gpuPod("1"))
			decided := allocation.Within(fit.Fit{}, &s.round)
			got, other := decided[first.Name], decided[second.Name]
			if len(got.Nodes) != 2 || len(other.Nodes) != 6 {
				t.Errorf("%d and %d replicas are placed, want 2 and 6", len(got.Nodes), len(other.Nodes))
			}
			if got.Reason != allocation.ReasonPartiallyPlaced || !strings.Contains(got.Message, "8 of task trainer are desired: "+tc.why) {
				t.Errorf("got %s: %s, want %s: %q", got.Reason, got.Message, allocation.ReasonPartiallyPlaced, tc.why)
			}
		})
	}
}

func TestAJobWhoseLeastSizeAQuotaDoesNotAdmitWaitsAndSaysWhy(t *testing.T) {
	t.Parallel()
	for name, policy := range policies() {
		s := newTenants(nodeOf("a", "8"))
		s.bound("bound", quotaOf("gpus", nil, "requests.nvidia.com/gpu", "2"))
		first, second := s.add("bound", "first", 3, 8, gpuPod("1")), s.add("free", "second", 8, 8, gpuPod("1"))
		decided := allocation.Within(policy, &s.round)
		want := allocation.Placement{
			Reason: allocation.ReasonQuotaExceeded, Message: "the API server does not admit the least replicas: quota gpus leaves 2 of requests.nvidia.com/gpu to it",
		}
		if diff := cmp.Diff(want, decided[first.Name]); diff != "" || len(decided[second.Name].Nodes) != 8 {
			t.Errorf("%s: the other has %d replicas, want 8; placement (-want +got):\n%s", name, len(decided[second.Name].Nodes), diff)
		}
	}
}

func TestAPlacedJobKeepsItsPartOfAQuotaAndAHigherPriorityIsFirst(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		priority   int32
		old, young int
	}{{0, 4, 0}, {1, 2, 2}} {
		s := newTenants(nodeOf("a", "8"))
		s.bound("bound", quotaOf("gpus", nil, "requests.nvidia.com/gpu", "4"))
		old, young := s.add("bound", "old", 1, 4, gpuPod("1")), s.add("bound", "young", 2, 2, gpuPod("1"))
		s.round.Previous[old.Name] = []string{"a", "a", "a", "a"}
		young.Priority = tc.priority
		decided := allocation.Within(fit.Fit{}, &s.round)
		if got := []int{len(decided[old.Name].Nodes), len(decided[young.Name].Nodes)}; !slices.Equal(got, []int{tc.old, tc.young}) {
			t.Errorf("priority %d: %v replicas, want %d and %d", tc.priority, got, tc.old, tc.young)
		}
	}
}

func TestAPlacementShrinksToWhatExistsUnlessAllOfItExists(t *testing.T) {
	t.Parallel()
	for running, want := range map[int]int{2: 2, 4: 4} {
		s := newTenants(nodeOf("a", "8"))
		s.bound("bound", quotaOf("gpus", nil, "requests.nvidia.com/gpu", "2"))
		job := s.add("bound", "job", 1, 8, gpuPod("1"))
		s.round.Previous[job.Name], job.Running = []string{"a", "a", "a", "a"}, map[int]string{}
		for rank := range running {
			job.Running[rank] = "a"
		}
		if got := allocation.Within(fit.Fit{}, &s.round)[job.Name]; len(got.Nodes) != want {
			t.Errorf("%d of 4 replicas exist: %d are placed, want %d", running, len(got.Nodes), want)
		}
	}
}

func TestARefusedJobHasTheReplicasThatTheAPIServerAdmits(t *testing.T) {
	t.Parallel()
	s := newTenants(nodeOf("a", "8"))
	job, barred := s.add("space", "job", 1, 8, gpuPod("1")), s.add("space", "barred", 1, 1, gpuPod("1"))
	job.Bound, barred.Bound = &allocation.Bound{Replicas: 3, Why: "a pod is refused"}, &allocation.Bound{Why: "limit range small"}
	decided := allocation.Within(fit.Fit{}, &s.round)
	if got := decided[job.Name]; len(got.Nodes) != 3 || !strings.HasSuffix(got.Message, "8 of task trainer are desired: a pod is refused") {
		t.Errorf("got %+v", got)
	}
	if got := decided[barred.Name]; len(got.Nodes) != 0 || got.Reason != allocation.ReasonQuotaExceeded || !strings.HasSuffix(got.Message, ": limit range small") {
		t.Errorf("got %+v", got)
	}
}

// What is placed in a namespace never uses more than its quotas leave, with any policy.
func TestWhatIsPlacedNeverExceedsAQuota(t *testing.T) {
	t.Parallel()
	for name, policy := range policies() {
		for seed := range uint64(150) {
			random := rand.New(rand.NewPCG(seed, 7))
			s := randomTenants(random)
			// Rounds follow each other, so that placements of the last one exist.
			for range 3 {
				decided := allocation.Within(policy, &s.round)
				if excess := s.excess(decided); excess != "" {
					t.Fatalf("policy %s, seed %d: %s", name, seed, excess)
				}
				for job, placement := range decided {
					s.round.Previous[job] = placement.Nodes
				}
				s.round.Now = s.round.Now.Add(time.Minute)
			}
		}
	}
}

func randomTenants(random *rand.Rand) *tenants {
	s := newTenants(nodeOf("a", "8"), nodeOf("b", "8"), nodeOf("c", "4"))
	for n := range 3 {
		namespace := fmt.Sprint("space-", n)
		if random.IntN(4) > 0 {
			s.bound(namespace, quotaOf("gpus", nil, "requests.nvidia.com/gpu", strconv.Itoa(random.IntN(12)), "pods", strconv.Itoa(random.IntN(12))))
		}
		if random.IntN(2) > 0 {
			s.bound(namespace, quotaOf("cpu", listOf("limits.cpu", strconv.Itoa(random.IntN(4))), "limits.cpu", strconv.Itoa(random.IntN(12))))
		}
		for k := range random.IntN(5) {
			least := int32(1 + random.IntN(3))
			job := s.add(namespace, fmt.Sprint("job-", k), least, least+int32(random.IntN(8)), gpuPod(strconv.Itoa(random.IntN(3))))
			job.Priority = int32(random.IntN(2))
			if random.IntN(3) == 0 {
				job.Tasks = append([]allocation.Task{job.Tasks[0]}, job.Tasks...)
				job.Tasks[0].Name, job.Tasks[0].Replicas, job.Elastic = "learner", 1, random.IntN(3)-1
				job.Tasks[1].Replicas = 1
				if job.Elastic == 0 {
					job.Tasks[0].Replicas = 0
				}
			}
		}
	}
	return s
}

// excess describes a quota that placements exceed; "" for none.
func (s *tenants) excess(decided map[types.NamespacedName]allocation.Placement) string {
	for namespace, quotas := range s.round.Quotas {
		for i, quota := range quotas {
			used := allocation.Amounts{}
			for _, job := range s.round.Jobs {
				if job.Name.Namespace != namespace {
					continue
				}
				for range decided[job.Name].Nodes {
					// All tasks of these jobs have equal pods.
					for name := range quota.Left {
						used[name] += job.Tasks[0].Uses[i][name]
					}
				}
			}
			for name, left := range quota.Left {
				if used[name] > left {
					return fmt.Sprintf("%s, quota %s: %d of %s are used, %d are left", namespace, quota.Name, used[name], name, left)
				}
			}
		}
	}
	return ""
}

func TestAQuotaCountsThePodsOfItsScopes(t *testing.T) {
	t.Parallel()
	class := func(operator corev1.ScopeSelectorOperator, values ...string) *corev1.ScopeSelector {
		return &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator, Values: values},
		}}
	}
	plain, deadline, high, idle, near := gpuPod("1"), gpuPod("1"), gpuPod("1"), &corev1.PodSpec{Containers: make([]corev1.Container, 1)}, gpuPod("1")
	deadline.ActiveDeadlineSeconds, high.PriorityClassName = ptr.To[int64](5), "high"
	near.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{Namespaces: []string{"x"}}}}}
	all := []*corev1.PodSpec{plain, deadline, high, idle, near}
	for name, tc := range map[string]struct {
		spec corev1.ResourceQuotaSpec
		want []bool
	}{
		"none":              {corev1.ResourceQuotaSpec{}, []bool{true, true, true, true, true}},
		"Terminating":       {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"Terminating"}}, []bool{false, true, false, false, false}},
		"NotTerminating":    {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"NotTerminating"}}, []bool{true, false, true, true, true}},
		"BestEffort":        {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"BestEffort"}}, []bool{false, false, false, true, false}},
		"two":               {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"NotBestEffort", "Terminating"}}, []bool{false, true, false, false, false}},
		"PriorityClass":     {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"PriorityClass"}}, []bool{false, false, true, false, false}},
		"a priority class":  {corev1.ResourceQuotaSpec{ScopeSelector: class("In", "high")}, []bool{false, false, true, false, false}},
		"not this class":    {corev1.ResourceQuotaSpec{ScopeSelector: class("NotIn", "high")}, []bool{true, true, false, true, true}},
		"no priority class": {corev1.ResourceQuotaSpec{ScopeSelector: class("DoesNotExist")}, []bool{true, true, false, true, true}},
		"other namespaces":  {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"CrossNamespacePodAffinity"}}, []bool{false, false, false, false, true}},
		"volumes":           {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"VolumeAttributesClass"}}, []bool{false, false, false, false, false}},
	} {
		for i, spec := range all {
			if got := allocation.Tracks(&tc.spec, spec); got != tc.want[i] {
				t.Errorf("scope %s, pod %d: tracked is %t, want %t", name, i, got, tc.want[i])
			}
		}
	}
}

func TestPodsThatExistCountOnceAndOtherObjectsDoNotCount(t *testing.T) {
	t.Parallel()
	quota := quotaOf("q", listOf("pods", "5", "requests.nvidia.com/gpu", "1"), "pods", "8", "requests.nvidia.com/gpu", "4", "services", "0", "requests.storage", "0")
	got := allocation.NewQuota(quota, allocation.Amounts{"pods": 3, requestsGPU: 3}).Left
	// The usage may be older than the pods: three exist, and one is counted.
	expect.Equal(t, "left", allocation.Amounts{"pods": 6, requestsGPU: 4}, got)
}

func TestLimitRangesSetDefaultsAndBoundPods(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		item corev1.LimitRangeItem
		want string
	}{
		"defaults": {corev1.LimitRangeItem{Type: "Container", DefaultRequest: listOf("memory", "1Gi"), Default: listOf("memory", "2Gi", "cpu", "64")}, ""},
		"max of a container": {corev1.LimitRangeItem{Type: "Container", Max: listOf("nvidia.com/gpu", "1")},
			"limit range r: container main must be limited to at most 1 of nvidia.com/gpu"},
		"max without a limit": {corev1.LimitRangeItem{Type: "Container", Max: listOf("memory", "1Gi")},
			"limit range r: container main must be limited to at most 1Gi of memory"},
		"min of a container": {corev1.LimitRangeItem{Type: "Container", Min: listOf("cpu", "2")}, "limit range r: container main must request at least 2 of cpu"},
		"min of a pod":       {corev1.LimitRangeItem{Type: "Pod", Min: listOf("cpu", "400m")}, ""},
		"max of a pod":       {corev1.LimitRangeItem{Type: "Pod", Max: listOf("cpu", "800m")}, "limit range r: the pod must be limited to at most 800m of cpu"},
		"ratio": {corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: listOf("cpu", "1")},
			"limit range r: container main must have a limit of cpu of at most 1 times its request"},
		"of claims": {corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Max: listOf("storage", "1")}, ""},
	} {
		limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{tc.item}}}
		given := gpuPod("2")
		spec, why := allocation.WithLimitRanges(given, []*corev1.LimitRange{limits})
		if why != tc.want {
			t.Errorf("%s: got %q, want %q", name, why, tc.want)
		}
		resources := spec.Containers[0].Resources
		if name == "defaults" && (resources.Requests.Memory().String() != "1Gi" || resources.Limits.Memory().String() != "2Gi" || resources.Limits.Cpu().String() != "1") {
			t.Errorf("%s: got %+v", name, resources)
		}
		if !given.Containers[0].Resources.Requests.Memory().IsZero() {
			t.Errorf("%s: the given spec changed", name)
		}
	}
}
