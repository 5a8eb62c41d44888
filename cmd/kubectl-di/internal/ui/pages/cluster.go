// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcehelper "k8s.io/component-helpers/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/installation"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podmetrics"
)

// mostListed bounds the lists of the page of the cluster.
const mostListed = 200

// PodUse is what a node's page keeps of a pod.
type PodUse struct {
	metav1.ObjectMeta
	Node string
	// Job is the name of its job; empty for other pods.
	Job  string
	GPUs int64
	// CPU and Memory are requested: thousandths of a CPU, and bytes.
	CPU, Memory int64
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
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return &PodUse{
		JobVersion: jobVersionOf(pod), HasAttempt: hasAttempt,
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Node:       pod.Spec.NodeName, Job: job, GPUs: jobview.GPUsOfPod(pod), CPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value(),
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
	// Used is what nodes use, by their names; empty if that is unknown.
	Used map[string]podmetrics.Used
	// Takeover is the takeover of an earlier release, and Migrations are those of stored objects.
	Takeover   *installation.Takeover
	Migrations []api.Takeover
	// HasNoPods reports that the user may not list the pods.
	HasNoPods     bool
	Notes, Grants []string
}

// Cluster returns the page of the cluster.
func Cluster(state *ClusterState) *api.Cluster {
	jobs := byAge(state.Jobs)
	page := &api.Cluster{
		Nodes: nodes(state), Types: []api.NodeType{}, Waiting: line(jobs), Rounds: []api.Decision{}, Plans: []api.Plan{},
		Takeovers: append([]api.Takeover{takeover(state)}, state.Migrations...), Notes: append([]string{}, state.Notes...),
		Grants: state.Grants,
	}
	page.Types = typesOf(page.Nodes)
	for i := range page.Nodes {
		add(&page.Room, &page.Nodes[i].Room)
	}
	page.Fit = fitOf(page.Nodes, state.Pods)
	page.Teams = teams(jobs, page.Waiting, state.Pods)
	for _, plan := range state.Plans {
		page.Plans = append(page.Plans, Plan(plan))
	}
	slices.SortFunc(page.Plans, func(a, b api.Plan) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	page.Plans = page.Plans[:min(len(page.Plans), mostListed)]
	for _, job := range jobs {
		page.Rounds = append(page.Rounds, decisions(job.DIJob, page.Plans)...)
	}
	slices.SortStableFunc(page.Rounds, func(a, b api.Decision) int { return newest(a.At, b.At) })
	page.Rounds = page.Rounds[:min(len(page.Rounds), mostListed)]
	return page
}

// byAge sorts jobs, the oldest first.
func byAge(jobs []Job) []Job {
	return slices.SortedFunc(slices.Values(jobs), func(a, b Job) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
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

// decisions returns what was decided last about a job, but for what the plans say.
func decisions(job *v2alpha1.DIJob, plans []api.Plan) []api.Decision {
	decided := jobview.Decisions(job)
	all := make([]api.Decision, 0, len(decided))
	for i := range decided {
		one := &decided[i]
		text := cmp.Or(one.Message, one.Reason)
		if one.Who == jobview.Plan {
			isShown := func(plan api.Plan) bool { return plan.Namespace == job.Namespace && plan.Name == one.Plan }
			if slices.ContainsFunc(plans, isShown) {
				continue
			}
			text = one.Plan + ": " + one.Message
		}
		all = append(all, api.Decision{Namespace: job.Namespace, Name: job.Name, Who: one.Who, Reason: one.Reason, Text: short(text), At: one.At})
	}
	return all
}
