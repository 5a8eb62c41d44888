// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package semantic

import (
	"testing"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestAStoredQuantityThatCostsIsComparedAsItIsWritten(t *testing.T) {
	t.Parallel()
	stored := rawObject([]byte(`{"name":"v","emptyDir":{"sizeLimit":"1e-2000000000"}}`))
	other := rawObject([]byte(`{"name":"v","emptyDir":{"sizeLimit":"1e-2000000001"}}`))
	spaced := rawObject(append([]byte(" "), stored.Raw...))
	if !SameVolumes([]v2alpha1.RawObject{stored}, []v2alpha1.RawObject{spaced}) {
		t.Error("the same volume is told apart")
	}
	if SameVolumes([]v2alpha1.RawObject{stored}, []v2alpha1.RawObject{other}) {
		t.Error("two volumes are taken for one")
	}
	spec := &v2alpha1.DIJobSpec{}
	template := func(limit string) *v2alpha1.Task {
		return &v2alpha1.Task{Template: rawObject([]byte(`{"spec":{"overhead":{"cpu":"` + limit + `"}}}`))}
	}
	if SameTemplate(spec, template("1e-2000000000"), template("1e-2000000001")) {
		t.Error("two templates are taken for one")
	}
}

func rawObject(content []byte) v2alpha1.RawObject {
	var raw v2alpha1.RawObject
	raw.Raw = content
	return raw
}
