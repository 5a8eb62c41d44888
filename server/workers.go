// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

const messageProfilings = "successfully report profilings"

// jobID is what a worker calls its job.
type jobID struct {
	key types.NamespacedName
	// generation is how often the job had been restarted or placed anew when
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

// current tells why a call for the job is refused: a worker of an earlier
// generation was replaced. A later one than the job's status shows is right:
// pods of the next generation may run before the status tells of it.
func (id jobID) current(job *v2alpha1.DIJob) error {
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return failure(KindInvalid, "job %q is coordinator-led: use /v1alpha1/replicas", id.key)
	}
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

// getWorkers answers GET replicas of a worker-led job: the address of each
// replica by rank, empty for one that has none, null where there are none.
func (s *Server) getWorkers(c *gin.Context) error {
	id, err := parseJobID(c.Param("job_id"))
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	var job v2alpha1.DIJob
	if err := s.find(ctx, id.key, &job); err != nil {
		return id.readFailure(err)
	}
	if err := s.gate.admit(ctx, &job, permission{"get", resourceReplicas}); err != nil {
		return err
	}
	if err := id.current(&job); err != nil {
		return err
	}
	pods, err := s.podsOf(ctx, &job)
	if err != nil {
		return err
	}
	return succeed(c, messageGet, rankedAddresses(pods))
}

// rankedAddresses returns the addresses of pods by rank. Of several pods of a
// rank that of the latest attempt counts, and one that is not being deleted.
func rankedAddresses(pods map[string]*corev1.Pod) []string {
	ranked := map[int]*corev1.Pod{}
	last := -1
	for _, pod := range pods {
		rank, ok := number(pod, names.AnnotationRank)
		if !ok {
			continue
		}
		if before, taken := ranked[rank]; !taken || laterThan(pod, before) {
			ranked[rank] = pod
		}
		last = max(last, rank)
	}
	if last < 0 {
		return nil
	}
	addresses := make([]string, last+1)
	for rank, pod := range ranked {
		addresses[rank] = address(pod)
	}
	return addresses
}

func laterThan(pod, other *corev1.Pod) bool {
	if (pod.DeletionTimestamp == nil) != (other.DeletionTimestamp == nil) {
		return pod.DeletionTimestamp == nil
	}
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

func address(pod *corev1.Pod) string {
	if pod.Status.PodIP == "" {
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

// writer names one request as the manager of the fields that it writes, by
// which it finds out whether a write was done of which the answer was lost.
type writer string

func newWriter() writer {
	return writer("di-server-" + string(uuid.NewUUID()))
}

// options returns the options of a write. What may be written twice needs no
// name of its own.
func (w writer) options(made jobPatch) []client.PatchOption {
	if !made.relative {
		return nil
	}
	return []client.PatchOption{client.FieldOwner(w)}
}

func (w writer) wrote(job *v2alpha1.DIJob) bool {
	return slices.ContainsFunc(job.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == string(w) })
}

// resize changes the number of replicas that is wanted by what a request asks
// for, in the direction of the sign.
func (s *Server) resize(c *gin.Context, message string, wanted permission, sign int64) error {
	id, err := parseJobID(c.Param("job_id"))
	if err != nil {
		return err
	}
	asked, err := readResize(c)
	if err != nil {
		return err
	}
	if err := s.options.Limits.checkAsked("replicas", asked); err != nil {
		return err
	}
	ctx := c.Request.Context()
	err = s.editJob(ctx, id, wanted, func(job *v2alpha1.DIJob) (jobPatch, error) {
		return s.resized(job, sign*int64(asked))
	})
	if err != nil {
		return err
	}
	s.audit(ctx, message, id.key, "replicas", sign*int64(asked))
	return succeed(c, message, nil)
}

// resized is the edit that changes how many replicas a job wants, within what
// one may have.
func (s *Server) resized(job *v2alpha1.DIJob, by int64) (jobPatch, error) {
	made, err := resized(job, by)
	if err != nil || by < 0 {
		return made, err
	}
	return made, s.options.Limits.checkTotal("replicas", mostWanted(job))
}

// reportProfilings answers POST profilings.
func (s *Server) reportProfilings(c *gin.Context) error {
	id, err := parseJobID(c.Param("job_id"))
	if err != nil {
		return err
	}
	content, err := readProfilings(c)
	if err != nil {
		return err
	}
	wanted := permission{"create", resourceProfilings}
	ctx := c.Request.Context()
	err = s.editJob(ctx, id, wanted, func(job *v2alpha1.DIJob) (jobPatch, error) {
		return profiled(job, content)
	})
	if err != nil {
		return err
	}
	s.audit(ctx, messageProfilings, id.key, "bytes", len(content))
	return succeed(c, messageProfilings, nil)
}

// editJob writes an edit of a job in one optimistic write, made anew where
// another write came between, and done once also where its answer is lost.
func (s *Server) editJob(ctx context.Context, id jobID, wanted permission, edit func(*v2alpha1.DIJob) (jobPatch, error)) error {
	uncertain, writer := false, newWriter()
	err := persist(ctx, func(ctx context.Context) error {
		var job v2alpha1.DIJob
		if err := s.store.live(ctx, id.key, &job); err != nil {
			return err
		}
		if uncertain && writer.wrote(&job) {
			return nil
		}
		if err := s.gate.admit(ctx, &job, wanted); err != nil {
			return err
		}
		if err := id.current(&job); err != nil {
			return err
		}
		if err := s.pace.wait(ctx, string(job.UID)); err != nil {
			return err
		}
		made, err := edit(&job)
		if err != nil {
			return asFailure(err)
		}
		err = s.store.patch(ctx, &job, made.subresource, made.patch, writer.options(made)...)
		uncertain = uncertain || isUncertain(err)
		return err
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return failure(KindInvalid, "job %q cannot take this: %v", id.key, err)
	default:
		return id.readFailure(err)
	}
}
