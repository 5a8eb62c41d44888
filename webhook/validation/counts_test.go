// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// jobOf returns a job of two tasks with these counts. The first task is elastic.
func jobOf(t *testing.T, counts [2]int64, elastic string) *v2alpha1.DIJob {
	t.Helper()
	const template = `"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}`
	job, err := decodeHub(fmt.Appendf(nil,
		`{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":{"elastic":%s,`+
			`"tasks":[{"type":"collector","replicas":%d,%s},{"type":"learner","replicas":%d,%s}]}}`, elastic, counts[0], template, counts[1], template))
	expect.NoError(t, err)
	return job
}

func TestAJobOfMorePodsThanOneMayHaveIsRefusedByWhatSaysSo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		counts  [2]int64
		elastic string
		want    []string
	}{
		"as many as may be": {[2]int64{4000, 1000}, `{"maxReplicas":4000}`, nil},
		"one task": {[2]int64{2147483647, 1}, "null", []string{
			"spec.tasks[0].replicas: Invalid value: 2147483647: must be at most 5000, the maximum number of pods of a job here"}},
		"all tasks, whose sum is no int32": {[2]int64{5000, 5000}, "null", []string{
			"spec.tasks: Invalid value: 10000: the replicas of all tasks together must be at most 5000, the maximum number of pods of a job here"}},
		"the bounds of the elastic task": {[2]int64{1, 1000}, `{"minReplicas":4001,"maxReplicas":2147483647}`, []string{
			"spec.elastic.minReplicas: Invalid value: 4001: must be at most 4000, which with the 1000 replicas of the other tasks is the maximum number of pods of a job here",
			"spec.elastic.maxReplicas: Invalid value: 2147483647: must be at most 4000, which with the 1000 replicas of the other tasks is the maximum number of pods of a job here",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := validateV2(&Request{Create: true, Job: jobOf(t, tc.counts, tc.elastic)})
			if !slices.EqualFunc(errs, tc.want, func(err *field.Error, want string) bool { return err.Error() == want }) {
				t.Errorf("got %v, want %v", errs, tc.want)
			}
		})
	}
}

func TestAJobThatHadTooManyPodsBeforeMayBeChangedElsewhere(t *testing.T) {
	t.Parallel()
	old := jobOf(t, [2]int64{9000, 1}, "null")
	changed := old.DeepCopy()
	changed.Spec.Group = "other"
	if errs := validateV2(&Request{Job: changed, Old: old}); len(errs) > 0 {
		t.Errorf("got %v", errs)
	}
	if errs := validateV2(&Request{Job: jobOf(t, [2]int64{9001, 1}, "null"), Old: old}); len(errs) != 1 {
		t.Errorf("got %v, want one error", errs)
	}
	if errs := validateV2(&Request{Create: true, Job: jobOf(t, [2]int64{2, 2}, "null"), Bounds: Bounds{MaxPods: 3}}); len(errs) != 1 {
		t.Errorf("got %v, want one error", errs)
	}
}

func TestAddressesAreAsLongAsTheClustersDomainMakesThem(t *testing.T) {
	t.Parallel()
	job := clusterOf(1234)
	asked := &Request{Create: true, Job: job}
	if errs := validateV2(asked); len(errs) > 0 {
		t.Fatal(errs)
	}
	asked.Domain = "svc" + strings.Repeat("."+strings.Repeat("a", 63), 2)
	if errs := validateV2(asked); len(errs) != 1 || errs[0].Field != "spec.clusterSpec" {
		t.Errorf("got %v, want that TF_CONFIG is too long", errs)
	}
}
