// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
)

func TestANameThatIsStillToBeGeneratedIsCheckedWithWhatIsAppended(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 70)
	for name, tc := range map[string]struct{ name, generateName, full, at string }{
		"given":                              {name: "j", full: "j", at: "metadata.name"},
		"still to be generated":              {generateName: "j-", full: "j-xxxxx", at: "metadata.generateName"},
		"generated":                          {name: "j-vrqk5", generateName: "j-", full: "j-xxxxx", at: "metadata.generateName"},
		"given, and not from generateName":   {name: "k", generateName: "j-", full: "k", at: "metadata.name"},
		"given, and longer than a generated": {name: "j-vrqk55", generateName: "j-", full: "j-vrqk55", at: "metadata.name"},
		"cut, as the API server does":        {generateName: long, full: long[:58] + "xxxxx", at: "metadata.generateName"},
		"neither":                            {at: "metadata.name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := nameOf(&v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: tc.name, GenerateName: tc.generateName}})
			if got.full != tc.full || got.at.String() != tc.at {
				t.Errorf("%q at %s, want %q at %s", got.full, got.at, tc.full, tc.at)
			}
		})
	}
}

// No rule must prevent tasks with different names from having equal derived names: an index
// contains no hyphen, and task names contain no underscore.
func TestWhatIsMadeFromDifferentTaskNamesDiffers(t *testing.T) {
	t.Parallel()
	made := map[string]string{}
	take := func(what, by string) {
		if other, taken := made[what]; taken {
			t.Errorf("%s is made from %s and from %s", what, other, by)
		}
		made[what] = by
	}
	for _, task := range []string{"a", "a-1", "a-1-1", "a1", "1", "1-1", "a-b", "a--b", "ab", "a-nodes", "job", "rank"} {
		take(names.TaskNodesVariable(task), task)
		for index := range int32(120) {
			take(names.WorkerPod("j", task, index), fmt.Sprintf("%s, %d", task, index))
		}
	}
	for _, variable := range []string{names.EnvDINodes, names.EnvDIRank, names.EnvDIJobID, names.EnvDIServerURL} {
		take(variable, "the operator")
	}
}

func TestAddressesAreCountedToTheByte(t *testing.T) {
	t.Parallel()
	for _, count := range []int64{0, 1, 9, 10, 11, 99, 100, 101, 2345} {
		want := int64(0)
		for number := range count {
			want += int64(len(strconv.FormatInt(number, 10)))
		}
		if got := digitsBelow(count); got != want {
			t.Errorf("the numbers below %d have %d digits, want %d", count, got, want)
		}
	}
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n"}}
	job.Spec.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner}}
	size := func(count int32) int {
		nodes := make([]string, count)
		for i := range nodes {
			nodes[i] = names.WorkerFQDN(names.WorkerPod("j", "learner", int32(i)), "j", "n", names.DefaultDomain)
		}
		return len(names.EnvDINodes + "=" + strings.Join(nodes, ",") + "\x00")
	}
	for count := int32(3000); count < 4000; count++ {
		job.Spec.Tasks[0].Replicas = &count
		warned := len(warnAddresses(job, hubPaths{}, "")) > 0
		if tooMuch := size(count) > workload.MaxVariable; warned != tooMuch {
			t.Fatalf("%d replicas need %d bytes; warned about: %v", count, size(count), warned)
		}
	}
}
