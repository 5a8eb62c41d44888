// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/store"
)

// maxRank bounds the ranks in annotations of pods.
const maxRank = 1 << 20

// workerReads answers reads of the replicas of worker-led jobs.
type workerReads struct {
	access *auth.Auth
	store  *store.Store
	reads  *readQueue
}

// get answers GET replicas of a worker-led job. The answer lists the address of each replica by
// rank. The entry of a replica without an address is empty. Without replicas the list is null.
func (w *workerReads) get(c *gin.Context) error {
	ctx, wanted := c.Request.Context(), auth.Replicas("get")
	id, err := readJobID(c, w.access, wanted)
	if err != nil {
		return err
	}
	job, err := readJob(ctx, w.access, id, wanted)
	if err != nil {
		return err
	}
	if err := errors.Join(id.CheckWorkerLed(job), id.CheckCurrent(job)); err != nil {
		return err
	}
	return w.reads.answer(c, newRead(ctx, job, func(ctx context.Context) (any, error) {
		pods, err := w.store.PodsOf(ctx, job)
		return rankedAddresses(pods, int(job.Status.Replicas)), err
	}))
}

// rankedAddresses returns the addresses of pods by rank. The list has as many entries as desired, or as
// the highest rank needs. Without pods it is empty. It omits terminating pods. Of pods with the same rank,
// it uses the one of the latest attempt.
func rankedAddresses(pods map[string]*corev1.Pod, desired int) []string {
	ranked := map[int]*corev1.Pod{}
	for _, pod := range pods {
		rank, ok := number(pod, names.AnnotationRank)
		if !ok || pod.DeletionTimestamp != nil {
			continue
		}
		if before, taken := ranked[rank]; !taken || isLater(pod, before) {
			ranked[rank] = pod
		}
		desired = max(desired, rank+1)
	}
	if len(ranked) == 0 {
		return nil
	}
	addresses := make([]string, min(desired, maxRank))
	for rank, pod := range ranked {
		addresses[rank] = address(pod)
	}
	return addresses
}

// isLater reports whether a pod is from a later attempt than another.
func isLater(pod, other *corev1.Pod) bool {
	attempt, _ := number(pod, names.AnnotationAttempt)
	otherAttempt, _ := number(other, names.AnnotationAttempt)
	return attempt > otherAttempt
}

// number parses an annotation of a pod as a small number.
func number(pod *corev1.Pod, annotation string) (int, bool) {
	value, err := strconv.Atoi(pod.Annotations[annotation])
	return value, err == nil && value >= 0 && value < maxRank
}

// address returns the address that a pod serves on. It is empty if the pod has none, or has finished,
// because another pod may then have the address.
func address(pod *corev1.Pod) string {
	if pod.Status.PodIP == "" || podstate.Finished(pod) {
		return ""
	}
	port := cmp.Or(names.DIPort(&pod.Spec, ""), names.DefaultWorkerPort)
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))
}
