// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
)

// machines stand in for scheduler, kubelets, node lifecycle controller and pod
// garbage collector, which envtest has not: they bind pods to nodes, run them
// at addresses of this machine, and end those that are deleted. A machine may
// be lost, and comes back empty.
//
// Nothing stands in for the garbage collector of owners. While a job lives it
// has nothing to do, as all that a job has is owned by the job: a DDP learner,
// too, which its aggregator owns besides.
type machines struct {
	api       *cluster
	namespace string
	// network is the number of the job's addresses: 127.network.x.y.
	network int

	mutex sync.Mutex
	// down are the nodes that are lost.
	down map[string]bool
	// uids are those of all pods that ever were, by name.
	uids map[string]types.UID
	// reused says which names were given twice.
	reused  error
	pods    int
	address int
}

// nodeNames are the nodes that pods are bound to in turn.
func nodeNames() []string { return []string{"node-a", "node-b"} }

// run tends the pods until the context ends.
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

// follow tends pods as they change, until the watch or the context ends.
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

// record notes the pod that has a name, which no other may have after it.
func (m *machines) record(pod *corev1.Pod) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	known, found := m.uids[pod.Name]
	m.uids[pod.Name] = pod.UID
	if found && known != pod.UID && pod.Name != names.CoordinatorPod(jobName) {
		m.reused = errors.Join(m.reused, fmt.Errorf("the name of pod %s was given to a second pod", pod.Name))
	}
}

// fault says which names were given twice.
func (m *machines) fault() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.reused
}

// sync brings a pod a step on. A conflict is followed by another event.
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

// loss is a way to lose a pod.
type loss struct {
	name string
	do   func(*machines, context.Context, *corev1.Pod) error
}

// losses are the ways in which a single pod is lost. Those that may befall a
// coordinator, whose failure ends the job, come first.
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

// evictByKubelet ends a pod as a kubelet does on a node that runs out of memory: the
// pod stays, and its phase is Failed.
func (m *machines) evictByKubelet(ctx context.Context, pod *corev1.Pod) error {
	return m.change(ctx, pod, func(status *corev1.PodStatus) {
		end(status, 137)
		status.Reason = "Evicted"
		disrupt(status, corev1.PodReasonTerminationByKubelet)
	})
}

// fail ends a pod by its own fault, some time ago: one that fails again is
// made again only after a while.
func (m *machines) fail(ctx context.Context, pod *corev1.Pod) error {
	return m.change(ctx, pod, func(status *corev1.PodStatus) { end(status, 1) })
}

// crash lets a pod's container start again in place, as a kubelet does.
func (m *machines) crash(ctx context.Context, pod *corev1.Pod) error {
	return m.change(ctx, pod, func(status *corev1.PodStatus) {
		if len(status.ContainerStatuses) > 0 {
			status.ContainerStatuses[0].RestartCount++
		}
	})
}

// succeed ends a pod that has done its work.
func (m *machines) succeed(ctx context.Context, pod *corev1.Pod) error {
	return m.change(ctx, pod, func(status *corev1.PodStatus) {
		end(status, 0)
		status.Phase = corev1.PodSucceeded
	})
}

// collect removes a pod of a lost node as the pod garbage collector does.
func (m *machines) collect(ctx context.Context, pod *corev1.Pod) error {
	err := m.change(ctx, pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodFailed
		disrupt(status, "DeletionByPodGC")
	})
	return errors.Join(err, m.destroy(ctx, pod))
}

// taint evicts a pod of a lost node as the node lifecycle controller does; as
// no kubelet confirms it, the pod goes on being deleted until it is collected.
func (m *machines) taint(ctx context.Context, pod *corev1.Pod) error {
	err := m.change(ctx, pod, func(status *corev1.PodStatus) { disrupt(status, "DeletionByTaintManager") })
	return errors.Join(err, m.remove(ctx, pod))
}

// loseNode loses a node: each of its pods is taken from it in one of the ways
// that a cluster has, and the node comes back.
func (m *machines) loseNode(ctx context.Context, pods []*corev1.Pod, ways []loss) error {
	var faults []error
	for _, way := range ways {
		for _, pod := range pods {
			faults = append(faults, way.do(m, ctx, pod))
		}
	}
	return errors.Join(faults...)
}

// nodeLosses are the ways in which the pods of a node are lost, each in the
// steps that come after another.
func nodeLosses() [][]loss {
	collect := loss{"collected", (*machines).collect}
	return [][]loss{
		{{"tainted", (*machines).taint}, collect},
		{collect},
		{{"deleted by force", (*machines).destroy}},
	}
}

// comeBack makes a lost node sync its pods again.
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

// change changes a pod's status, if it is still there.
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

func disrupt(status *corev1.PodStatus, reason string) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.DisruptionTarget
	})
	status.Conditions = append(status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason,
	})
}

func end(status *corev1.PodStatus, exitCode int32) {
	status.Phase = corev1.PodFailed
	status.Conditions = nil
	ended := metav1.NewTime(time.Now().Add(-time.Hour))
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
		status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exitCode, FinishedAt: ended, StartedAt: ended,
		}}
	}
}
