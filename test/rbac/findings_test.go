// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestFindings(t *testing.T) {
	t.Parallel()
	get := grant{holder: "operator", resource: "secrets", verb: "get"}
	in := func(namespace, name string) use {
		return use{holder: "operator", namespace: namespace, resource: "secrets", verb: "get", name: name}
	}
	named := func(namespace, name string) grant {
		return grant{holder: "operator", namespace: namespace, resource: "secrets", verb: "get", name: name}
	}
	const everywhere = `operator may get secrets of group "" everywhere`
	for name, tc := range map[string]struct {
		grants   []grant
		uses     []use
		excepted map[exception]string
		want     []string
	}{
		"what is used is right":                        {grants: []grant{get}, uses: []use{in("jobs", "a")}},
		"what is never used is named":                  {grants: []grant{get}, want: []string{everywhere + ": is never used"}},
		"what another uses is not used":                {grants: []grant{get}, uses: []use{{holder: "server", namespace: "jobs", resource: "secrets", verb: "get"}}, want: []string{everywhere + ": is never used"}},
		"what is used in the own namespace is limited": {grants: []grant{get}, uses: []use{in("own", "a")}, want: []string{everywhere + ": is used in own only: a Role there would do"}},
		"what is used by name is named": {
			grants: []grant{named("own", "")}, uses: []use{in("own", "a")},
			want: []string{`operator may get secrets of group "" in own: is used for a: resourceNames would do`},
		},
		"what is named is right only for that name": {
			grants: []grant{named("own", "a"), named("own", "b")}, uses: []use{in("own", "a")},
			want: []string{`operator may get secrets of group "" named b in own: is never used`},
		},
		"what is granted twice is named": {
			grants: []grant{get, named("own", "a")}, uses: []use{in("own", "a"), in("jobs", "b")},
			want: []string{`operator may get secrets of group "" named a in own: is granted twice: ` + everywhere},
		},
		"a refusal is named": {
			uses: []use{{holder: "operator", resource: "nodes", verb: "list", refused: true}},
			want: []string{`was refused: operator: list nodes of group "", namespace "", name ""`},
		},
		"a wildcard is named": {
			grants: []grant{{holder: "operator", resource: "*", verb: "get"}},
			want:   []string{`operator may get * of group "" everywhere: is a wildcard`},
		},
		"an exception is heeded": {grants: []grant{get}, excepted: map[exception]string{{"operator", "get", "secrets", ""}: "a reason"}},
		"an exception that is not needed is named": {
			grants: []grant{get}, uses: []use{in("jobs", "a")}, excepted: map[exception]string{{"operator", "get", "secrets", ""}: "a reason"},
			want: []string{"exception {holder:operator verb:get resource:secrets name:} is of no use: take it out"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, "findings", tc.want, findings(tc.grants, tc.uses, tc.excepted, "own"))
		})
	}
}
