// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// noon is the time of these tests.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// podIn returns a collector with a status in YAML, as kubectl prints it.
func podIn(t *testing.T, status string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "job-collector-a", Namespace: "space", UID: "pod-uid", CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
			Labels: map[string]string{names.LabelReplicaType: "collector"},
		},
		Spec: corev1.PodSpec{
			NodeName:       "node-1",
			InitContainers: []corev1.Container{{Name: "fetch", Image: "fetch:1"}},
			Containers:     []corev1.Container{{Name: "di-container", Image: "ding:1"}},
		},
	}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(status), &pod.Status))
	return pod
}

// clocked replaces the names of times in a status by times.
func clocked(status string) string {
	at := func(ago time.Duration) string { return `"` + noon.Add(-ago).Format(time.RFC3339) + `"` }
	return strings.NewReplacer(
		"JUST_NOW", at(time.Second), "A_MINUTE_AGO", at(time.Minute), "THREE_MINUTES_AGO", at(3*time.Minute), "AN_HOUR_AGO", at(time.Hour),
	).Replace(status)
}

func TestAProblemOfAPodNamesItsReason(t *testing.T) {
	always, never, onFailure := corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
	tests := map[string]struct {
		status     string
		policy     corev1.RestartPolicy
		edit       func(*corev1.Pod)
		wantReason string
		wantText   string
		wantWords  string
		// wantChange is after how long time alone changes that.
		wantChange time.Duration
	}{
		"no node has room": {
			status: `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, lastTransitionTime: JUST_NOW, message: "0/5 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 4 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are available: 1 Preemption is not helpful for scheduling, 4 No preemption victims found for incoming pod."}]}`,

			wantReason: v2alpha1.ReasonUnschedulable,
			wantText:   "cannot be scheduled: no node is available: Insufficient nvidia.com/gpu, node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }",
		},
		"a claim is unbound": {
			status:     `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."}]}`,
			wantReason: v2alpha1.ReasonUnschedulable,
			wantText:   "cannot be scheduled: no node is available: pod has unbound immediate PersistentVolumeClaims",
		},
		"a claim does not exist": {
			status:     `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/1 nodes are available: persistentvolumeclaim \"data\" not found. preemption: not eligible due to preemptionPolicy=Never."}]}`,
			wantReason: v2alpha1.ReasonUnschedulable,
			wantText:   "cannot be scheduled: no node is available: persistentvolumeclaim 'data' not found",
		},
		"another scheduler finds no node": {
			status:     `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "1/3 tasks in gang unschedulable: pod group is not ready, 3 minAvailable"}]}`,
			wantReason: v2alpha1.ReasonUnschedulable,
			wantText:   "cannot be scheduled: 1/3 tasks in gang unschedulable: pod group is not ready, 3 minAvailable",
		},
		"a scheduling gate": {
			status: `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated, message: Scheduling is blocked due to non-empty scheduling gates}]}`,
		},
		"no scheduler has looked at it yet": {
			status: `{phase: Pending}`, edit: func(pod *corev1.Pod) { pod.Spec.NodeName = "" },
			wantChange: time.Minute,
		},
		"no scheduler looks at it": {
			status: `{phase: Pending}`,
			edit: func(pod *corev1.Pod) {
				pod.Spec.NodeName, pod.Spec.SchedulerName = "", "volcano"
				pod.CreationTimestamp = metav1.NewTime(noon.Add(-3 * time.Minute))
			},
			wantReason: v2alpha1.ReasonUnschedulable,
			wantText:   `scheduler "volcano" ignores it`,
		},
		"the template of its claim does not exist": {
			status: `{phase: Pending}`,
			edit: func(pod *corev1.Pod) {
				pod.Spec.NodeName, pod.CreationTimestamp = "", metav1.NewTime(noon.Add(-3*time.Minute))
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpus")}}
			},
			wantReason: v2alpha1.ReasonUnschedulable,
			wantText:   `no ResourceClaim was created from ResourceClaimTemplate "gpus": does the template exist?`,
		},
		"volumes that are just being mounted": {
			status:     `{phase: Pending, conditions: [{type: PodScheduled, status: "True", lastTransitionTime: A_MINUTE_AGO}, {type: PodReadyToStartContainers, status: "False"}], containerStatuses: [{name: di-container, state: {waiting: {reason: ContainerCreating}}}]}`,
			wantChange: time.Minute,
		},
		"volumes that are not mounted": {
			status:     `{phase: Pending, conditions: [{type: PodScheduled, status: "True", lastTransitionTime: THREE_MINUTES_AGO}, {type: PodReadyToStartContainers, status: "False"}], containerStatuses: [{name: di-container, state: {waiting: {reason: ContainerCreating}}}]}`,
			wantReason: v2alpha1.ReasonPodSetup,
			wantText:   "node node-1 has not set up its volumes and network; see the events of the pod",
		},
		"an image that takes long": {
			status: `{phase: Pending, conditions: [{type: PodScheduled, status: "True", lastTransitionTime: AN_HOUR_AGO}, {type: PodReadyToStartContainers, status: "True"}], containerStatuses: [{name: di-container, state: {waiting: {reason: ContainerCreating}}}]}`,
		},
		"an image that does not exist": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: ErrImagePull, message: "rpc error: code = NotFound desc = failed to pull and unpack image \"docker.io/library/ding:1\": failed to resolve reference \"docker.io/library/ding:1\": docker.io/library/ding:1: not found"}}}]}`,
			wantReason: v2alpha1.ReasonImagePull,
			wantText:   `image "ding:1" of container di-container cannot be pulled`,
			wantWords:  "failed to pull and unpack image 'docker.io/library/ding:1': failed to resolve reference 'docker.io/library/ding:1': docker.io/library/ding:1: not found",
		},
		"an image whose next pull waits": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image \"ding:1\""}}}]}`,
			wantReason: v2alpha1.ReasonImagePull,
			wantText:   `image "ding:1" of container di-container cannot be pulled`,
		},
		"an image whose next pull waits, with the cause": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image \"ding:1\": ErrImagePull: rpc error: code = NotFound desc = ding:1: not found"}}}]}`,
			wantReason: v2alpha1.ReasonImagePull,
			wantText:   `image "ding:1" of container di-container cannot be pulled`,
			wantWords:  "ding:1: not found",
		},
		"an image of no valid name": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: InvalidImageName, message: "Failed to apply default image tag"}}}]}`,
			wantReason: v2alpha1.ReasonImagePull,
			wantText:   `image "ding:1" of container di-container is not a valid name`,
		},
		"an image that may not be pulled": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: ErrImageNeverPull, message: "Container image \"ding:1\" is not present with pull policy of Never"}}}]}`,
			wantReason: v2alpha1.ReasonImagePull,
			wantText:   `image "ding:1" of container di-container is not on the node and imagePullPolicy is Never`,
		},
		"a Secret that does not exist": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: CreateContainerConfigError, message: "secret \"wandb\" not found"}}}]}`,
			wantReason: v2alpha1.ReasonContainerConfig,
			wantText:   "container di-container cannot be configured: secret 'wandb' not found",
		},
		"an image that would run as root": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: CreateContainerConfigError, message: "container has runAsNonRoot and image will run as root (pod: \"job-collector-a_space(5a4f)\", container: di-container)"}}}]}`,
			wantReason: v2alpha1.ReasonContainerConfig,
			wantText:   "container di-container cannot be configured: container has runAsNonRoot and image will run as root",
		},
		"a container that cannot be made": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: CreateContainerError, message: "context deadline exceeded"}}}]}`,
			wantReason: v2alpha1.ReasonContainerStart,
			wantText:   "container di-container cannot be started", wantWords: "context deadline exceeded",
		},
		"a reason that a later kubelet may give": {
			status:     `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: ContainerFellAsleep}}}]}`,
			wantReason: v2alpha1.ReasonContainerStart,
			wantText:   "container di-container cannot be started", wantWords: "ContainerFellAsleep",
		},
		"a command that does not exist": {
			status:     `{phase: Running, containerStatuses: [{name: di-container, restartCount: 3, state: {waiting: {reason: RunContainerError, message: "failed to start container \"8c1e\": exec: \"dung\": executable file not found in $PATH"}}}]}`,
			wantReason: v2alpha1.ReasonContainerStart,
			wantText:   "container di-container cannot be started", wantWords: "failed to start container '8c1e': exec: 'dung': executable file not found in $PATH",
		},
		"a command that does not exist, between two tries": {
			status:     `{phase: Running, containerStatuses: [{name: di-container, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff, message: "back-off 40s restarting failed container"}}, lastState: {terminated: {exitCode: 128, reason: StartError, message: "exec: \"dung\": executable file not found in $PATH", finishedAt: JUST_NOW}}}]}`,
			wantReason: v2alpha1.ReasonContainerStart,
			wantText:   "container di-container cannot be started", wantWords: "exec: 'dung': executable file not found in $PATH",
		},
		"a container that has crashed once": {
			status: `{phase: Running, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 1, reason: Error, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW}}}]}`, policy: always,
		},
		"a container that runs again after its one crash": {
			status: `{phase: Running, containerStatuses: [{name: di-container, restartCount: 1, state: {running: {startedAt: JUST_NOW}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW}}}]}`, policy: always,
		},
		"a container that has crashed again": {
			status:     `{phase: Running, containerStatuses: [{name: di-container, restartCount: 1, state: {terminated: {exitCode: 1, reason: Error, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW}}}]}`,
			policy:     always,
			wantReason: v2alpha1.ReasonCrashLoop,
			wantText:   "container di-container crashes repeatedly: exit code 1, restarted once",
		},
		"a container that waits after a crash": {
			status: `{phase: Running, containerStatuses: [{name: di-container, restartCount: 7, state: {waiting: {reason: CrashLoopBackOff, message: "back-off 5m0s restarting failed container=di-container pod=job-collector-a_space(5a4f)"}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW, message: "Traceback (most recent call last):\n  File \"main.py\", line 3\nRuntimeError: no \"GPU\"\n"}}}]}`,
			policy: always,

			wantReason: v2alpha1.ReasonCrashLoop,
			wantText:   "container di-container crashes repeatedly: exit code 1, restarted 5+ times", wantWords: "RuntimeError: no 'GPU'",
		},
		"a container that is out of memory and runs again": {
			status:     `{phase: Running, containerStatuses: [{name: di-container, restartCount: 23, state: {running: {startedAt: THREE_MINUTES_AGO}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: AN_HOUR_AGO, finishedAt: AN_HOUR_AGO}}}]}`,
			policy:     always,
			wantReason: v2alpha1.ReasonCrashLoop,
			wantText:   "container di-container crashes repeatedly: OOMKilled, exit code 137, restarted 20+ times",
			wantChange: 7 * time.Minute,
		},
		"a container that has run long since it crashed": {
			status: `{phase: Running, containerStatuses: [{name: di-container, restartCount: 23, state: {running: {startedAt: AN_HOUR_AGO}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: AN_HOUR_AGO, finishedAt: AN_HOUR_AGO}}}]}`, policy: always,
		},
		"a container that had run long before it crashed": {
			status: `{phase: Running, containerStatuses: [{name: di-container, restartCount: 3, state: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: AN_HOUR_AGO, finishedAt: JUST_NOW}}}]}`, policy: always,
		},
		"a container that ends well and is started again": {
			status:     `{phase: Running, containerStatuses: [{name: di-container, restartCount: 2, state: {terminated: {exitCode: 0, reason: Completed, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW}}}]}`,
			policy:     always,
			wantReason: v2alpha1.ReasonCrashLoop,
			wantText:   "container di-container crashes repeatedly: exit code 0, restarted 2+ times",
		},
		"a container that ended well for good": {
			status: `{phase: Running, containerStatuses: [{name: di-container, restartCount: 2, state: {terminated: {exitCode: 0, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW}}}]}`, policy: onFailure,
		},
		"a container that failed for good beside one that runs": {
			status: `{phase: Running, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 1, finishedAt: JUST_NOW}}}, {name: proxy, state: {running: {startedAt: A_MINUTE_AGO}}}]}`, policy: never,
		},
		"a container with a restart policy of its own": {
			status: `{phase: Running, containerStatuses: [{name: di-container, restartCount: 1, state: {terminated: {exitCode: 1, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW}}}]}`,
			policy: never,
			edit: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			},
			wantReason: v2alpha1.ReasonCrashLoop,
			wantText:   "container di-container crashes repeatedly: exit code 1, restarted once",
		},
		"an init container that crashes": {
			status:     `{phase: Pending, initContainerStatuses: [{name: fetch, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 6, reason: Error, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW, message: "curl: (6) Could not resolve host"}}}], containerStatuses: [{name: di-container, state: {waiting: {reason: PodInitializing}}}]}`,
			wantReason: v2alpha1.ReasonCrashLoop,
			wantText:   "init container fetch crashes repeatedly: exit code 6, restarted 2+ times", wantWords: "curl: (6) Could not resolve host",
		},
		"an init container that is done after crashes": {
			status: `{phase: Running, initContainerStatuses: [{name: fetch, restartCount: 2, state: {terminated: {exitCode: 0, reason: Completed, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW}}, lastState: {terminated: {exitCode: 6}}}], containerStatuses: [{name: di-container, state: {running: {startedAt: JUST_NOW}}}]}`, policy: always,
		},
		"an image of an init container": {
			status:     `{phase: Pending, initContainerStatuses: [{name: fetch, state: {waiting: {reason: ImagePullBackOff}}}], containerStatuses: [{name: di-container, state: {waiting: {reason: PodInitializing}}}]}`,
			wantReason: v2alpha1.ReasonImagePull,
			wantText:   `image "fetch:1" of init container fetch cannot be pulled`,
		},
		"two containers, the more serious one comes first": {
			status:     `{phase: Running, containerStatuses: [{name: di-container, state: {waiting: {reason: ImagePullBackOff}}}, {name: proxy, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}}]}`,
			wantReason: v2alpha1.ReasonCrashLoop,
			wantText:   "container proxy crashes repeatedly",
		},
		"a pod that is being deleted": {
			status: `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: ImagePullBackOff}}}]}`,
			edit:   func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }, wantChange: TerminatingGracePeriod,
		},
		"a pod that does not go": {
			status: `{phase: Running}`,
			edit: func(pod *corev1.Pod) {
				pod.DeletionTimestamp = ptr.To(metav1.NewTime(noon.Add(-TerminatingGracePeriod)))
				pod.Spec.NodeName, pod.Finalizers = "n1", []string{"user/keep"}
			},
			wantReason: v2alpha1.ReasonTerminating, wantText: "is terminating and still exists on node n1, blocked by finalizer user/keep",
		},
		"a sidecar of the template that outlives what it serves": {
			status: `{phase: Running, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 0, finishedAt: JUST_NOW}}}, {name: proxy, state: {running: {startedAt: JUST_NOW}}}]}`,
			policy: corev1.RestartPolicyNever,
			edit: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{names.AnnotationContainers: "di-container,proxy"}
				pod.Spec.Containers = []corev1.Container{{Name: "di-container"}, {Name: "proxy"}}
				pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(noon.Add(-SetupGracePeriod))
			},
			wantReason: v2alpha1.ReasonMainContainerExited, wantText: "its main container has exited (exit code 0), but container proxy of its template still runs",
		},
		"a sidecar that may still end": {
			status: `{phase: Running, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 0, finishedAt: JUST_NOW}}}, {name: proxy, state: {running: {startedAt: JUST_NOW}}}]}`,
			policy: corev1.RestartPolicyNever,
			edit: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{names.AnnotationContainers: "di-container,proxy"}
				pod.Spec.Containers = []corev1.Container{{Name: "di-container"}, {Name: "proxy"}}
				pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(noon)
			},
			wantChange: SetupGracePeriod,
		},
		"a pod that has failed": {
			status: `{phase: Failed, containerStatuses: [{name: di-container, restartCount: 4, state: {terminated: {exitCode: 1, finishedAt: JUST_NOW}}}]}`, policy: onFailure,
		},
		"a pod that runs": {
			status: `{phase: Running, conditions: [{type: PodScheduled, status: "True"}, {type: Ready, status: "True"}], containerStatuses: [{name: di-container, state: {running: {startedAt: JUST_NOW}}}]}`, policy: always,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := podIn(t, clocked(tc.status))
			pod.Spec.RestartPolicy = tc.policy
			if tc.edit != nil {
				tc.edit(pod)
			}
			problem, active, changes := ActiveProblem(pod, noon)
			if active != (tc.wantReason != "") {
				t.Fatalf("active is %v with %+v, want reason %q", active, problem, tc.wantReason)
			}
			got := []string{problem.Reason, problem.Message, problem.LastMessage}
			expect.Equal(t, "reason, message and last message", []string{tc.wantReason, tc.wantText, tc.wantWords}, got)
			expect.Equal(t, "changes in", tc.wantChange, changes)
		})
	}
}

func TestACrashLoopHasOneMessageBetweenRestarts(t *testing.T) {
	const end = `{terminated: {exitCode: 1, reason: Error, startedAt: A_MINUTE_AGO, finishedAt: JUST_NOW, message: bye}}`
	seen := map[string]bool{}
	for count, state := range map[int]string{
		10: `state: ` + end,
		11: `state: {waiting: {reason: CrashLoopBackOff}}, lastState: ` + end,
		12: `state: {running: {startedAt: JUST_NOW}}, lastState: ` + end,
		19: `state: {waiting: {reason: ContainerCreating}}, lastState: ` + end,
	} {
		pod := podIn(t, clocked(fmt.Sprintf(`{phase: Running, containerStatuses: [{name: di-container, restartCount: %d, %s}]}`, count, state)))
		problem, active, _ := ActiveProblem(pod, noon)
		seen[problem.Message+": "+problem.LastMessage] = active
	}
	want := map[string]bool{
		"container di-container crashes repeatedly: exit code 1, restarted 10+ times: bye": true,
	}
	expect.Equal(t, "problems", want, seen)
}

// The messages are those of kube-scheduler of the named releases.
func TestWhySchedulersOfSeveralReleasesFindNoNode(t *testing.T) {
	for message, want := range map[string]string{
		// 1.24, before preemption was described.
		"0/2 nodes are available: 2 Insufficient cpu.": "Insufficient cpu",
		// 1.30 to 1.33.
		"0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.":                                               "Insufficient cpu",
		"0/2 nodes are available: 1 node(s) had untolerated taint {a: b}, 1 node(s) were unschedulable. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.": "node(s) had untolerated taint {a: b}, node(s) were unschedulable",
		"0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.":                                                                            "Insufficient cpu",
		// 1.34 to 1.36, with dynamic resource allocation.
		"0/2 nodes are available: 2 Insufficient nvidia.com/mig-1g.5gb. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.": "Insufficient nvidia.com/mig-1g.5gb",
		"0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.":               "cannot allocate all claims",
		"0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to a terminating pod on the nominated node..":                          "Insufficient cpu",
		"0/1 nodes are available: persistentvolumeclaim \"data\" not found. not found":                                                                                                 "persistentvolumeclaim 'data' not found",
	} {
		expect.Equal(t, message, "no node is available: "+want, SchedulerMessage(message))
	}
}

func TestTheNumbersOfNodesDoNotChangeAProblem(t *testing.T) {
	var problems [][]Problem
	for _, message := range []string{
		"0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.",
		"0/90 nodes are available: 1 Insufficient memory, 89 Insufficient cpu. preemption: 0/90 nodes are available: 90 No preemption victims found for incoming pod.",
	} {
		problems = append(problems, Problems(podIn(t, `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "`+message+`"}]}`)))
	}
	if !reflect.DeepEqual(problems[0], problems[1]) {
		t.Errorf("problems are %+v and %+v, want the same", problems[0], problems[1])
	}
}

func TestCountsAreRoundedDownToSteps(t *testing.T) {
	for count, want := range map[int32]string{
		0: "once", 1: "once", 2: "2+ times", 4: "2+ times", 5: "5+ times", 9: "5+ times", 10: "10+ times",
		49: "20+ times", 50: "50+ times", 999: "500+ times", 2147483647: "2000000000+ times",
	} {
		expect.Equal(t, fmt.Sprintf("%d is described as", count), want, times(count))
	}
}

func TestQuotedMessagesAreBounded(t *testing.T) {
	got := LastLine("first\n" + strings.Repeat("é", 1000) + "\tthe  \"cause\"\n\n")
	if len(got) > quotedLength+3 || !strings.HasPrefix(got, "...") || !strings.HasSuffix(got, "é the 'cause'") {
		t.Errorf("last line is %q of %d bytes", got, len(got))
	}
}
