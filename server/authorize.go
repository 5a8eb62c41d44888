// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Mode says what becomes of callers that are not identified.
type Mode string

// The modes.
const (
	// ModeEnforce refuses them.
	ModeEnforce Mode = "enforce"
	// ModeLegacy lets them in, counts them and warns of them: callers of earlier
	// releases may come by a node's port or through a gateway, which hides them.
	ModeLegacy Mode = "legacy"
	// ModeOff identifies nobody and lets everybody in.
	ModeOff Mode = "off"
)

const (
	// allowedTime and deniedTime are how long the API server's word on what a
	// user may do is believed.
	allowedTime = time.Minute
	deniedTime  = 10 * time.Second
	// maxDecisions bounds how many of its words are remembered.
	maxDecisions = 8192
	// warnInterval is how often it is warned of unidentified callers of a job.
	warnInterval = time.Hour
	// maxWarned bounds for how many jobs it is remembered that it was.
	maxWarned = 4096
)

// permission is what a caller does, as roles name it: a verb on a
// subresource of DIJobs, replicas or profilings.
type permission struct {
	verb        string
	subresource string
}

const (
	resourceReplicas   = "replicas"
	resourceProfilings = "profilings"
)

// gate decides who may call what.
type gate struct {
	mode     Mode
	store    store
	identity *identifier
	// decisions are what the API server said that users may do.
	decisions *cache.LRUExpireCache
	// warned are the jobs of whose unidentified callers it was warned.
	warned *cache.LRUExpireCache
	told   observer
}

// observer is told of calls, to count and to log them.
type observer interface {
	// called is told of each call about jobs that was let in or refused.
	called(by evidence, allowed bool)
	// unidentified is told of a call that is let in though its sender is not known.
	unidentified(from string, job *v2alpha1.DIJob)
	// forbidden is told of what the server itself may not do.
	forbidden(err error)
}

func newGate(mode Mode, store store, watches *Watches, clock cache.Clock, told observer) *gate {
	return &gate{
		mode:      mode,
		store:     store,
		identity:  newIdentifier(store, watches, clock),
		decisions: cache.NewLRUExpireCacheWithClock(maxDecisions, clock),
		warned:    cache.NewLRUExpireCacheWithClock(maxWarned, clock),
		told:      told,
	}
}

// enter tells why the sender of a request may ask nothing at all: in the mode
// that enforces it, who it is has to be known. It comes before anything that
// costs the cluster something, and leaves in the request's context who it is.
// Only where nobody is let in without being known is it worth to wait for an
// address.
func (g *gate) enter(c *gin.Context) error {
	if g.mode == ModeOff {
		return nil
	}
	ctx := c.Request.Context()
	sender, err := g.identity.identify(ctx, c.Request, g.mode == ModeEnforce)
	if err != nil {
		return err
	}
	if sender.by == byNothing && g.mode != ModeLegacy {
		g.told.called(sender.by, false)
		return unknown(sender)
	}
	c.Request = c.Request.WithContext(context.WithValue(ctx, senderKey{}, sender))
	return nil
}

func unknown(sender *subject) error {
	return failure(KindUnauthenticated, "who calls from %s is not known: call from a pod of the job, or with a token of audience %s",
		sender.address, names.ServerAudience)
}

// senderKey is the key under which the context of a request has who sent it.
type senderKey struct{}

// senderOf returns who sent the request of a context; nobody known where the
// gate does not identify.
func senderOf(ctx context.Context) *subject {
	sender, entered := ctx.Value(senderKey{}).(*subject)
	if !entered {
		return &subject{by: byNothing}
	}
	return sender
}

// admit tells why the sender of a request may not do what it asks to a job.
// A pod of the job itself may; who else has a token may what its roles say;
// who is not identified may, in the mode that let it come so far.
func (g *gate) admit(ctx context.Context, job *v2alpha1.DIJob, wanted permission) error {
	isAbout(ctx, job)
	if g.mode == ModeOff {
		return nil
	}
	sender := senderOf(ctx)
	err := g.decide(ctx, sender, job, wanted)
	g.told.called(sender.by, err == nil)
	return err
}

func (g *gate) decide(ctx context.Context, sender *subject, job *v2alpha1.DIJob, wanted permission) error {
	switch {
	case sender.pod != nil && ownedBy(sender.pod, job):
		return nil
	case sender.user != nil:
		return g.authorize(ctx, sender.user, types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, wanted)
	case sender.pod != nil:
		return failure(KindForbidden, "%s is not of job %s/%s: only the job's own pods, and users by a token, may ask this",
			sender, job.Namespace, job.Name)
	}
	if g.mode != ModeLegacy {
		return unknown(sender)
	}
	g.warn(sender, job)
	return nil
}

// warn tells of an unidentified caller of a job, once in a while.
func (g *gate) warn(sender *subject, job *v2alpha1.DIJob) {
	if _, warned := g.warned.Get(job.UID); warned {
		return
	}
	g.warned.Add(job.UID, true, warnInterval)
	g.told.unidentified(sender.address, job)
}

// visible returns which jobs the sender of a request may read.
func (g *gate) visible(ctx context.Context, namespace string) (func(*v2alpha1.DIJob) bool, error) {
	everything := func(*v2alpha1.DIJob) bool { return true }
	if g.mode == ModeOff {
		return everything, nil
	}
	sender := senderOf(ctx)
	switch {
	case sender.pod != nil:
		return func(job *v2alpha1.DIJob) bool { return ownedBy(sender.pod, job) }, nil
	case sender.user != nil:
		of := types.NamespacedName{Namespace: namespace}
		return everything, g.authorize(ctx, sender.user, of, permission{"list", resourceReplicas})
	case g.mode == ModeLegacy:
		return everything, nil
	}
	return nil, unknown(sender)
}

// decisionKey is what one word of the API server is about.
type decisionKey struct {
	// user is the digest of all that the API server decides by: groups and what
	// else an authenticator says, such as the scopes of a token.
	user [sha256.Size]byte
	job  types.NamespacedName
	permission
}

// authorize asks the API server whether a user may do something to a job, to
// all jobs of a namespace where the name is empty, or of the cluster.
func (g *gate) authorize(ctx context.Context, user *authenticationv1.UserInfo, job types.NamespacedName, wanted permission) error {
	encoded, err := json.Marshal(user)
	if err != nil {
		return fmt.Errorf("encoding user %s: %w", user.Username, err)
	}
	key := decisionKey{user: sha256.Sum256(encoded), job: job, permission: wanted}
	allowed, known := g.decisions.Get(key)
	if !known {
		review := accessReview(user, job, wanted)
		if err := persist(ctx, func(ctx context.Context) error { return g.store.create(ctx, review) }); err != nil {
			return fmt.Errorf("reviewing what %s may do: %w", user.Username, err)
		}
		believed := deniedTime
		if review.Status.Allowed {
			believed = allowedTime
		}
		allowed = review.Status.Allowed
		g.decisions.Add(key, allowed, believed)
	}
	if allowed == true {
		return nil
	}
	return failure(KindForbidden, "user %q may not %s dijobs/%s of group %s in namespace %q: give it a role that allows it",
		user.Username, wanted.verb, wanted.subresource, v2alpha1.GroupName, job.Namespace)
}

func accessReview(user *authenticationv1.UserInfo, job types.NamespacedName, wanted permission) *authorizationv1.SubjectAccessReview {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v2alpha1.GroupName, Version: v2alpha1.Version, Resource: "dijobs", Subresource: wanted.subresource,
			Namespace: job.Namespace, Name: job.Name, Verb: wanted.verb,
		},
	}}
}
