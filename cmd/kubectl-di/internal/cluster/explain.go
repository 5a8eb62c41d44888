// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// forbidden matches the message of an API server about a missing right.
var forbidden = regexp.MustCompile(
	`(?:"([^"]*)" )?is forbidden: User ".*?" cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// explain adds the purpose of a call to its error. If the user does not have a right, it adds the
// role that grants it, for the given verbs or else for the refused one.
func explain(purpose string, err error, verbs ...string) error {
	if err == nil {
		return nil
	}
	found := forbidden.FindStringSubmatch(err.Error())
	if found == nil {
		return fmt.Errorf("%s: %w", purpose, err)
	}
	name, verb, resource, group, namespace := found[1], strings.Join(verbs, ","), found[3], found[4], found[5]
	verb = cmp.Or(verb, found[2])
	if !isByName(resource, verb) {
		name = ""
	}
	return fmt.Errorf("%s: %w\n%s", purpose, err, RoleFor(verb, resource, group, namespace, name))
}

// RoleFor returns what gives a user a right, for one object if it is named. Without a namespace the
// right is for all.
func RoleFor(verb, resource, group, namespace, name string) string {
	create := "kubectl create clusterrole"
	if namespace != "" {
		create = "kubectl -n " + namespace + " create role"
	}
	base, subresource, isSub := strings.Cut(resource, "/")
	qualified := strings.TrimSuffix(base+"."+group, ".")
	if isSub {
		qualified += "/" + subresource
	}
	remedy := fmt.Sprintf("%s kubectl-di-%s-%s --verb=%s --resource=%s", create, strings.ReplaceAll(verb, ",", "-"),
		cmp.Or(subresource, base), verb, qualified)
	if name != "" {
		remedy += " --resource-name=" + name
	}
	return "a role of this right, bound to you, allows it:\n  " + remedy
}

// isByName reports whether a role should grant the right for one object only.
func isByName(resource, verb string) bool {
	switch resource {
	case "secrets", "configmaps", "services", "serviceaccounts/token":
		return true
	}
	return resource == "customresourcedefinitions" && verb == "patch"
}

// IsDenied reports whether the API server denied a right.
func IsDenied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
