// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// view is a job as observed from outside: the view that the model expects, or the actual one.
type view struct {
	Phase    v2alpha1.Phase
	Members  []memberView
	Pods     map[string]podView
	Services []string
	// Lists are the answers of each server to the coordinator.
	Lists []urls
	// Units are the answers of each server to the aggregators.
	Units []map[string][]string
}

// memberView is a member of the Membership and its status.
type memberView struct {
	Slot, Task string
	MilliCPUs  int64
	GPUs       []int32
	// ObservedPod is the observed pod in the status. Phase is that pod's phase.
	ObservedPod string
	Phase       corev1.PodPhase
}

type podView struct {
	Role, Slot string
	// Aggregator is the aggregator that also owns the pod.
	Aggregator  string
	OwnedByJob  bool
	MilliCPUs   int64
	GPUs        int64
	Phase       corev1.PodPhase
	Terminating bool
}

// wanted returns the view of a job that matches the model.
func (m *model) wanted(job string, servers int) view {
	v := view{Phase: v2alpha1.JobRunning, Pods: map[string]podView{}}
	v.Pods[names.CoordinatorPod(job)] = podView{Role: coordinator, OwnedByJob: true, Phase: corev1.PodRunning}
	units := map[string][]string{}
	for _, one := range m.replicas {
		head := podOf(one.url)
		v.Members = append(v.Members, memberView{one.slot, one.task, one.milliCPUs, one.cut(), head, corev1.PodRunning})
		pod := podView{Role: one.role(), Slot: one.slot, OwnedByJob: true, Phase: corev1.PodRunning}
		if !one.isUnit() {
			pod.MilliCPUs, pod.GPUs = one.milliCPUs, int64(one.gpus)
			v.Pods[head] = pod
			continue
		}
		v.Pods[head] = pod
		pod.Role, pod.Aggregator, pod.MilliCPUs = ddpLearner, head, one.milliCPUs
		for i, gpus := range one.cut() {
			pod.GPUs = int64(gpus)
			if i < len(one.learners) {
				v.Pods[one.learners[i]] = pod
				units[head] = append(units[head], gpuURLs(one, i)...)
			}
		}
	}
	for name := range v.Pods {
		v.Services = append(v.Services, name)
	}
	slices.Sort(v.Services)
	for range servers {
		v.Lists = append(v.Lists, m.listed())
		v.Units = append(v.Units, units)
	}
	return v
}

// gpuURLs returns the URLs of the GPU processes of a DDP learner pod.
func gpuURLs(unit *replica, index int) []string {
	var found []string
	for gpu := range unit.cut()[index] {
		found = append(found, fmt.Sprintf("%s.%s:%d", unit.learners[index], namespaceOf(unit.url), ports[ddpLearner]+int(gpu)))
	}
	return found
}

// state contains the objects of a job in the API server.
type state struct {
	job      v2alpha1.DIJob
	list     *v2alpha1.Membership
	pods     []corev1.Pod
	services []corev1.Service
}

// read reads the objects of the fixture's job from the API server.
func (t *fixture) read(ctx context.Context) (*state, error) {
	found := &state{list: &v2alpha1.Membership{}}
	key := client.ObjectKey{Namespace: t.namespace, Name: jobName}
	if err := t.api.client.Get(ctx, key, &found.job); err != nil {
		return nil, fmt.Errorf("reading the job: %w", err)
	}
	if err := client.IgnoreNotFound(t.api.client.Get(ctx, key, found.list)); err != nil {
		return nil, fmt.Errorf("reading the Membership: %w", err)
	}
	var pods corev1.PodList
	var services corev1.ServiceList
	for _, list := range []client.ObjectList{&pods, &services} {
		if err := t.api.client.List(ctx, list, client.InNamespace(t.namespace)); err != nil {
			return nil, fmt.Errorf("reading the job's objects: %w", err)
		}
	}
	found.pods, found.services = pods.Items, services.Items
	return found, nil
}

// look returns the actual view of the job.
func (s *state) look() view {
	v := view{Phase: s.job.Status.Phase, Pods: map[string]podView{}}
	for i := range s.list.Spec.Members {
		v.Members = append(v.Members, s.member(&s.list.Spec.Members[i]))
	}
	uids := map[types.UID]string{}
	for i := range s.pods {
		uids[s.pods[i].UID] = s.pods[i].Name
	}
	for i := range s.pods {
		pod := &s.pods[i]
		limits := pod.Spec.Containers[0].Resources.Limits
		seen := podView{
			Role: pod.Labels[names.LabelReplicaType], Slot: pod.Annotations[names.AnnotationSlot],
			OwnedByJob: metav1.IsControlledBy(pod, &s.job), Phase: pod.Status.Phase,
			MilliCPUs: limits.Cpu().MilliValue(), Terminating: pod.DeletionTimestamp != nil,
		}
		gpus := limits[names.DefaultGPU]
		seen.GPUs = gpus.Value()
		for _, owner := range pod.OwnerReferences {
			if owner.Kind == "Pod" {
				seen.Aggregator = cmp.Or(uids[owner.UID], "one that is gone")
			}
		}
		v.Pods[pod.Name] = seen
	}
	for i := range s.services {
		v.Services = append(v.Services, s.serviceName(&s.services[i]))
	}
	slices.Sort(v.Services)
	return v
}

func (s *state) member(member *v2alpha1.Member) memberView {
	seen := memberView{Slot: member.Slot, Task: string(member.Task), GPUs: member.DDPGPUs}
	if member.Resources.CPUs != nil {
		seen.MilliCPUs = member.Resources.CPUs.MilliValue()
	}
	for i := range s.list.Status.Slots {
		if status := &s.list.Status.Slots[i]; status.Slot == member.Slot {
			seen.ObservedPod, seen.Phase = status.ObservedPod, status.Phase
		}
	}
	return seen
}

// serviceName returns the name of a service and its errors. The job must own the service, which
// must select the pod of the same name and no other.
func (s *state) serviceName(service *corev1.Service) string {
	if !metav1.IsControlledBy(service, &s.job) || service.DeletionTimestamp != nil {
		return service.Name + " (not the job's, or going)"
	}
	if service.Spec.Selector[names.LabelPodName] != service.Name {
		return service.Name + " (selects another pod)"
	}
	return service.Name
}

// learn adds to the model the names that no client knows yet. It reads them from the pods of each
// slot.
func (m *model) learn(s *state, namespace string) error {
	fresh := func(slot, role string) []string {
		return slices.DeleteFunc(s.inSlot(slot, role), func(name string) bool { return m.used[name] })
	}
	for _, one := range m.replicas {
		if one.slot == "" {
			one.slot = s.slotOf(one.born)
		}
		if one.url == "" {
			head := fresh(one.slot, one.role())
			if len(head) != 1 {
				continue
			}
			if err := m.use(head[0]); err != nil {
				return err
			}
			one.url = fmt.Sprintf("%s.%s:%d", head[0], namespace, ports[one.role()])
		}
		if one.isUnit() && len(one.learners) == 0 {
			one.learners = fresh(one.slot, ddpLearner)
			for _, name := range one.learners {
				if err := m.use(name); err != nil {
					return err
				}
			}
		}
	}
	m.sort(s)
	return nil
}

// sort sorts the replicas whose order is unknown like the Membership.
func (m *model) sort(s *state) {
	place := map[string]int{}
	for i := range s.list.Spec.Members {
		place[s.list.Spec.Members[i].Slot] = i
	}
	slices.SortStableFunc(m.replicas[m.settled:], func(a, b *replica) int { return cmp.Compare(place[a.slot], place[b.slot]) })
	m.settled = len(m.replicas)
}

func (s *state) slotOf(born string) string {
	for i := range s.list.Spec.Members {
		if s.list.Spec.Members[i].PodName == born {
			return s.list.Spec.Members[i].Slot
		}
	}
	return ""
}

// inSlot returns the pods of a role that fill a slot and are not terminating; those of a unit in
// rank order.
func (s *state) inSlot(slot, role string) []string {
	var found []*corev1.Pod
	for i := range s.pods {
		pod := &s.pods[i]
		if slot != "" && pod.Annotations[names.AnnotationSlot] == slot && pod.Labels[names.LabelReplicaType] == role && pod.DeletionTimestamp == nil {
			found = append(found, pod)
		}
	}
	slices.SortFunc(found, func(a, b *corev1.Pod) int { return cmp.Compare(startRank(a), startRank(b)) })
	var sorted []string
	for _, pod := range found {
		sorted = append(sorted, pod.Name)
	}
	return sorted
}

func startRank(pod *corev1.Pod) int {
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == names.EnvStartRank {
			rank, _ := strconv.Atoi(variable.Value)
			return rank
		}
	}
	return 0
}

// pod returns a pod by name, or nil if it does not exist.
func (s *state) pod(name string) *corev1.Pod {
	for i := range s.pods {
		if s.pods[i].Name == name {
			return &s.pods[i]
		}
	}
	return nil
}

// isReachable reports whether a pod has its service.
func (s *state) isReachable(pod string) bool {
	return slices.ContainsFunc(s.services, func(service corev1.Service) bool { return service.Name == pod })
}
