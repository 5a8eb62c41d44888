// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
)

// findings are what is wrong with the pods and services of the operator's jobs.
type findings struct {
	jobs, pods int
	// notRunning counts jobs that do not run or have too few pods, duplicates pods
	// that have the rank of another, orphans pods and services that no job has or
	// that it has no seat for, strangers pods that are not the one that they are
	// told to be, and stale pods of an earlier attempt.
	notRunning, duplicates, orphans, strangers, stale int
	// first is one of them.
	first string
	// restarts are those of each job.
	restarts map[string]int32
}

func (f *findings) note(of *int, format string, arguments ...any) {
	*of++
	if f.first == "" {
		f.first = fmt.Sprintf(format, arguments...)
	}
}

// faults is how much is wrong.
func (f *findings) faults() int {
	return f.notRunning + f.duplicates + f.orphans + f.strangers + f.stale
}

// inspect looks at all there is in the operator's namespace, against how many
// pods each job is to have.
func (w *world) inspect(ctx context.Context, wanted map[string]int) (*findings, error) {
	var jobs v2alpha1.DIJobList
	var pods corev1.PodList
	var services corev1.ServiceList
	var configMaps corev1.ConfigMapList
	for _, list := range []client.ObjectList{&jobs, &pods, &services, &configMaps} {
		if err := w.API.List(ctx, list, client.InNamespace(oursNamespace)); err != nil {
			return nil, fmt.Errorf("looking at what is left: %w", err)
		}
	}
	told := make(map[string]*corev1.ConfigMap, len(configMaps.Items))
	for i := range configMaps.Items {
		told[configMaps.Items[i].Name] = &configMaps.Items[i]
	}
	found := &findings{jobs: len(jobs.Items), pods: len(pods.Items), restarts: map[string]int32{}}
	byUID := map[types.UID]*v2alpha1.DIJob{}
	podsOf := map[types.UID][]*corev1.Pod{}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		byUID[job.UID] = job
		found.restarts[job.Name] = job.Status.Restarts
	}
	for i := range pods.Items {
		owner := metav1.GetControllerOf(&pods.Items[i])
		if owner == nil || byUID[owner.UID] == nil {
			found.note(&found.orphans, "pod %s is no job's", pods.Items[i].Name)
			continue
		}
		podsOf[owner.UID] = append(podsOf[owner.UID], &pods.Items[i])
	}
	for uid, job := range byUID {
		found.lookAt(job, podsOf[uid], told, wanted[job.Name])
	}
	if len(jobs.Items) != len(wanted) {
		found.note(&found.notRunning, "there are %d jobs of %d", len(jobs.Items), len(wanted))
	}
	found.lookAtServices(byUID, services.Items)
	return found, nil
}

// lookAt looks at one job.
func (f *findings) lookAt(job *v2alpha1.DIJob, pods []*corev1.Pod, told map[string]*corev1.ConfigMap, wanted int) {
	ready := 0
	ranks, seats := map[string]bool{}, map[string]bool{}
	for _, pod := range pods {
		rank, seat := pod.Annotations[names.AnnotationRank], pod.Annotations[names.AnnotationTaskRank]
		if ranks[rank] || seats[seat] {
			f.note(&f.duplicates, "pod %s has a rank or an index that another pod has", pod.Name)
		}
		ranks[rank], seats[seat] = true, true
		if index, err := strconv.Atoi(seat); err != nil || index >= wanted || pod.Name != names.WorkerPod(job.Name, taskName, int32(index)) {
			f.note(&f.orphans, "pod %s has no seat in a job of %d", pod.Name, wanted)
		}
		if number, err := strconv.Atoi(rank); err != nil || number >= wanted || !isToldItself(pod, told, number) {
			f.note(&f.strangers, "pod %s, of rank %s, is not the one that it is told to be", pod.Name, rank)
		}
		if pod.Annotations[names.AnnotationAttempt] != strconv.Itoa(int(job.Status.Restarts)) {
			f.note(&f.stale, "pod %s is of attempt %s, the job has %d restarts", pod.Name, pod.Annotations[names.AnnotationAttempt], job.Status.Restarts)
		}
		if slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	if job.Status.Phase != v2alpha1.JobRunning || ready != wanted || int(job.Status.ReadyReplicas) != wanted {
		f.note(&f.notRunning, "job %s is %s, says %d and has %d of %d ready pods", job.Name, job.Status.Phase, job.Status.ReadyReplicas, ready, wanted)
	}
}

// isToldItself tells whether DI_NODES[DI_RANK] is the pod itself.
func isToldItself(pod *corev1.Pod, told map[string]*corev1.ConfigMap, rank int) bool {
	nodes := strings.Split(workload.ToldNodes(pod, told), ",")
	for _, variable := range names.MainContainerOf(pod).Env {
		if variable.Name == names.EnvDIRank && variable.Value != strconv.Itoa(rank) {
			return false
		}
	}
	return rank < len(nodes) && strings.HasPrefix(nodes[rank], pod.Name+"."+names.WorkerService(pod.Labels[names.LabelJob])+".")
}

// lookAtServices: each job has one service.
func (f *findings) lookAtServices(jobs map[types.UID]*v2alpha1.DIJob, services []corev1.Service) {
	for i := range services {
		owner := metav1.GetControllerOf(&services[i])
		if owner == nil || jobs[owner.UID] == nil || services[i].Name != names.WorkerService(jobs[owner.UID].Name) {
			f.note(&f.orphans, "service %s is no job's", services[i].Name)
			continue
		}
		delete(jobs, owner.UID)
	}
	for _, job := range jobs {
		f.note(&f.notRunning, "job %s has no service", job.Name)
	}
}
