// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/installation"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
)

// The bounds of the page of the cluster.
const (
	mostWaiting = 500
	mostListed  = 200
)

// PodUse is what a node's page keeps of a pod.
type PodUse struct {
	metav1.ObjectMeta
	Node string
	// Job is the name of its job; empty for other pods.
	Job  string
	GPUs int64
	// JobVersion is the version by which the pod names its job; empty if it names none.
	JobVersion string
	// HasAttempt reports whether the pod records its attempt.
	HasAttempt bool
	// Active is false for a pod that has ended.
	Active bool
}

// GetObjectKind implements runtime.Object.
func (p *PodUse) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (p *PodUse) DeepCopyObject() runtime.Object {
	copied := *p
	return &copied
}

// UseOf returns what is kept of a pod.
func UseOf(pod *corev1.Pod) *PodUse {
	job := ""
	if owner := metav1.GetControllerOf(pod); owner != nil && strings.HasPrefix(owner.APIVersion, v2alpha1.GroupName+"/") {
		job = owner.Name
	} else if pod.Labels[names.LabelControllerName] == names.ControllerName {
		job = pod.Labels[names.LabelDIJobName]
	}
	_, hasAttempt := pod.Annotations[names.AnnotationAttempt]
	return &PodUse{
		JobVersion: jobVersionOf(pod), HasAttempt: hasAttempt,
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Node:       pod.Spec.NodeName, Job: job, GPUs: jobview.GPUsOfPod(pod),
		Active: pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed,
	}
}

// Job is a job and its row.
type Job struct {
	*v2alpha1.DIJob
	Row *api.JobRow
}

// ClusterState is what is known of the cluster.
type ClusterState struct {
	Jobs  []Job
	Nodes []*corev1.Node
	Pods  []*PodUse
	Plans []*v2alpha1.ScalePlan
	// Takeover is the takeover of an earlier release, and Migrations are those of stored objects.
	Takeover   *installation.Takeover
	Migrations []api.Takeover
	// HasNoPods reports that the user may not list the pods.
	HasNoPods bool
	Notes     []string
}

// Cluster returns the page of the cluster.
func Cluster(state *ClusterState) *api.Cluster {
	page := &api.Cluster{
		Nodes: nodes(state.Nodes, state.Pods), Waiting: []api.Waiting{}, Rounds: []api.Decision{}, Plans: []api.Plan{},
		Queues: queues(state.Jobs), Takeovers: append([]api.Takeover{takeover(state)}, state.Migrations...), Notes: append([]string{}, state.Notes...),
	}
	for i := range page.Nodes {
		page.GPUs.Total += page.Nodes[i].GPUs.Total
		page.GPUs.Used += page.Nodes[i].GPUs.Used
		page.GPUs.Free += page.Nodes[i].GPUs.Free
	}
	jobs := slices.SortedFunc(slices.Values(state.Jobs), func(a, b Job) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, job := range jobs {
		if waiting := Waiting(job.DIJob, job.Row.GPUs); waiting != nil && len(page.Waiting) < mostWaiting {
			page.Waiting = append(page.Waiting, *waiting)
		}
		page.Rounds = append(page.Rounds, decisions(job.DIJob)...)
	}
	slices.SortStableFunc(page.Rounds, func(a, b api.Decision) int { return newest(a.At, b.At) })
	page.Rounds = page.Rounds[:min(len(page.Rounds), mostListed)]
	for _, plan := range state.Plans {
		page.Plans = append(page.Plans, Plan(plan))
	}
	slices.SortFunc(page.Plans, func(a, b api.Plan) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	page.Plans = page.Plans[:min(len(page.Plans), mostListed)]
	return page
}

func newest(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return b.Compare(*a)
}

// nodes returns the nodes, those with the most GPUs first, and who uses them.
func nodes(all []*corev1.Node, pods []*PodUse) []api.Node {
	found := make([]api.Node, 0, len(all))
	for _, node := range all {
		one := api.Node{
			Name: node.Name, Ready: conditions.IsNodeReady(node), Schedulable: !node.Spec.Unschedulable, Jobs: []api.Share{},
			CPU: node.Status.Allocatable.Cpu().String(), Memory: gibibytes(node.Status.Allocatable.Memory()),
		}
		for name, amount := range node.Status.Allocatable {
			if jobview.IsGPU(string(name)) {
				one.GPUs.Total += amount.Value()
				one.Resource = string(name)
			}
		}
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b api.Node) int {
		return cmp.Or(cmp.Compare(b.GPUs.Total, a.GPUs.Total), cmp.Compare(a.Name, b.Name))
	})
	places := map[string]int{}
	for i := range found {
		places[found[i].Name] = i
	}
	for _, pod := range pods {
		if at, isKnown := places[pod.Node]; isKnown && pod.Active {
			take(&found[at], pod)
		}
	}
	for i := range found {
		found[i].GPUs.Free = max(0, found[i].GPUs.Total-found[i].GPUs.Used)
		slices.SortFunc(found[i].Jobs, func(a, b api.Share) int {
			return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	return found
}

// gibibytes returns an amount of memory as people read it.
func gibibytes(amount *resource.Quantity) string {
	return fmt.Sprintf("%d GiB", amount.Value()>>30)
}

// take counts a pod on its node.
func take(node *api.Node, pod *PodUse) {
	node.GPUs.Used += pod.GPUs
	share := api.Share{Namespace: pod.Namespace, Name: pod.Job}
	if pod.Job == "" {
		// Other pods are one share, if they have GPUs.
		if share.Namespace = ""; pod.GPUs == 0 {
			return
		}
	} else {
		node.Pods++
	}
	at := slices.IndexFunc(node.Jobs, func(one api.Share) bool { return one.Namespace == share.Namespace && one.Name == share.Name })
	if at < 0 {
		at, node.Jobs = len(node.Jobs), append(node.Jobs, share)
	}
	node.Jobs[at].Pods++
	node.Jobs[at].GPUs += pod.GPUs
}

// queues counts the jobs of each queue that have not finished.
func queues(jobs []Job) []api.Queue {
	type key struct {
		types.NamespacedName
		scheduler string
	}
	counts := map[key]*api.Queue{}
	for _, job := range jobs {
		if replicas.IsFinished(job.DIJob) {
			continue
		}
		at := key{types.NamespacedName{Namespace: job.Namespace, Name: job.Row.Queue}, ""}
		if job.Spec.Scheduling != nil {
			at.scheduler = job.Spec.Scheduling.SchedulerName
		}
		if counts[at] == nil {
			counts[at] = &api.Queue{Namespace: at.Namespace, Name: at.Name, Scheduler: at.scheduler}
		}
		one := counts[at]
		one.Jobs++
		one.GPUs += job.Row.GPUs
		if job.Spec.Scheduling != nil && job.Spec.Scheduling.Gang != nil {
			one.Gangs++
		}
		if Waiting(job.DIJob, job.Row.GPUs) != nil {
			one.Waiting++
		}
	}
	found := make([]api.Queue, 0, len(counts))
	for _, one := range counts {
		found = append(found, *one)
	}
	slices.SortFunc(found, func(a, b api.Queue) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Scheduler, b.Scheduler))
	})
	return found
}

// decisions returns what was decided last about a job.
func decisions(job *v2alpha1.DIJob) []api.Decision {
	decided := jobview.Decisions(job)
	all := make([]api.Decision, 0, len(decided))
	for i := range decided {
		one := &decided[i]
		text := cmp.Or(one.Message, one.Reason)
		if one.Who == jobview.Plan {
			text = one.Plan + ": " + one.Message
		}
		all = append(all, api.Decision{Namespace: job.Namespace, Name: job.Name, Who: one.Who, Reason: one.Reason, Text: short(text), At: one.At})
	}
	return all
}
