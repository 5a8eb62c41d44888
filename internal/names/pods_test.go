// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func jobOf(name string, lifecycle v2alpha1.Lifecycle, tasks ...string) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v2alpha1.DIJobSpec{Lifecycle: lifecycle}}
	for _, task := range tasks {
		job.Spec.Tasks = append(job.Spec.Tasks, v2alpha1.Task{Name: task})
	}
	return job
}

func TestPodsOfAJobAreTold(t *testing.T) {
	led := jobOf("a", v2alpha1.LifecycleCoordinatorLed, "ignored")
	for name, tc := range map[string]struct {
		job  *v2alpha1.DIJob
		role map[string]string
	}{
		"worker-led": {jobOf("a", v2alpha1.LifecycleWorkerLed, "learner", "my-task"), map[string]string{
			WorkerPod("a", "learner", 0): "learner", WorkerPod("a", "my-task", 2_147_483_647): "my-task", "a-learner-00": "", "a-learner-01": "", "a-learner-": "",
			"a-learner": "", "a-evaluator-0": "", "a-b-learner-0": "", "ba-learner-0": "", "a-learner-0-x": "", "a-learner-0\n": "", "a-learner-b-0": "",
		}},
		"coordinator-led": {led, map[string]string{
			CoordinatorPod("a"): "coordinator", ReplicaPod("a", ReplicaTypeDDPLearner, Suffix("x")): "ddp-learner", ReplicaPod("a", ReplicaTypeLearner, "x2z4b"): "learner",
			ReplicaPod("a-b", ReplicaTypeLearner, "x2z4b"): "", CoordinatorPod("a-b"): "", "a-learner-0": "", "a-coordinator-x2z4b": "", "a-ignored-x2z4b": "",
			"a-aggregator-x2z4b": "aggregator", "a-collector-x2z4": "", "a-collector-x2z4bc": "", "a-collector": "",
		}},
		"a name with a dot": {jobOf("a.b", v2alpha1.LifecycleWorkerLed, "learner"), map[string]string{"a.b-learner-0": "learner", "axb-learner-0": "", "a-b-learner-0": ""}},
		"hostile names": {jobOf(`a"}|.*`, v2alpha1.LifecycleWorkerLed, "x|.*", "(y"), map[string]string{
			`a"}|.*-x|.*-0`: "x|.*", `a"}|.*-(y-1`: "(y", "a-x-0": "", "b": "", `a"}`: "",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			expression := regexp.MustCompile(PodsOf(tc.job))
			for pod, role := range tc.role {
				expect.Equal(t, pod, role, expression.ReplaceAllString(expression.FindString(pod), "$1$2"))
			}
		})
	}
}

func FuzzPodsOfAJobAreThoseOfItsTask(f *testing.F) {
	f.Add("a", "learner", "a-b-learner-0")
	f.Add("a", "b-learner", "a-b-learner-0")
	f.Add(`a"}|.*`, `(`, "a-0")
	f.Fuzz(func(t *testing.T, job, task, pod string) {
		if task == "" || !utf8.ValidString(job) || !utf8.ValidString(task) {
			return // Kubernetes stores no such names.
		}
		rest, begins := strings.CutPrefix(pod, job+"-"+task+"-")
		index, err := strconv.ParseUint(rest, 10, 63)
		want := begins && err == nil && index <= 9_999_999_999 && strconv.FormatUint(index, 10) == rest
		if got := regexp.MustCompile(PodsOf(jobOf(job, v2alpha1.LifecycleWorkerLed, task))).MatchString(pod); got != want {
			t.Errorf("pod %q is of job %q with task %q: got %t, want %t", pod, job, task, got, want)
		}
	})
}
