// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestARefusalSaysWhatTheAuthorMayHaveMeant(t *testing.T) {
	t.Parallel()
	v1, v2 := v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String()
	for name, tc := range map[string]struct{ line, version, want string }{
		"a letter is missing":           {`unknown field "spec.backofLimit"`, v2, ": did you mean backoffLimit?"},
		"the plural is missing":         {`unknown field "spec.tasks[12].replica"`, v2, ": did you mean replicas?"},
		"the case is wrong":             {`unknown field "spec.cleanpodpolicy"`, v1, ": did you mean cleanPodPolicy?"},
		"a field of v1alpha1":           {`unknown field "spec.coordinator"`, v2, ": it is a field of diengine.opendilab.org/v1alpha1; kubectl di convert -f FILE --to v2alpha1 converts a manifest"},
		"a field of v2alpha1":           {`unknown field "spec.tasks"`, v1, ": it is a field of diengine.opendilab.org/v2alpha1; kubectl di convert -f FILE --to v1alpha1 converts a manifest"},
		"nothing similar":               {`unknown field "spec.nope"`, v2, ""},
		"a field inside of a template":  {`unknown field "spec.tasks[0].template.spek"`, v2, ""},
		"a task without a type":         {`  spec.tasks[3].type: Required value`, v2, `: one of "coordinator", "learner", "collector", "evaluator", "none"`},
		"another field that is missing": {`spec.tasks[3].name: Required value: must be named`, v2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _ := strings.CutPrefix(suggest(tc.line, tc.version), tc.line); got != tc.want {
				t.Errorf("the suggestion is %q, want %q", got, tc.want)
			}
		})
	}
}
