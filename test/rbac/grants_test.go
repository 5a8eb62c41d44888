// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// grant is one verb on one resource that RBAC grants to a service account.
type grant struct {
	// holder is the name of the service account.
	holder string
	// namespace is the namespace of the grant; empty for all.
	namespace string
	group     string
	// resource includes the subresource, as in dijobs/status.
	resource string
	verb     string
	// name is the only object of the grant; empty for all.
	name string
}

// String formats the grant for a finding.
func (g grant) String() string {
	where := "everywhere"
	if g.namespace != "" {
		where = "in " + g.namespace
	}
	text := fmt.Sprintf("%s may %s %s of group %q", g.holder, g.verb, g.resource, g.group)
	if g.name != "" {
		text += " named " + g.name
	}
	return text + " " + where
}

// covers reports whether the grant allows a use. The authorizer does not know the name of an object
// in a create request.
func (g grant) covers(u *use) bool {
	return g.holder == u.holder && g.group == u.group && g.resource == u.resource && g.verb == u.verb &&
		(g.namespace == "" || g.namespace == u.namespace) &&
		(g.name == "" || g.name == u.name && u.verb != "create")
}

// use is a request that a service account sent.
type use struct {
	holder, namespace, group, resource, verb, name string
	// refused reports whether the API server refused it.
	refused bool
}

// String formats the use for a finding.
func (u *use) String() string {
	return fmt.Sprintf("%s: %s %s of group %q, namespace %q, name %q", u.holder, u.verb, u.resource, u.group, u.namespace, u.name)
}

// exception is a necessary grant whose use the test does not observe.
type exception struct {
	holder, verb, resource, name string
}

func exceptionOf(g grant) exception { return exception{g.holder, g.verb, g.resource, g.name} }

// findings returns the problems of grants, compared with the uses in a run of all functions. System
// is the programs' own namespace.
func findings(grants []grant, uses []use, excepted map[exception]string, system string) []string {
	var found []string
	needed := map[exception]bool{}
	for i := range uses {
		if uses[i].refused {
			found = append(found, "was refused: "+uses[i].String())
		}
	}
	for _, g := range grants {
		fault := faultOf(g, grants, uses, system)
		if fault == "" {
			continue
		}
		if _, known := excepted[exceptionOf(g)]; known {
			needed[exceptionOf(g)] = true
			continue
		}
		found = append(found, g.String()+": "+fault)
	}
	for e := range excepted {
		if !needed[e] {
			found = append(found, fmt.Sprintf("exception %+v is of no use: take it out", e))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// faultOf returns the problem of a grant, or "" if it is as narrow as its uses.
func faultOf(g grant, grants []grant, uses []use, system string) string {
	if strings.Contains(g.group+g.resource+g.verb, "*") {
		return "is a wildcard"
	}
	for _, other := range grants {
		if other != g && other.covers(&use{holder: g.holder, namespace: g.namespace, group: g.group, resource: g.resource, verb: g.verb, name: g.name}) {
			return "is granted twice: " + other.String()
		}
	}
	uses = slices.DeleteFunc(slices.Clone(uses), func(u use) bool { return !g.covers(&u) })
	if len(uses) == 0 {
		return "is never used"
	}
	outside := func(u use) bool { return u.namespace != system }
	if g.namespace == "" && uses[0].namespace != "" && !slices.ContainsFunc(uses, outside) {
		return "is used in " + system + " only: a Role there would do"
	}
	own := !slices.ContainsFunc(uses, func(u use) bool { return u.namespace != "" && outside(u) })
	if g.name == "" && g.verb != "create" && own && !slices.ContainsFunc(uses, func(u use) bool { return u.name == "" }) {
		return "is used for " + uses[0].name + ": resourceNames would do"
	}
	return ""
}

// readGrants returns the grants of the bindings in the objects to service accounts, sorted.
func readGrants(objects []*unstructured.Unstructured) ([]grant, error) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRole", "Role":
			var role rbacv1.Role
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
				return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
			}
			rules[object.GetKind()+"/"+object.GetNamespace()+"/"+object.GetName()] = role.Rules
		}
	}
	var grants []grant
	for _, object := range objects {
		if kind := object.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		var binding rbacv1.RoleBinding
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		role := binding.RoleRef.Kind + "/" + binding.Namespace + "/" + binding.RoleRef.Name
		if rules[role] == nil {
			return nil, fmt.Errorf("%s %s binds %s, which is not there", object.GetKind(), object.GetName(), role)
		}
		for _, subject := range binding.Subjects {
			for _, rule := range rules[role] {
				grants = append(grants, expand(subject.Name, binding.Namespace, rule)...)
			}
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.String(), b.String()) })
	return grants, nil
}

func expand(holder, namespace string, rule rbacv1.PolicyRule) []grant {
	only := rule.ResourceNames
	if len(only) == 0 {
		only = []string{""}
	}
	var grants []grant
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range only {
					grants = append(grants, grant{holder, namespace, group, resource, verb, name})
				}
			}
		}
	}
	return grants
}
