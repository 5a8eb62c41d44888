// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator/histories"
	"opendilab.org/di-orchestrator/controllers/allocator/usage"
	"opendilab.org/di-orchestrator/job/workload"
)

// groupStore keeps the histories of groups in a ConfigMap. No other program writes it.
type groupStore struct {
	client client.Client
	live   client.Reader
	// key names the ConfigMap; empty if nothing is stored.
	key   types.NamespacedName
	known *histories.Histories
	// stored is the ConfigMap as it was last read or written; nil before it was read.
	stored    *corev1.ConfigMap
	writtenAt time.Time
	// archive is nil for none, and unknown are the groups that it does not have. After failures in a row it is not
	// asked until askAt.
	archive  Archive
	unknown  map[string]bool
	failures int
	askAt    time.Time
}

// Archive keeps what was learned of groups for longer than the ConfigMap has them.
type Archive interface {
	// Groups returns those of some groups that it has, by name, as the ConfigMap stores them.
	Groups(ctx context.Context, names []string) (map[string]json.RawMessage, error)
}

const (
	// minAsk and maxAsk are the times until an archive that failed is asked again.
	minAsk, maxAsk = 30 * time.Second, 10 * time.Minute
	// maxAsked bounds the groups of one request, and maxUnknown those that are remembered as unknown.
	maxAsked, maxUnknown = 200, 10_000
)

// restore asks the archive for groups that are about to be used and that nothing is known of. An archive that fails
// delays a round by the time of one request, and is then not asked for a while.
func (s *groupStore) restore(ctx context.Context, wanted []string, now time.Time) {
	if s.archive == nil || now.Before(s.askAt) {
		return
	}
	names := s.missing(wanted)
	if len(names) == 0 {
		return
	}
	found, err := s.archive.Groups(ctx, names)
	if err != nil {
		s.askAt = now.Add(min(minAsk<<min(s.failures, 10), maxAsk))
		s.failures++
		log.FromContext(ctx).Info("Cannot read groups of jobs from the history; jobs are placed without", "groups", len(names), "reason", err.Error())
		return
	}
	s.failures = 0
	if len(s.unknown) > maxUnknown {
		clear(s.unknown)
	}
	for _, name := range names {
		learned, exists := found[name]
		if !exists {
			s.unknown[name] = true
			continue
		}
		if err := s.known.Restore(name, string(learned), now); err != nil {
			s.unknown[name] = true
			log.FromContext(ctx).Info("Ignores an unreadable group of jobs from the history", "group", name, "reason", err.Error())
		}
	}
}

// missing returns which of some groups are neither known nor known to be missing in the archive.
func (s *groupStore) missing(wanted []string) []string {
	var names []string
	for _, name := range wanted {
		switch {
		case name == "":
		case s.known.Groups[name] != nil:
			// It may be dropped later, and the archive then has it.
			delete(s.unknown, name)
		case !s.unknown[name] && !slices.Contains(names, name) && len(names) < maxAsked:
			names = append(names, name)
		}
	}
	return names
}

// load reads the ConfigMap, unless this process knows its content.
func (s *groupStore) load(ctx context.Context) error {
	if s.known == nil {
		s.known = histories.New()
	}
	if s.stored != nil || s.key.Name == "" {
		return nil
	}
	stored := &corev1.ConfigMap{}
	if err := s.live.Get(ctx, s.key, stored); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the groups of jobs: %w", err)
	}
	stored.Namespace, stored.Name = s.key.Namespace, s.key.Name
	read, unreadable := histories.Decode(stored.Data)
	if len(unreadable) > 0 {
		log.FromContext(ctx).Info("Replaces unreadable groups of jobs", "configMap", s.key, "reason", errors.Join(unreadable...).Error())
	}
	s.known, s.stored = read, stored
	return nil
}

// save writes the ConfigMap if its content has changed: at once if that is urgent, and otherwise a minute
// after the last write. After a conflict it is read again, so that the next round continues with its content.
// It reports whether the ConfigMap has the current content.
func (s *groupStore) save(ctx context.Context, now time.Time, isUrgent bool) (bool, error) {
	if s.key.Name == "" {
		return true, nil
	}
	next := s.stored.DeepCopy()
	next.Data = s.known.Encode()
	if maps.Equal(next.Data, s.stored.Data) {
		return true, nil
	}
	if !isUrgent && now.Sub(s.writtenAt) < usage.RefreshInterval {
		return false, nil
	}
	var err error
	if s.stored.ResourceVersion == "" {
		err = s.client.Create(ctx, next)
	} else {
		err = s.client.Patch(ctx, next, client.MergeFromWithOptions(s.stored, client.MergeFromWithOptimisticLock{}))
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && s.stored.ResourceVersion != "":
		s.stored = nil
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writing the groups of jobs: %w", err)
	}
	s.stored, s.writtenAt = next, now
	return true, nil
}

// learn adds the jobs that have succeeded to the histories of their groups, and stores these. A job is marked
// as counted once the stored histories include it. Until then they name it, so that a new leader does not
// count it again.
func (a *Reconciler) learn(ctx context.Context, succeeded []*v2alpha1.DIJob) error {
	succeeded = succeeded[:min(len(succeeded), maxRefreshes)]
	var names []string
	for _, job := range succeeded {
		names = append(names, histories.Names(workload.Group(job), job.Namespace)...)
	}
	a.groups.restore(ctx, names, a.clock.Now())
	isUrgent := false
	for _, job := range succeeded {
		isUrgent = a.groups.known.Count(job, workload.Group(job)) || isUrgent
	}
	isStored, err := a.groups.save(ctx, a.clock.Now(), isUrgent)
	if err != nil || !isStored {
		return err
	}
	var failed []error
	for _, job := range succeeded {
		failed = append(failed, a.markCounted(ctx, job))
	}
	return errors.Join(failed...)
}

// markCounted records that the history of a job's group includes it.
func (a *Reconciler) markCounted(ctx context.Context, job *v2alpha1.DIJob) error {
	marked := job.DeepCopy()
	marked.Status.AllocationUsage.Counted = true
	err := a.client.Status().Patch(ctx, marked, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		// The next round marks the job that has changed meanwhile.
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("marking job %s/%s as counted: %w", job.Namespace, job.Name, err)
	}
	if err == nil {
		a.written[job.UID] = marked
	}
	a.groups.known.Mark(job.UID)
	return nil
}
