// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package queueing

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// LabelJobUID is a label of a Workload: the UID of the pod that queues by itself.
const LabelJobUID = "kueue.x-k8s.io/job-uid"

// maxWords is the maximum length of Kueue's words in a message, in bytes.
const maxWords = 512

// FirstWaiting returns the first pod by name that waits for Kueue, nil if none does. Pods of different groups
// may wait for different reasons: a job that named another one each time would never settle.
func FirstWaiting(pods []*corev1.Pod) *corev1.Pod {
	var first *corev1.Pod
	for _, pod := range pods {
		if IsWaiting(pod) && IsManaged(pod) && (first == nil || pod.Name < first.Name) {
			first = pod
		}
	}
	return first
}

// Words returns what a Workload says about why its pods wait, "" if it says nothing.
func Words(workload *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(workload.Object, "status", "conditions")
	for _, item := range list {
		condition, _ := item.(map[string]any)
		if message, isText := condition["message"].(string); isText && condition["type"] == "QuotaReserved" {
			return shortened(message)
		}
	}
	return ""
}

func shortened(message string) string {
	message = strings.TrimSpace(message)
	if len(message) <= maxWords {
		return message
	}
	const dots = "..."
	return strings.ToValidUTF8(message[:maxWords-len(dots)], "") + dots
}
