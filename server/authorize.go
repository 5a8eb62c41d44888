// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
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
	// decisionsPerSecond and decisionBurst bound how fast the API server is asked
	// about one user.
	decisionsPerSecond = 10
	decisionBurst      = 40
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

// getting is what a GET of one job or replica does.
func getting() permission { return permission{"get", resourceReplicas} }

// gate decides who may call what.
type gate struct {
	mode     Mode
	store    store
	identity *identifier
	// decisions are what the API server said that users may do.
	decisions *cache.LRUExpireCache
	// warned are the jobs of whose unidentified callers it was warned.
	warned *cache.LRUExpireCache
	// asking holds the questions about what one user may do to a rate.
	asking *pace
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

func newGate(options *Options, store store, lookups *lookups, told observer) *gate {
	return &gate{
		mode:      options.Identity,
		store:     store,
		identity:  newIdentifier(options, store, lookups),
		decisions: cache.NewLRUExpireCacheWithClock(maxDecisions, options.Clock),
		warned:    cache.NewLRUExpireCacheWithClock(maxWarned, options.Clock),
		asking:    newPace("questions about what one user may do", decisionsPerSecond, decisionBurst),
		told:      told,
	}
}

// enter tells why the sender of a request may ask nothing at all: in the mode
// that enforces it, who it is has to be known, and a pod of no job has nothing to
// ask in any. It comes before anything that costs the cluster something, and
// leaves in the request's context who it is.
func (g *gate) enter(c *gin.Context) error {
	ctx := c.Request.Context()
	sender := &subject{by: byNothing, address: c.Request.RemoteAddr}
	if g.mode != ModeOff {
		var err error
		if sender, err = g.identity.identify(ctx, c.Request); err != nil {
			return err
		}
	}
	c.Request = c.Request.WithContext(context.WithValue(ctx, senderKey{}, sender))
	switch {
	case g.mode == ModeOff:
		return nil
	case sender.by == byNothing && g.mode != ModeLegacy:
		g.told.called(sender.by, false)
		return unknown(sender)
	case sender.user == nil && sender.pod != nil && jobOwner(sender.pod) == nil:
		g.told.called(sender.by, false)
		return stranger(sender)
	}
	return nil
}

func unknown(sender *subject) error {
	return failure(KindUnauthenticated, "who calls from %s is not known: call from a pod of the job, or with a token of audience %s",
		sender.address, names.ServerAudience)
}

// stranger is what everybody is told that may not ask what it asks: the same
// whether there is what it asks about, so that nobody learns that.
func stranger(sender *subject) error {
	return failure(KindForbidden, "%s is not of the job that it asks about: only the job's own pods, and users by a token, may ask this", sender)
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

// target is what a request names: a job, or a pod of one.
type target struct {
	key types.NamespacedName
	// jobs are the names of the jobs that it may belong to.
	jobs []string
	// pod is whether it is a pod.
	pod bool
}

func jobTarget(key types.NamespacedName) target {
	return target{key: key, jobs: []string{key.Name}}
}

func podTarget(key types.NamespacedName) target {
	jobs := membership.JobNames(key.Name)
	if job, found := strings.CutSuffix(key.Name, names.CoordinatorPod("")); found && job != "" {
		jobs = append(jobs, job)
	}
	return target{key: key, jobs: jobs, pod: true}
}

// approach tells why the sender of a request may not even ask about a target. It
// goes by the names and the cache alone, where the sender is a pod, so that
// nobody has the API server asked about what is not its own. Who may approach a
// target still has to be admitted to its job.
func (g *gate) approach(ctx context.Context, to target, wanted permission) error {
	sender := senderOf(ctx)
	err := g.mayApproach(ctx, sender, to, wanted)
	if err != nil {
		g.told.called(sender.by, false)
	}
	return err
}

func (g *gate) mayApproach(ctx context.Context, sender *subject, to target, wanted permission) error {
	switch {
	case g.mode == ModeOff:
		return nil
	case len(sender.pods()) > 0:
		own, err := g.isOwn(ctx, sender, to)
		if own || err != nil {
			return err
		}
		if sender.user == nil {
			return stranger(sender)
		}
		return g.authorize(ctx, sender.user, to.key.Namespace, to.jobs, wanted)
	case sender.user != nil:
		return g.authorize(ctx, sender.user, to.key.Namespace, to.jobs, wanted)
	case g.mode == ModeLegacy:
		return nil
	}
	return unknown(sender)
}

// isOwn reports whether a target may be of a job whose pod the sender is. A pod
// that the cache knows is of the job that it says, and one that it does not
// know yet may be of each that its name allows.
func (g *gate) isOwn(ctx context.Context, sender *subject, to target) (bool, error) {
	var pod corev1.Pod
	known := false
	if to.pod {
		err := g.store.get(ctx, to.key, &pod)
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("reading pod %s: %w", to.key, err)
		}
		known = err == nil
	}
	return slices.ContainsFunc(sender.pods(), func(own *corev1.Pod) bool {
		owner := jobOwner(own)
		switch {
		case owner == nil || own.Namespace != to.key.Namespace:
			return false
		case to.pod && own.Name == to.key.Name:
			return true
		case known:
			of := jobOwner(&pod)
			return of != nil && of.UID == owner.UID
		}
		return slices.Contains(to.jobs, owner.Name)
	}), nil
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
	case slices.ContainsFunc(sender.pods(), func(pod *corev1.Pod) bool { return ownedBy(pod, job) }):
		return nil
	case sender.user != nil:
		return g.authorize(ctx, sender.user, job.Namespace, []string{job.Name}, wanted)
	case len(sender.pods()) > 0:
		return stranger(sender)
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
	switch pods := sender.pods(); {
	case len(pods) > 0:
		return func(job *v2alpha1.DIJob) bool {
			return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return ownedBy(pod, job) })
		}, nil
	case sender.user != nil:
		return everything, g.authorize(ctx, sender.user, namespace, nil, permission{"list", resourceReplicas})
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

// authorize tells why a user may not do something to all jobs of a namespace, or
// of the cluster where that is empty, and neither to one of those that are named.
func (g *gate) authorize(ctx context.Context, user *authenticationv1.UserInfo, namespace string, jobs []string, wanted permission) error {
	encoded, err := json.Marshal(user)
	if err != nil {
		return fmt.Errorf("encoding user %s: %w", user.Username, err)
	}
	key := decisionKey{user: sha256.Sum256(encoded), permission: wanted}
	// Most roles name no job, so that one question does for all.
	for _, job := range slices.Concat([]string{""}, jobs) {
		key.job = types.NamespacedName{Namespace: namespace, Name: job}
		if allowed, err := g.allowed(ctx, user, key); allowed || err != nil {
			return err
		}
	}
	return failure(KindForbidden, "user %q may not %s dijobs/%s of group %s in namespace %q: give it a role that allows it",
		user.Username, wanted.verb, wanted.subresource, v2alpha1.GroupName, namespace)
}

// allowed returns the API server's word on what a user may do.
func (g *gate) allowed(ctx context.Context, user *authenticationv1.UserInfo, key decisionKey) (bool, error) {
	if known, found := g.decisions.Get(key); found {
		return known == true, nil
	}
	if err := g.asking.wait(ctx, string(key.user[:])); err != nil {
		return false, err
	}
	review := accessReview(user, key.job, key.permission)
	if err := persist(ctx, func(ctx context.Context) error { return g.store.create(ctx, review) }); err != nil {
		return false, fmt.Errorf("reviewing what %s may do: %w", user.Username, err)
	}
	believed := deniedTime
	if review.Status.Allowed {
		believed = allowedTime
	}
	g.decisions.Add(key, review.Status.Allowed, believed)
	return review.Status.Allowed, nil
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
