// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// These keys identify the job of a log line. The first two are those of controller-runtime's own
// lines.
const (
	LogNamespace = "namespace"
	LogName      = "name"
	LogUID       = "uid"
	LogLifecycle = "lifecycle"
)

// LogJob returns the keys and values of a log line about a job whose name alone is known.
func LogJob(job types.NamespacedName) []any {
	return []any{LogNamespace, job.Namespace, LogName, job.Name}
}

// LogWhich returns the keys and values that distinguish a job from others of its name, for a log
// line that has its name already.
func LogWhich(job *v2alpha1.DIJob) []any {
	return []any{LogUID, string(job.UID), LogLifecycle, string(cmp.Or(job.Spec.Lifecycle, v2alpha1.LifecycleWorkerLed))}
}

// LogWhole returns the keys and values of a log line about a job.
func LogWhole(job *v2alpha1.DIJob) []any {
	return append(LogJob(types.NamespacedName{Namespace: job.Namespace, Name: job.Name}), LogWhich(job)...)
}
