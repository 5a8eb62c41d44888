// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

const messageProfilings = "successfully report profilings"

// jobID is what a worker calls its job.
type jobID struct {
	key types.NamespacedName
	// generation is how often the job had been restarted or placed again when
	// the worker was made; -1 where the worker does not say.
	generation int64
}

// parseJobID reads namespace.name or namespace.name.generation; no name holds a dot.
func parseJobID(text string) (jobID, error) {
	malformed := failure(KindInvalid, "job_id %q must be namespace.name or namespace.name.generation", text)
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return jobID{}, malformed
	}
	id := jobID{key: types.NamespacedName{Namespace: parts[0], Name: parts[1]}, generation: -1}
	if len(parts) == 3 {
		generation, err := strconv.ParseUint(parts[2], 10, 31)
		if err != nil {
			return jobID{}, malformed.because(err)
		}
		id.generation = int64(generation)
	}
	return id, nil
}

// workerLed tells why this protocol is not the job's.
func (id jobID) workerLed(job *v2alpha1.DIJob) error {
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return failure(KindInvalid, "job %q is coordinator-led: use /v1alpha1/replicas", id.key)
	}
	return nil
}

// current tells why a call for the job is refused: a worker of an earlier
// generation was replaced. A later one than the job's status shows is right:
// pods of the next generation may run before the status tells of it.
func (id jobID) current(job *v2alpha1.DIJob) error {
	if now := names.Generation(&job.Status); id.generation >= 0 && id.generation < now {
		return failure(KindInvalid, "generation %d of job %q is over, it is at %d", id.generation, id.key, now)
	}
	return nil
}

func (id jobID) readFailure(err error) error {
	if apierrors.IsNotFound(err) {
		return failure(KindNotFound, "job %q not found", id.key).because(err)
	}
	return fmt.Errorf("reading or writing job %s: %w", id.key, err)
}

// writeFailure returns what a client is told of a failed write.
func (id jobID) writeFailure(err error) error {
	switch {
	case err == nil:
		return nil
	case isTooLarge(err):
		return failure(KindInvalid, "job %q and what it reports are together larger than the API server stores: report less", id.key).because(err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return failure(KindInvalid, "job %q cannot take this: %v", id.key, err)
	}
	return id.readFailure(err)
}

// getWorkers answers GET replicas of a worker-led job: the address of each
// replica by rank, empty for one that has none, null where there are none.
func (s *Server) getWorkers(c *gin.Context) error {
	id, err := parseJobID(c.Param("job_id"))
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	if err := s.gate.approach(ctx, jobTarget(id.key), getting()); err != nil {
		return err
	}
	var job v2alpha1.DIJob
	if err := s.find(ctx, id.key, &job); err != nil {
		return id.readFailure(err)
	}
	if err := s.gate.admit(ctx, &job, getting()); err != nil {
		return err
	}
	if err := errors.Join(id.workerLed(&job), id.current(&job)); err != nil {
		return err
	}
	return s.answerInTurn(c, readingOf(ctx, &job, func(ctx context.Context) (any, error) {
		pods, err := s.podsOf(ctx, &job)
		return rankedAddresses(pods, int(job.Status.Replicas)), err
	}))
}

// rankedAddresses returns the addresses of pods by rank, as many as there are
// to be, or as the highest rank needs; none where there are no pods. A pod that
// is being deleted is none: it is removed, or another comes in its place. Of
// several of a rank that of the latest attempt counts.
func rankedAddresses(pods map[string]*corev1.Pod, wanted int) []string {
	ranked := map[int]*corev1.Pod{}
	for _, pod := range pods {
		rank, ok := number(pod, names.AnnotationRank)
		if !ok || pod.DeletionTimestamp != nil {
			continue
		}
		if before, taken := ranked[rank]; !taken || laterThan(pod, before) {
			ranked[rank] = pod
		}
		wanted = max(wanted, rank+1)
	}
	if len(ranked) == 0 {
		return nil
	}
	addresses := make([]string, min(wanted, maxRank))
	for rank, pod := range ranked {
		addresses[rank] = address(pod)
	}
	return addresses
}

func laterThan(pod, other *corev1.Pod) bool {
	attempt, _ := number(pod, names.AnnotationAttempt)
	otherAttempt, _ := number(other, names.AnnotationAttempt)
	return attempt > otherAttempt
}

// maxRank bounds the rank that a pod's annotation may say.
const maxRank = 1 << 20

// number returns the small number that an annotation of a pod says.
func number(pod *corev1.Pod, annotation string) (int, bool) {
	value, err := strconv.Atoi(pod.Annotations[annotation])
	return value, err == nil && value >= 0 && value < maxRank
}

// address returns where a pod serves; empty for one that has no address yet,
// and for one that has ended, whose address may be another's by now.
func address(pod *corev1.Pod) string {
	if pod.Status.PodIP == "" || podstate.Finished(pod) {
		return ""
	}
	port := cmp.Or(names.DIPort(&pod.Spec, ""), names.DefaultWorkerPort)
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))
}

// addWorkers answers POST replicas of a worker-led job.
func (s *Server) addWorkers(c *gin.Context) error {
	return s.resize(c, messageCreate, permission{"create", resourceReplicas}, 1)
}

// removeWorkers answers DELETE replicas of a worker-led job.
func (s *Server) removeWorkers(c *gin.Context) error {
	return s.resize(c, messageDelete, permission{"delete", resourceReplicas}, -1)
}
