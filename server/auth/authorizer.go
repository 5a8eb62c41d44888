// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
)

const (
	// warnInterval is how often unauthenticated callers of a job are logged.
	warnInterval = time.Hour
	// maxWarned bounds the jobs whose warnings the server remembers.
	maxWarned = 4096
)

// Permission is an action of a sender in the terms of RBAC: a verb on a subresource of DIJobs.
type Permission struct {
	// Verb is the verb.
	Verb string
	// Subresource is replicas or profilings.
	Subresource string
}

// Replicas returns the permission of a verb on the replicas of a job.
func Replicas(verb string) Permission {
	return Permission{Verb: verb, Subresource: "replicas"}
}

// Profilings returns the permission to report profilings of a job.
func Profilings() Permission {
	return Permission{Verb: "create", Subresource: "profilings"}
}

// Authorizer decides which requests a sender may make.
type Authorizer struct {
	options Options
	// decisions caches the results of access reviews.
	decisions *cache.LRUExpireCache
	// warned records the jobs whose unauthenticated callers were logged.
	warned *cache.LRUExpireCache
	// reviewRates limits the access reviews of one user.
	reviewRates *limit.Rates
}

func newAuthorizer(options Options) *Authorizer {
	return &Authorizer{
		options:     options,
		decisions:   cache.NewLRUExpireCacheWithClock(maxDecisions, options.Clock),
		warned:      cache.NewLRUExpireCacheWithClock(maxWarned, options.Clock),
		reviewRates: limit.NewRates("questions about what one user may do", decisionsPerSecond, decisionBurst),
	}
}

func errUnknown(sender *Sender) error {
	return failure.New(failure.Unauthenticated, "who calls from %s is not known: call from a pod of the job, or with a token of audience %s",
		sender.address, names.ServerAudience)
}

// errForeign returns the failure for senders of another job. The failure does not depend on whether the target
// exists, so it does not disclose that.
func errForeign(sender *Sender) error {
	return failure.New(failure.Forbidden, "%s is not of the job that it asks about: only the job's own pods, and users by a token, may ask this", sender)
}

// Target is the object that a request names: a job, or a pod of a job.
type Target struct {
	key types.NamespacedName
	// jobs are the names of the jobs that the target may belong to.
	jobs  []string
	isPod bool
}

// JobTarget returns the target of a job.
func JobTarget(key types.NamespacedName) Target {
	return Target{key: key, jobs: []string{key.Name}}
}

// PodTarget returns the target of a pod.
func PodTarget(key types.NamespacedName) Target {
	jobs := membership.JobNames(key.Name)
	if job, found := strings.CutSuffix(key.Name, names.CoordinatorPod("")); found && job != "" {
		jobs = append(jobs, job)
	}
	return Target{key: key, jobs: jobs, isPod: true}
}

// Preauthorize refuses senders that may not know whether a target exists. For pods it uses only names and the
// cache, so a pod cannot cause API calls about other jobs. The caller must still Authorize the sender for the
// job.
func (a *Authorizer) Preauthorize(ctx context.Context, to Target, wanted Permission) error {
	sender := SenderOf(ctx)
	err := a.mayAsk(ctx, sender, to, wanted)
	if err != nil {
		a.options.Metrics.count(sender, false)
	}
	return err
}

func (a *Authorizer) mayAsk(ctx context.Context, sender *Sender, to Target, wanted Permission) error {
	switch {
	case a.options.Mode == ModeDisabled:
		return nil
	case len(sender.pods()) > 0:
		own, err := a.isOwn(ctx, sender, to)
		if own || err != nil {
			return err
		}
		if sender.user == nil {
			return errForeign(sender)
		}
		return a.authorizeUser(ctx, sender.user, to.key.Namespace, to.jobs, wanted)
	case sender.user != nil:
		return a.authorizeUser(ctx, sender.user, to.key.Namespace, to.jobs, wanted)
	case a.options.Mode == ModeLegacy:
		return nil
	}
	return errUnknown(sender)
}

// isOwn reports whether a target may belong to the job of a sender's pod. A pod in the cache has a known job.
// Any other pod may belong to each job that its name allows.
func (a *Authorizer) isOwn(ctx context.Context, sender *Sender, to Target) (bool, error) {
	var pod corev1.Pod
	known := false
	if to.isPod {
		err := a.options.Cluster.Get(ctx, to.key, &pod)
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("reading pod %s: %w", to.key, err)
		}
		known = err == nil
	}
	return slices.ContainsFunc(sender.pods(), func(own *corev1.Pod) bool {
		owner := store.JobOwner(own)
		switch {
		case owner == nil || own.Namespace != to.key.Namespace:
			return false
		case to.isPod && own.Name == to.key.Name:
			return true
		case known:
			of := store.JobOwner(&pod)
			return of != nil && of.UID == owner.UID
		}
		return slices.Contains(to.jobs, owner.Name)
	}), nil
}

// Authorize refuses senders without the permission for a job, and records the job in the context. A pod of the
// job has every permission. A user has those of its roles. An unauthenticated sender has every permission in
// ModeLegacy.
func (a *Authorizer) Authorize(ctx context.Context, job *v2alpha1.DIJob, wanted Permission) error {
	if known, found := ctx.Value(requestKey{}).(*request); found {
		known.job = job
	}
	if a.options.Mode == ModeDisabled {
		return nil
	}
	sender := SenderOf(ctx)
	err := a.decide(ctx, sender, job, wanted)
	a.options.Metrics.count(sender, err == nil)
	return err
}

func (a *Authorizer) decide(ctx context.Context, sender *Sender, job *v2alpha1.DIJob, wanted Permission) error {
	switch {
	case sender.isOf(job):
		return nil
	case sender.user != nil:
		return a.authorizeUser(ctx, sender.user, job.Namespace, []string{job.Name}, wanted)
	case len(sender.pods()) > 0:
		return errForeign(sender)
	case a.options.Mode != ModeLegacy:
		return errUnknown(sender)
	}
	if _, warned := a.warned.Get(job.UID); !warned {
		a.warned.Add(job.UID, true, warnInterval)
		a.options.Metrics.warn(sender, job)
	}
	return nil
}

// Visible returns a predicate that reports whether the sender of a request may read a job.
func (a *Authorizer) Visible(ctx context.Context, namespace string) (func(*v2alpha1.DIJob) bool, error) {
	everything := func(*v2alpha1.DIJob) bool { return true }
	sender := SenderOf(ctx)
	switch {
	case a.options.Mode == ModeDisabled:
		return everything, nil
	case len(sender.pods()) > 0:
		return sender.isOf, nil
	case sender.user != nil:
		return everything, a.authorizeUser(ctx, sender.user, namespace, nil, Replicas("list"))
	case a.options.Mode == ModeLegacy:
		return everything, nil
	}
	return nil, errUnknown(sender)
}
