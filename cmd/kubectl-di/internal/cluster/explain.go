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
	`(?:"([^"]*)" )?is forbidden: User "(.*?)" cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

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
	right := Right{User: found[2], Verb: cmp.Or(strings.Join(verbs, ","), found[3]), Resource: found[4], Group: found[5], Namespace: found[6]}
	if isByName(right.Resource, right.Verb) {
		right.Name = found[1]
	}
	return &DeniedError{cause: fmt.Errorf("%s: %w", purpose, err), Right: right}
}

// Right is what a user may not do. Without a namespace it is for all, and without a name for all objects.
type Right struct{ User, Verb, Resource, Group, Namespace, Name string }

// String returns the right in words.
func (r *Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Namespace != "" {
		return text + " in namespace " + r.Namespace
	}
	return text
}

// Grant returns the commands that give the user the right.
func (r *Right) Grant() []string {
	role, name := roleFor(r.Verb, r.Resource, r.Group, r.Namespace, r.Name)
	bind := "kubectl create clusterrolebinding " + name + " --clusterrole=" + name
	if r.Namespace != "" {
		bind = "kubectl -n " + r.Namespace + " create rolebinding " + name + " --role=" + name
	}
	if account, isAccount := strings.CutPrefix(r.User, "system:serviceaccount:"); isAccount {
		return []string{role, bind + " --serviceaccount=" + account}
	}
	return []string{role, bind + " --user=" + shellWord(r.User)}
}

// plainWord matches what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

// shellWord returns a text as one word of a shell.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// DeniedError is the refusal of a call because of a missing right.
type DeniedError struct {
	cause error
	Right Right
}

// Error implements error. It names the role that grants the right.
func (e *DeniedError) Error() string {
	return e.cause.Error() + "\n" + RoleFor(e.Right.Verb, e.Right.Resource, e.Right.Group, e.Right.Namespace, e.Right.Name)
}

// Unwrap returns the error without the role.
func (e *DeniedError) Unwrap() error { return e.cause }

// RoleFor returns what gives a user a right, for one object if it is named. Without a namespace the
// right is for all.
func RoleFor(verb, resource, group, namespace, name string) string {
	role, _ := roleFor(verb, resource, group, namespace, name)
	return "a role of this right, bound to you, allows it:\n  " + role
}

// roleFor returns the command that creates a role, and the name of the role.
func roleFor(verb, resource, group, namespace, name string) (command, role string) {
	create := "kubectl create clusterrole"
	if namespace != "" {
		create = "kubectl -n " + namespace + " create role"
	}
	base, subresource, isSub := strings.Cut(resource, "/")
	qualified := strings.TrimSuffix(base+"."+group, ".")
	if isSub {
		qualified += "/" + subresource
	}
	role = fmt.Sprintf("kubectl-di-%s-%s", strings.ReplaceAll(verb, ",", "-"), cmp.Or(subresource, base))
	command = fmt.Sprintf("%s %s --verb=%s --resource=%s", create, role, verb, qualified)
	if name != "" {
		command += " --resource-name=" + name
	}
	return command, role
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
