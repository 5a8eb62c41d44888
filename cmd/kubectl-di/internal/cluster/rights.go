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

// right is what a role may allow.
type right struct {
	verb, group, resource, subresource string
	namespace, name                    string
}

// denied explains an error of the API server: where the user lacks the right,
// it says which role gives it.
func (r *right) denied(purpose string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: %w\n%s", purpose, err, r.remedy())
	}
	return fmt.Errorf("%s: %w", purpose, err)
}

// remedy says which role gives the right.
func (r *right) remedy() string {
	var command strings.Builder
	fmt.Fprintf(&command, "a role of this right, bound to you, allows it:\n"+
		"  kubectl -n %s create role kubectl-di-%s --verb=%s --resource=%s", r.namespace, r.role(), r.verb, r.qualified())
	if r.name != "" {
		fmt.Fprintf(&command, " --resource-name=%s", r.name)
	}
	return command.String()
}

// role returns a name for a role of the right.
func (r *right) role() string {
	return r.verb + "-" + cmp.Or(r.subresource, r.resource)
}

// qualified names the resource as kubectl create role does.
func (r *right) qualified() string {
	qualified := r.resource
	if r.group != "" {
		qualified += "." + r.group
	}
	if r.subresource != "" {
		qualified += "/" + r.subresource
	}
	return qualified
}

// isMissing asks the API server whether the user lacks the right, for calls
// whose errors do not tell. Where it does not say, that is not known.
func (r *right) isMissing(ctx context.Context, c *Cluster) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Name: r.name,
		},
	}}
	return c.client.Create(ctx, review) == nil && !review.Status.Allowed
}
