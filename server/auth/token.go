// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/store"
)

const (
	// reviewTime is how long a valid token review is cached. The pod of the token is read for every request.
	reviewTime = time.Minute
	// invalidTime is how long an invalid token is cached.
	invalidTime = 2 * time.Second
	// maxReviews bounds the cached reviews.
	maxReviews = 8192
	// reviewsPerSecond and reviewBurst limit the token reviews of one address, so that invalid tokens do not
	// exhaust the API calls of other senders. The limit allows for a gateway that many jobs share.
	reviewsPerSecond = 20
	reviewBurst      = 100
	// strangersPerSecond and strangerBurst limit the token reviews of addresses that belong to no job. All
	// such addresses share this limit.
	strangersPerSecond = 50
	strangerBurst      = 200
	// expiryLeeway is how long an expired token is still reviewed, because clocks differ.
	expiryLeeway = time.Minute
	// maxToken bounds the bytes of a token.
	maxToken = 8 << 10

	// These claims name the pod that a token is bound to.
	claimPodName = "authentication.kubernetes.io/pod-name"
	claimPodUID  = "authentication.kubernetes.io/pod-uid"
)

// resolveToken resolves a sender by its token.
func (a *Authenticator) resolveToken(ctx context.Context, sender *Sender, authorization string) error {
	scheme, token, _ := strings.Cut(authorization, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return failure.New(failure.Unauthenticated, "Authorization: must be Bearer and a token of audience %s", names.ServerAudience)
	}
	user, err := a.review(ctx, token, sender.address)
	if err != nil {
		return err
	}
	sender.by, sender.user = byToken, user
	sender.pod, err = a.boundPod(ctx, sender)
	return err
}

// review returns the user of a token by a token review. It caches the review under the token's hash. It does
// not review a token for another audience.
func (a *Authenticator) review(ctx context.Context, token, address string) (*authenticationv1.UserInfo, error) {
	if !mayBeValid(token, a.options.Clock.Now()) {
		return nil, errInvalidToken()
	}
	key := sha256.Sum256([]byte(token))
	if known, found := a.reviews.Get(key); found {
		if user, isUser := known.(*authenticationv1.UserInfo); isUser && user != nil {
			return user, nil
		}
		return nil, errInvalidToken()
	}
	if err := a.awaitReview(ctx, address); err != nil {
		return nil, err
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
		Token: token, Audiences: []string{names.ServerAudience},
	}}
	if err := store.Retry(ctx, func(ctx context.Context) error { return a.options.Cluster.Create(ctx, review) }); err != nil {
		return nil, fmt.Errorf("reviewing a token: %w", err)
	}
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, names.ServerAudience) {
		a.reviews.Add(key, (*authenticationv1.UserInfo)(nil), invalidTime)
		return nil, errInvalidToken()
	}
	a.reviews.Add(key, &review.Status.User, reviewTime)
	return &review.Status.User, nil
}

func errInvalidToken() error {
	return failure.New(failure.Unauthenticated, "the token is not valid: it must be a current one of audience %s", names.ServerAudience)
}

// awaitReview blocks until a token from an address may be reviewed. Tokens from pods of jobs do not wait for
// those from other addresses.
func (a *Authenticator) awaitReview(ctx context.Context, remote string) error {
	sender := &Sender{by: byNothing, address: remote}
	if from, err := netip.ParseAddrPort(remote); err == nil {
		if err := a.resolveCached(ctx, sender, from.Addr().Unmap()); err != nil {
			return err
		}
	}
	if err := a.reviewRates.Wait(ctx, netlimit.Host(remote)); err != nil {
		return err
	}
	if sender.pod != nil && store.JobOwner(sender.pod) != nil || len(sender.sharing) > 0 {
		return nil
	}
	return a.strangerRates.Wait(ctx, "")
}

// mayBeValid reports whether a token may be valid. A JSON Web Token must name the audience of di-server and
// must not have expired. Only the API server can validate other tokens.
func mayBeValid(token string, now time.Time) bool {
	if len(token) > maxToken {
		return false
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return true
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var claims struct {
		Audience json.RawMessage `json:"aud"`
		Expiry   *float64        `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return false
	}
	if claims.Expiry != nil && *claims.Expiry+expiryLeeway.Seconds() < float64(now.Unix()) {
		return false
	}
	var one string
	var several []string
	if json.Unmarshal(claims.Audience, &one) == nil {
		several = []string{one}
	} else if json.Unmarshal(claims.Audience, &several) != nil {
		return false
	}
	return slices.Contains(several, names.ServerAudience)
}

// boundPod returns the live pod that a sender's token is bound to; nil if the token is bound to none.
func (a *Authenticator) boundPod(ctx context.Context, sender *Sender) (*corev1.Pod, error) {
	user := sender.user
	name, uid := claim(user, claimPodName), claim(user, claimPodUID)
	namespace, isServiceAccount := serviceAccountNamespace(user.Username)
	if name == "" || !isServiceAccount {
		return nil, nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	var pod corev1.Pod
	err := a.options.Cluster.Get(ctx, key, &pod)
	if apierrors.IsNotFound(err) || err == nil && string(pod.UID) != uid {
		pod = corev1.Pod{}
		err = a.lookups.lookFor(ctx, sender, key, &pod)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure.New(failure.Unauthenticated, "the token's pod %q is gone", key).Because(err)
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	case string(pod.UID) != uid || podstate.Finished(&pod):
		return nil, failure.New(failure.Unauthenticated, "the token's pod %q is gone", key)
	}
	return &pod, nil
}

func claim(user *authenticationv1.UserInfo, name string) string {
	values := user.Extra[name]
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// serviceAccountNamespace returns the namespace of a service account. It parses the user name,
// system:serviceaccount:NAMESPACE:NAME.
func serviceAccountNamespace(username string) (string, bool) {
	rest, found := strings.CutPrefix(username, "system:serviceaccount:")
	namespace, _, complete := strings.Cut(rest, ":")
	return namespace, found && complete
}
