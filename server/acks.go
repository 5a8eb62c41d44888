// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/server/wire"
)

const (
	messageAck = "successfully acknowledge membership"
	// ackInterval is how long acknowledgements of a job are collected for one write.
	ackInterval = 200 * time.Millisecond
)

// acknowledgements answers acknowledgements of memberships.
type acknowledgements struct {
	access   *auth.Auth
	store    *store.Store
	watchers *watchers
	batches  *ackBatcher
	// mode selects how unauthenticated callers are treated.
	mode auth.Mode
}

// post answers POST membership/ack. It answers once the acknowledgement is written. An
// acknowledgement for which no change waits is not written.
func (a *acknowledgements) post(c *gin.Context) error {
	job, err := readStateful(c, a.access, auth.Replicas("update"))
	if err != nil {
		return err
	}
	content, err := readBody(c)
	if err != nil {
		return err
	}
	return a.accept(c, job, content)
}

// postOfCoordinator answers POST /membership/ack.
func (a *acknowledgements) postOfCoordinator(c *gin.Context) error {
	content, err := readBody(c)
	if err != nil {
		return err
	}
	body, err := wire.ReadBody(content)
	if err != nil {
		return err
	}
	job, err := jobOfCoordinator(c.Request.Context(), a.access, body.Caller.Key(), auth.Replicas("update"))
	if err != nil {
		return err
	}
	if err := checkStateful(job); err != nil {
		return err
	}
	return a.accept(c, job, content)
}

// accept stores the acknowledgement in a body.
func (a *acknowledgements) accept(c *gin.Context, job *v2alpha1.DIJob, content []byte) error {
	ctx := c.Request.Context()
	given, err := wire.ReadAck(content)
	if err != nil {
		return err
	}
	pod, err := a.memberOf(ctx, job, given.Member)
	if err != nil {
		return err
	}
	// The caller may have read the version from another server.
	if store.Published(job).Version < given.Version {
		job, err = a.watchers.await(ctx, job, func(list *v2alpha1.PublishedMembership) bool { return list.Version >= given.Version })
		if err != nil {
			return err
		}
	}
	list := store.Published(job)
	if list.Version < given.Version {
		return failure.New(failure.Unavailable, "version %d of the membership is not known, it is at %d: read it again", given.Version, list.Version)
	}
	ack := store.Ack{Version: list.Acknowledge, Pod: pod.Name, Rank: podstate.Rank(pod), Refuse: given.Refuse, Reason: given.Reason}
	if isAwaited(job, pod, given.Version, &ack) {
		if err := a.batches.add(ctx, job, ack); err != nil {
			return err
		}
	}
	return succeed(c, messageAck, &wire.Membership{Version: list.Version})
}

// isAwaited reports whether a change waits for an acknowledgement that is not recorded.
func isAwaited(job *v2alpha1.DIJob, pod *corev1.Pod, version int64, ack *store.Ack) bool {
	list, acks := store.Published(job), job.Status.MembershipAcks
	listed := handshake.ReadList(list)
	if list.Acknowledge == 0 || version < list.Acknowledge || pod.Status.Phase != corev1.PodRunning || !listed.Has(pod) {
		return false
	}
	if ack.Refuse || acks == nil || acks.Version != list.Acknowledge || len(acks.Refused) > 0 {
		return true
	}
	recorded := ranks.Read(acks.Ranks)
	return !recorded.Has(ack.Rank)
}

// memberOf returns the pod of a job that sent a request. A pod acknowledges only for itself. Where
// callers are not authenticated, it is the named pod.
func (a *acknowledgements) memberOf(ctx context.Context, job *v2alpha1.DIJob, name string) (*corev1.Pod, error) {
	sender := auth.SenderOf(ctx)
	pods, err := a.store.PodsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	own := sender.NameIn(name)
	if own == "" && a.mode != auth.ModeEnforce && sender.IsUnknown() {
		own = name
	}
	if own == "" {
		return nil, failure.New(failure.Forbidden, "only a pod of job %s/%s acknowledges, and for itself: leave out member, or name the calling pod", job.Namespace, job.Name)
	}
	pod := pods[own]
	if pod == nil || podstate.Rank(pod) < 0 {
		return nil, failure.New(failure.NotFound, "pod %s/%s is no replica of job %s", job.Namespace, own, job.Name)
	}
	return pod, nil
}

// ackBatcher collects the acknowledgements of each job, because each write stores the whole job.
type ackBatcher struct {
	store *store.Store
	log   *requestLog
	// timeout bounds a write.
	timeout time.Duration

	mutex sync.Mutex
	open  map[types.UID]*ackBatch
}

// ackBatch are acknowledgements that are written together, by pod.
type ackBatch struct {
	acks map[string]store.Ack
	done chan struct{}
	err  error
}

func newAckBatcher(of *store.Store, log *requestLog, timeout time.Duration) *ackBatcher {
	return &ackBatcher{store: of, log: log, timeout: timeout, open: map[types.UID]*ackBatch{}}
}

// add returns once an acknowledgement is written.
func (b *ackBatcher) add(ctx context.Context, job *v2alpha1.DIJob, ack store.Ack) error {
	b.mutex.Lock()
	batch := b.open[job.UID]
	if batch == nil {
		batch = &ackBatch{acks: map[string]store.Ack{}, done: make(chan struct{})}
		b.open[job.UID] = batch
		detached := auth.Detach(ctx, job)
		time.AfterFunc(ackInterval, func() { b.flush(detached, job, batch) })
	}
	batch.acks[ack.Pod] = ack
	b.mutex.Unlock()
	select {
	case <-batch.done:
		return batch.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the write of acknowledgements: %w", ctx.Err())
	}
}

// flush writes a batch. Acknowledgements that arrive meanwhile are of the next one.
func (b *ackBatcher) flush(ctx context.Context, job *v2alpha1.DIJob, batch *ackBatch) {
	b.mutex.Lock()
	delete(b.open, job.UID)
	b.mutex.Unlock()
	batch.err = b.write(ctx, job, slices.Collect(maps.Values(batch.acks)))
	close(batch.done)
}

// write writes acknowledgements.
func (b *ackBatcher) write(ctx context.Context, job *v2alpha1.DIJob, acks []store.Ack) error {
	bounded, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	_, err := b.store.EditJob(bounded, client.ObjectKeyFromObject(job), &ackEdit{uid: job.UID, acks: acks})
	if err == nil {
		b.log.audit(ctx, messageAck, "members", len(acks))
	}
	return err
}

// ackEdit stores acknowledgements in a job.
type ackEdit struct {
	uid  types.UID
	acks []store.Ack
}

// Kind implements store.JobEdit.
func (*ackEdit) Kind() limit.Kind { return limit.OfRequests }

// Check refuses another job of the same name.
func (a *ackEdit) Check(_ context.Context, job *v2alpha1.DIJob) error {
	if job.UID != a.uid {
		return failure.New(failure.NotFound, "job %s/%s is gone: another has its name", job.Namespace, job.Name)
	}
	return nil
}

// Apply adds the acknowledgements that the job waits for.
func (a *ackEdit) Apply(job *v2alpha1.DIJob) (store.JobPatch, error) {
	return store.Acknowledge(job, a.acks), nil
}
