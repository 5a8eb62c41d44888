// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// machines replace scheduler, kubelets, node lifecycle controller and pod garbage collector, which
// envtest does not have. They bind pods to nodes, run them at addresses of this machine, and end
// deleted pods. A node may be lost and comes back empty.
//
// Nothing replaces the garbage collector of owners. It has no work while a job exists because the
// job owns all its objects. A DDP learner is also owned by its aggregator.
type machines struct {
	api       *cluster
	namespace string
	// network is the number of the job's addresses: 127.network.x.y.
	network int

	mutex sync.Mutex
	// down are the lost nodes.
	down map[string]bool
	// uids are the UIDs of all pods that ever existed, by name.
	uids map[string]types.UID
	// reused is an error that lists the names that were used twice.
	reused  error
	pods    int
	address int
}

// nodeNames are the nodes that pods are bound to in turn.
func nodeNames() []string { return []string{"node-a", "node-b"} }

// run processes the pods until the context ends.
func (m *machines) run(ctx context.Context) error {
	for ctx.Err() == nil {
		changes, err := m.api.client.Watch(ctx, &corev1.PodList{}, client.InNamespace(m.namespace))
		switch {
		case err == nil:
			m.follow(ctx, changes)
		case ctx.Err() == nil:
			return fmt.Errorf("watching pods: %w", err)
		}
	}
	return nil
}

// follow processes pod events until the watch or the context ends.
func (m *machines) follow(ctx context.Context, changes watch.Interface) {
	stop := context.AfterFunc(ctx, changes.Stop)
	defer stop()
	for event := range changes.ResultChan() {
		if pod, isPod := event.Object.(*corev1.Pod); isPod {
			m.record(pod)
			go m.sync(ctx, pod)
		}
	}
}

// record records the pod with a name. No later pod may have the same name.
func (m *machines) record(pod *corev1.Pod) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	known, found := m.uids[pod.Name]
	m.uids[pod.Name] = pod.UID
	if found && known != pod.UID && pod.Name != names.CoordinatorPod(jobName) {
		m.reused = errors.Join(m.reused, fmt.Errorf("the name of pod %s was given to a second pod", pod.Name))
	}
}

// fault returns an error for names that were used twice.
func (m *machines) fault() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.reused
}

// sync advances a pod by one step. A conflict is followed by another event.
func (m *machines) sync(ctx context.Context, pod *corev1.Pod) {
	switch {
	case m.isDown(pod.Spec.NodeName):
	case pod.DeletionTimestamp != nil:
		_ = m.api.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	case pod.Spec.NodeName == "":
		_ = m.api.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: m.nextNode()}})
	case pod.Status.Phase == corev1.PodPending:
		pod.Status = m.runningStatus(pod)
		_ = m.api.client.Status().Update(ctx, pod)
	}
}

func (m *machines) runningStatus(pod *corev1.Pod) corev1.PodStatus {
	address := m.nextAddress()
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	for i := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: pod.Spec.Containers[i].Name, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	return status
}

func (m *machines) isDown(node string) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.down[node]
}

// nextNode returns the next node that is not lost.
func (m *machines) nextNode() string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for {
		m.pods++
		if node := nodeNames()[m.pods%len(nodeNames())]; !m.down[node] {
			return node
		}
	}
}

func (m *machines) nextAddress() string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.address++
	return fmt.Sprintf("127.%d.%d.%d", m.network, m.address/250, m.address%250+1)
}

func (m *machines) setDown(node string, down bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.down[node] = down
}

// loss is one way to lose a pod.
type loss struct {
	name string
	do   func(*machines, context.Context, *corev1.Pod) error
}

// losses are the ways to lose a single pod. The ways that also apply to a coordinator, whose
// failure ends the job, come first.
func losses() []loss {
	return []loss{
		{"deleted by hand", (*machines).remove},
		{"deleted by force", (*machines).destroy},
		{"evicted through the API", (*machines).evict},
		{"evicted by its kubelet", (*machines).evictByKubelet},
		{"failed", (*machines).fail},
	}
}

const disruptions = 4

func (m *machines) remove(ctx context.Context, pod *corev1.Pod) error {
	return client.IgnoreNotFound(m.api.client.Delete(ctx, pod))
}

func (m *machines) destroy(ctx context.Context, pod *corev1.Pod) error {
	return client.IgnoreNotFound(m.api.client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
}

func (m *machines) evict(ctx context.Context, pod *corev1.Pod) error {
	return client.IgnoreNotFound(m.api.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}))
}

// evictByKubelet evicts a pod as a kubelet does on a node that runs out of memory: the pod remains,
// and its phase is Failed.
func (m *machines) evictByKubelet(ctx context.Context, pod *corev1.Pod) error {
	return m.change(ctx, pod, func(status *corev1.PodStatus) {
		pods.End(status, 137)
		status.Reason = "Evicted"
		pods.Disrupt(status, corev1.PodReasonTerminationByKubelet)
	})
}

// fail makes a pod fail by its own program, some time ago. A pod that fails again is recreated only
// after a backoff.
func (m *machines) fail(ctx context.Context, pod *corev1.Pod) error {
	return m.change(ctx, pod, func(status *corev1.PodStatus) { pods.End(status, 1) })
}

// crash restarts a pod's container in place, as a kubelet does.
func (m *machines) crash(ctx context.Context, pod *corev1.Pod) error {
	return m.change(ctx, pod, func(status *corev1.PodStatus) {
		if len(status.ContainerStatuses) > 0 {
			status.ContainerStatuses[0].RestartCount++
		}
	})
}

// succeed finishes a pod successfully.
func (m *machines) succeed(ctx context.Context, pod *corev1.Pod) error {
	return m.change(ctx, pod, func(status *corev1.PodStatus) {
		pods.End(status, 0)
		status.Phase = corev1.PodSucceeded
	})
}

// collect deletes a pod of a lost node as the pod garbage collector does.
func (m *machines) collect(ctx context.Context, pod *corev1.Pod) error {
	err := m.change(ctx, pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodFailed
		pods.Disrupt(status, "DeletionByPodGC")
	})
	return errors.Join(err, m.destroy(ctx, pod))
}

// taint evicts a pod of a lost node as the node lifecycle controller does. No kubelet confirms the
// deletion, so the pod is terminating until it is collected.
func (m *machines) taint(ctx context.Context, pod *corev1.Pod) error {
	err := m.change(ctx, pod, func(status *corev1.PodStatus) { pods.Disrupt(status, "DeletionByTaintManager") })
	return errors.Join(err, m.remove(ctx, pod))
}

// loseNode loses a node. Each of its pods is removed in one of the ways that a cluster has, and the
// node comes back.
func (m *machines) loseNode(ctx context.Context, pods []*corev1.Pod, ways []loss) error {
	var faults []error
	for _, way := range ways {
		for _, pod := range pods {
			faults = append(faults, way.do(m, ctx, pod))
		}
	}
	return errors.Join(faults...)
}

// nodeLosses are the ways to lose the pods of a node. Each consists of consecutive steps.
func nodeLosses() [][]loss {
	collect := loss{"collected", (*machines).collect}
	return [][]loss{
		{{"tainted", (*machines).taint}, collect},
		{collect},
		{{"deleted by force", (*machines).destroy}},
	}
}

// comeBack makes a lost node process its pods again.
func (m *machines) comeBack(ctx context.Context, node string) error {
	m.setDown(node, false)
	var list corev1.PodList
	if err := m.api.client.List(ctx, &list, client.InNamespace(m.namespace)); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.NodeName == node {
			m.sync(ctx, &list.Items[i])
		}
	}
	return nil
}

// change changes a pod's status, if the pod still exists.
func (m *machines) change(ctx context.Context, pod *corev1.Pod, change func(*corev1.PodStatus)) error {
	for {
		var current corev1.Pod
		err := m.api.client.Get(ctx, client.ObjectKeyFromObject(pod), &current)
		if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a pod: %w", err)
		}
		change(&current.Status)
		if err = m.api.client.Status().Update(ctx, &current); !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
	}
}
