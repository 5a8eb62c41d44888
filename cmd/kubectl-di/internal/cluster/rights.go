// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Right is what a role may allow.
type Right struct {
	Verb, Group, Resource, Subresource string
	Namespace, Name                    string
}

// Denied explains an error of the API server: where the user lacks the right,
// it says which role gives it.
func (r *Right) Denied(purpose string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: %w\n%s", purpose, err, r.Remedy())
	}
	return fmt.Errorf("%s: %w", purpose, err)
}

// Remedy says which role gives the right.
func (r *Right) Remedy() string {
	var command strings.Builder
	create := "kubectl create clusterrole"
	if r.Namespace != "" {
		create = "kubectl -n " + r.Namespace + " create role"
	}
	fmt.Fprintf(&command, "a role of this right, bound to you, allows it:\n  %s kubectl-di-%s --verb=%s --resource=%s",
		create, r.role(), r.Verb, r.Qualified())
	if r.Name != "" {
		fmt.Fprintf(&command, " --resource-name=%s", r.Name)
	}
	return command.String()
}

// role returns a name for a role of the right.
func (r *Right) role() string {
	return strings.ReplaceAll(r.Verb, ",", "-") + "-" + cmp.Or(r.Subresource, r.Resource)
}

// Qualified names the resource as kubectl create role does.
func (r *Right) Qualified() string {
	qualified := r.Resource
	if r.Group != "" {
		qualified += "." + r.Group
	}
	if r.Subresource != "" {
		qualified += "/" + r.Subresource
	}
	return qualified
}

// IsMissing asks the API server whether the user lacks the right, for calls
// whose errors do not tell. Where it does not say, that is not known.
func (r *Right) IsMissing(ctx context.Context, c *Cluster) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
		},
	}}
	return c.client.Create(ctx, review) == nil && !review.Status.Allowed
}
