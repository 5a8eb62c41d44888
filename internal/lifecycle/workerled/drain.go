// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	corev1 "k8s.io/api/core/v1"
)

// mayRelease reports whether a pod may be deleted or replaced by intent now: by a shrink, a
// migration or a change of resources. A pod of a task with drain must hand over its state first;
// pods of other tasks always may.
func (p *Plan) mayRelease(*corev1.Pod) bool {
	return true
}
