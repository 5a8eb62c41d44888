// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"strings"

	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// CanonicalCleanPodPolicy returns the policy that is written so in any letter
// case, and false if there is none.
func CanonicalCleanPodPolicy(written string) (v2alpha1.CleanPodPolicy, bool) {
	for _, policy := range []v2alpha1.CleanPodPolicy{
		v2alpha1.CleanPodPolicyRunning, v2alpha1.CleanPodPolicyAll, v2alpha1.CleanPodPolicyNone,
	} {
		if strings.EqualFold(written, string(policy)) {
			return policy, true
		}
	}
	return "", false
}

// held returns the members of extended that the type of v2alpha1 can hold.
// Nothing checks extended against the hub's schema, and one mistyped value in
// storage would end the watch of every typed client.
func held[T any](extended []byte) object {
	var kept object
	members, _ := parseObject(extended)
	for _, m := range members {
		if decodes[T](object{m}.bytes()) {
			kept = append(kept, m)
		}
	}
	return kept
}

func decodes[T any](raw []byte) bool {
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, new(T)) == nil
}

// isUnknown says whether the type has no field of the member's name.
func isUnknown[T any](m member) bool {
	strict, err := kjson.UnmarshalStrict(object{{m.key, []byte("null")}}.bytes(), new(T))
	return err == nil && len(strict) > 0
}
