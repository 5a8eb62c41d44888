// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
)

// Entry is what the cache keeps of a job: its row, and the job without its templates. It replaces
// the job in the informer, so that thousands of jobs need little memory.
type Entry struct {
	metav1.ObjectMeta
	Row api.JobRow
	Job *v2alpha1.DIJob
	// words is what a search looks at.
	words string
}

// Reduce replaces a job by its entry.
func Reduce(object client.Object) client.Object {
	job, isJob := object.(*v2alpha1.DIJob)
	if !isJob {
		return object
	}
	row := pages.Row(job)
	meta := metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion}
	words := strings.ToLower(strings.Join([]string{row.Namespace, row.Name, row.Phase, row.Reason, row.Group, row.Queue, row.Creator}, "\n"))
	strip(job)
	return &Entry{ObjectMeta: meta, Row: row, Job: job, words: words}
}

// strip removes what no table shows.
func strip(job *v2alpha1.DIJob) {
	job.ManagedFields, job.Annotations, job.Labels, job.OwnerReferences = nil, nil, nil, nil
	job.Spec.Volumes = nil
	for i := range job.Spec.Tasks {
		job.Spec.Tasks[i].Template = v2alpha1.RawObject{}
	}
	job.Status.Requests, job.Status.MembershipAcks = nil, nil
}

// GetObjectKind implements runtime.Object.
func (e *Entry) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Entries never change, so that a copy may share them.
func (e *Entry) DeepCopyObject() runtime.Object {
	copied := *e
	return &copied
}
