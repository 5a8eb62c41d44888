// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// failedPod returns a worker's pod with a status in YAML.
func failedPod(t *testing.T, status string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-collector-0"}}
	pod.Spec.Containers = []corev1.Container{{Name: "di-container"}}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(status), &pod.Status))
	return pod
}

// terminated is the status of a container that terminated.
func terminated(name, state string) string {
	return `{name: ` + name + `, image: image, imageID: "", state: {terminated: {` + state + `}}}`
}

func TestADisruptionIsClassifiedByReasonAndCondition(t *testing.T) {
	t.Parallel()
	targeted := func(reason string) string {
		return `{phase: Failed, conditions: [{type: DisruptionTarget, status: "True", reason: ` + reason + `}], ` +
			`containerStatuses: [` + terminated("di-container", "exitCode: 137, reason: Error") + `]}`
	}
	for status, want := range map[string]string{
		`{phase: Failed, reason: OutOfcpu}`:                                                         v2alpha1.ReasonRejected,
		`{phase: Failed, reason: OutOfmemory}`:                                                      v2alpha1.ReasonRejected,
		`{phase: Failed, reason: OutOfpods}`:                                                        v2alpha1.ReasonRejected,
		`{phase: Failed, reason: "OutOfnvidia.com/gpu"}`:                                            v2alpha1.ReasonRejected,
		`{phase: Failed, reason: UnexpectedAdmissionError}`:                                         v2alpha1.ReasonRejected,
		`{phase: Failed, reason: NodeAffinity}`:                                                     v2alpha1.ReasonRejected,
		`{phase: Failed, reason: TopologyAffinityError}`:                                            v2alpha1.ReasonRejected,
		`{phase: Failed, reason: Evicted, message: "The node was low on resource: memory."}`:        v2alpha1.ReasonEvicted,
		targeted("EvictionByEvictionAPI"):                                                           v2alpha1.ReasonEvicted,
		targeted("DeletionByTaintManager"):                                                          v2alpha1.ReasonEvicted,
		targeted("PreemptionByScheduler"):                                                           v2alpha1.ReasonPreempted,
		`{phase: Failed, reason: Preempting}`:                                                       v2alpha1.ReasonPreempted,
		targeted("DeletionByPodGC"):                                                                 v2alpha1.ReasonNodeLost,
		`{phase: Failed, reason: Terminated}`:                                                       v2alpha1.ReasonNodeLost,
		`{phase: Failed, reason: NodeShutdown}`:                                                     v2alpha1.ReasonNodeLost,
		`{phase: Failed, reason: DeadlineExceeded}`:                                                 "",
		`{phase: Failed, reason: SysctlForbidden}`:                                                  "",
		`{phase: Unknown}`:                                                                          "",
		`{phase: Failed, containerStatuses: [` + terminated("di-container", "exitCode: 143") + `]}`: "",
	} {
		if got := Disruption(failedPod(t, status)); got != want {
			t.Errorf("%s: disruption %q, want %q", status, got, want)
		}
	}
}

func TestAFailureNamesItsContainerReasonAndMessage(t *testing.T) {
	t.Parallel()
	main := func(state string) string {
		return `{phase: Failed, containerStatuses: [` + terminated("di-container", state) + `]}`
	}
	code := ptr.To[int32]
	for status, want := range map[string]struct {
		reason, message string
		code            *int32
		// class is the reason in metrics, cause the text in Events.
		class, cause string
	}{
		main("exitCode: 143, reason: Error"):                                    {"Error", "", code(143), "Error", " (exit code 143)"},
		main("exitCode: 7"):                                                     {"", "", code(7), "Error", " (exit code 7)"},
		main("exitCode: 137, reason: OOMKilled"):                                {"OOMKilled", "", code(137), "OOMKilled", " (exit code 137, OOMKilled)"},
		main("exitCode: 128, reason: ContainerCannotRun"):                       {"ContainerCannotRun", "", code(128), "ContainerStart", " (exit code 128, ContainerCannotRun)"},
		`{phase: Unknown}`:                                                      {"NodeLost", "its node is unreachable", nil, "NodeLost", " (NodeLost)"},
		`{phase: Failed}`:                                                       {"", "", nil, "Error", ""},
		`{phase: Failed, reason: DeadlineExceeded, message: "too long"}`:        {"DeadlineExceeded", "too long", nil, "DeadlineExceeded", " (DeadlineExceeded)"},
		`{phase: Failed, reason: SysctlForbidden, message: "forbidden sysctl"}`: {"SysctlForbidden", "forbidden sysctl", nil, "Error", " (SysctlForbidden)"},
		`{phase: Failed, reason: OutOfcpu}`:                                     {"OutOfcpu", "", nil, "Rejected", " (OutOfcpu)"},
		main(`exitCode: 1, reason: Error, message: "` + strings.Repeat("x", 2000) + `loss is NaN"`): {"Error", "loss is NaN", code(1), "Error", " (exit code 1)"},
		`{phase: Failed, containerStatuses: [` + terminated("di-container", "exitCode: 0, reason: Completed") + `, ` +
			terminated("log", "exitCode: 5, reason: Error") + `]}`: {"Error", "container log: exit code 5", nil, "Error", " (container log: exit code 5)"},
		`{phase: Failed, initContainerStatuses: [` + terminated("fetch", "exitCode: 3, reason: Error, message: no such dataset") + `]}`: {
			"Error", "init container fetch: exit code 3: no such dataset", nil, "Error", " (init container fetch: exit code 3)",
		},
	} {
		pod := failedPod(t, status)
		got := Failure(pod, metav1.NewTime(time.Unix(0, 0)))
		if got.Pod != pod.Name || got.Reason != want.reason || !strings.HasSuffix(got.Message, want.message) ||
			len(got.Message) > failureLength+len("...") || !ptr.Equal(got.ExitCode, want.code) {
			t.Errorf("%.80s: got %+v, want %+v", status, got, want)
		}
		if class, cause := FailureReason(pod), FailureCause(pod); class != want.class || cause != want.cause {
			t.Errorf("%.80s: class %q and cause %q, want %q and %q", status, class, cause, want.class, want.cause)
		}
	}
}
