// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/job/queueing"
)

// kueueInterval is the interval of requests for Kueue's API until the API server serves it. Once found,
// the API is assumed to exist permanently.
const kueueInterval = time.Minute

// Kueue detects whether Kueue is installed. It sends requests on demand only, so clusters without queued
// jobs have none.
type Kueue struct {
	mapper meta.RESTMapper
	clock  clock.PassiveClock

	// mutex guards the fields below.
	mutex sync.Mutex
	// isServed is the last result. looked is the time of that result.
	isServed bool
	looked   time.Time
}

// NewKueue returns a Kueue. The mapper must query the API server for unknown kinds.
func NewKueue(mapper meta.RESTMapper, clock clock.PassiveClock) *Kueue {
	return &Kueue{mapper: mapper, clock: clock}
}

// IsServed reports whether the API server serves Kueue's API.
func (f *Kueue) IsServed(context.Context) (bool, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	now := f.clock.Now()
	if f.isServed || !f.looked.IsZero() && now.Sub(f.looked) < kueueInterval {
		return f.isServed, nil
	}
	_, err := f.mapper.RESTMapping(workloadKind())
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("discovering Kueue's API: %w", err)
	}
	f.isServed, f.looked = err == nil, now
	return f.isServed, nil
}

func workloadKind() schema.GroupKind {
	return schema.GroupKind{Group: queueing.GroupName, Kind: queueing.WorkloadKind}
}

// Workloads reads Workloads of Kueue live. A cache would contain all of the cluster, also those of other kinds
// of jobs.
type Workloads struct {
	Mapper meta.RESTMapper
	Live   client.Reader
}

// Words returns what Kueue says about why a pod waits, "" if it says nothing yet.
func (w *Workloads) Words(ctx context.Context, pod *corev1.Pod) (string, error) {
	mapping, err := w.Mapper.RESTMapping(workloadKind())
	if err != nil {
		return "", fmt.Errorf("discovering Kueue's Workloads: %w", err)
	}
	if group := queueing.FromPod(pod).Group; group != "" {
		workload := &unstructured.Unstructured{}
		workload.SetGroupVersionKind(mapping.GroupVersionKind)
		workload, err = controllers.Find(ctx, w.Live, types.NamespacedName{Namespace: pod.Namespace, Name: group}, workload)
		if workload == nil {
			return "", err
		}
		return queueing.Words(workload), nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	err = w.Live.List(ctx, list, client.InNamespace(pod.Namespace), client.MatchingLabels{queueing.LabelJobUID: string(pod.UID)}, client.Limit(1))
	if err != nil {
		return "", fmt.Errorf("listing the Workloads of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if len(list.Items) == 0 {
		return "", nil
	}
	return queueing.Words(&list.Items[0]), nil
}
