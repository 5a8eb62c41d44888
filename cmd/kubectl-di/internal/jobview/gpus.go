// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"encoding/json"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// IsGPU reports whether the resource of this name is of GPUs, such as nvidia.com/gpu and amd.com/gpu.
func IsGPU(name string) bool {
	return strings.HasSuffix(name, "/gpu")
}

// GPUs returns the GPUs that the desired replicas request. Those of a coordinator-led job are its members' if these are
// known; otherwise the pods that exist count.
func GPUs(job *v2alpha1.DIJob, list *v2alpha1.Membership) int64 {
	if list != nil && IsOver(job) {
		list = nil
	}
	total, wanted := int64(0), desired(job, Members{})
	for i := range job.Spec.Tasks {
		count := max(wanted.tasks[i], 0)
		if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed && list == nil {
			pods := job.Status.TaskStatus[names.TaskName(&job.Spec.Tasks[i])]
			count = int(pods[corev1.PodRunning] + pods[corev1.PodPending])
		}
		total += int64(count) * GPUsOfTemplate(job.Spec.Tasks[i].Template.Raw)
		for _, each := range GPUsOfMembers(job, list, i) {
			total += each
		}
	}
	return total
}

// GPUsOfMembers returns the GPUs of each member of a task.
func GPUsOfMembers(job *v2alpha1.DIJob, list *v2alpha1.Membership, task int) []int64 {
	if list == nil {
		return nil
	}
	var all []int64
	template := GPUsOfTemplate(job.Spec.Tasks[task].Template.Raw)
	for i := range list.Spec.Members {
		if member := &list.Spec.Members[i]; member.Task == job.Spec.Tasks[task].Type {
			all = append(all, gpusOfMember(member, template))
		}
	}
	return all
}

// gpusOfMember returns the GPUs of a member, whose template may have others.
func gpusOfMember(member *v2alpha1.Member, template int64) int64 {
	total := int64(0)
	for _, gpus := range member.DDPGPUs {
		total += int64(gpus)
	}
	switch {
	case len(member.DDPGPUs) > 0:
		return total
	case member.Resources.GPUs != nil:
		return member.Resources.GPUs.Value()
	}
	return template
}

// GPUsOfTemplate returns the GPUs that a pod of a template requests.
func GPUsOfTemplate(template []byte) int64 { return RequestOf(template).GPUs }

// Request is what a pod requests of GPUs.
type Request struct {
	GPUs int64
	// Resources are those of the GPUs, such as nvidia.com/gpu, in no order, and Selector chooses the nodes.
	Resources []string
	Selector  map[string]string
}

// RequestOf returns what a pod of a template requests. It reads only this of a template, since a list has thousands.
func RequestOf(template []byte) Request {
	var pod struct {
		Spec struct {
			NodeSelector map[string]string
			Containers   []struct {
				Resources struct{ Limits map[string]any }
			}
		}
	}
	if json.Unmarshal(template, &pod) != nil {
		return Request{}
	}
	request := Request{Selector: pod.Spec.NodeSelector}
	for i := range pod.Spec.Containers {
		for name, amount := range pod.Spec.Containers[i].Resources.Limits {
			if IsGPU(name) {
				request.GPUs += wholeOf(amount)
				request.Resources = append(request.Resources, name)
			}
		}
	}
	return request
}

// wholeOf returns a quantity of a template, which may be a number or a text.
func wholeOf(amount any) int64 {
	switch amount := amount.(type) {
	case float64:
		return int64(math.Max(0, math.Min(amount, math.MaxInt32)))
	case string:
		if parsed, err := resource.ParseQuantity(amount); err == nil {
			return max(0, min(parsed.Value(), math.MaxInt32))
		}
	}
	return 0
}

// GPUsOfPod returns the GPUs that a pod's containers request.
func GPUsOfPod(pod *corev1.Pod) int64 {
	total := int64(0)
	for i := range pod.Spec.Containers {
		for name, amount := range pod.Spec.Containers[i].Resources.Limits {
			if IsGPU(string(name)) {
				total += amount.Value()
			}
		}
	}
	return total
}
