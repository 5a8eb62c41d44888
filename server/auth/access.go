// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/store"
)

const (
	// allowedTime and deniedTime are how long the results of access reviews are cached.
	allowedTime = time.Minute
	deniedTime  = 10 * time.Second
	// maxDecisions bounds the cached results.
	maxDecisions = 8192
	// decisionsPerSecond and decisionBurst limit the access reviews of one user.
	decisionsPerSecond = 10
	decisionBurst      = 40
)

// decisionKey identifies an access review.
type decisionKey struct {
	// user is the digest of all attributes that the API server authorizes by, such as groups and the scopes of
	// a token.
	user [sha256.Size]byte
	job  types.NamespacedName
	Permission
}

// authorizeUser refuses users without the permission. A user needs it for all jobs of the namespace, or for
// one of the named jobs. An empty namespace means the cluster.
func (a *Authorizer) authorizeUser(ctx context.Context, user *authenticationv1.UserInfo, namespace string, jobs []string, wanted Permission) error {
	encoded, err := json.Marshal(user)
	if err != nil {
		return fmt.Errorf("encoding user %s: %w", user.Username, err)
	}
	key := decisionKey{user: sha256.Sum256(encoded), Permission: wanted}
	// Most roles name no job, so one review is usually enough for all jobs.
	for _, job := range slices.Concat([]string{""}, jobs) {
		key.job = types.NamespacedName{Namespace: namespace, Name: job}
		if allowed, err := a.isAllowed(ctx, user, key); allowed || err != nil {
			return err
		}
	}
	return failure.New(failure.Forbidden, "user %q may not %s dijobs/%s of group %s in namespace %q: give it a role that allows it",
		user.Username, wanted.Verb, wanted.Subresource, v2alpha1.GroupName, namespace)
}

// isAllowed reports whether the API server allows a user the action of the key.
func (a *Authorizer) isAllowed(ctx context.Context, user *authenticationv1.UserInfo, key decisionKey) (bool, error) {
	if known, found := a.decisions.Get(key); found {
		return known == true, nil
	}
	if err := a.reviewRates.Wait(ctx, string(key.user[:])); err != nil {
		return false, err
	}
	review := accessReview(user, key.job, key.Permission)
	if err := store.Retry(ctx, func(ctx context.Context) error { return a.options.Cluster.Create(ctx, review) }); err != nil {
		return false, fmt.Errorf("reviewing what %s may do: %w", user.Username, err)
	}
	ttl := deniedTime
	if review.Status.Allowed {
		ttl = allowedTime
	}
	a.decisions.Add(key, review.Status.Allowed, ttl)
	return review.Status.Allowed, nil
}

func accessReview(user *authenticationv1.UserInfo, job types.NamespacedName, wanted Permission) *authorizationv1.SubjectAccessReview {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v2alpha1.GroupName, Version: v2alpha1.Version, Resource: "dijobs", Subresource: wanted.Subresource,
			Namespace: job.Namespace, Name: job.Name, Verb: wanted.Verb,
		},
	}}
}
