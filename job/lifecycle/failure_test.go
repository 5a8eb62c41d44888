// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// runningJob returns a world whose training job runs with a failure policy.
func runningJob(t *testing.T, limit int32, rules ...v2alpha1.FailurePolicyRule) *world {
	t.Helper()
	spec := trainingJob()
	spec.BackoffLimit = ptr.To(limit)
	if rules != nil {
		spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: rules}
	}
	w := allRunning(t, spec)
	return w
}

func onCodes(operator v2alpha1.ExitCodesOperator, codes ...int32) *v2alpha1.ExitCodesRequirement {
	return &v2alpha1.ExitCodesRequirement{Operator: operator, Values: codes}
}

func TestTheFirstRuleThatMatchesSaysWhatAFailureLeadsTo(t *testing.T) {
	const (
		failJob, restartJob    = v2alpha1.FailurePolicyFailJob, v2alpha1.FailurePolicyRestartJob
		restartReplica, ignore = v2alpha1.FailurePolicyRestartReplica, v2alpha1.FailurePolicyIgnore
	)
	rules := []v2alpha1.FailurePolicyRule{
		{Action: ignore, Tasks: []string{"collector"}, OnExitCodes: onCodes(v2alpha1.ExitCodesIn, 42)},
		{Action: failJob, OnExitCodes: onCodes(v2alpha1.ExitCodesIn, 2, 3)},
		{Action: restartReplica, Tasks: []string{"collector", "evaluator"}, OnExitCodes: onCodes(v2alpha1.ExitCodesNotIn, 9)},
	}
	tests := map[string]struct {
		pod  string
		code int32
		want v2alpha1.FailurePolicyAction
	}{
		"task and code match":               {"job-collector-0", 42, ignore},
		"the code matches another task":     {"job-evaluator-0", 42, restartReplica},
		"the code is one of several":        {"job-learner-0", 3, failJob},
		"an earlier rule goes before":       {"job-collector-0", 2, failJob},
		"the code is not one of those":      {"job-collector-1", 1, restartReplica},
		"the code is one that is left out":  {"job-collector-1", 9, restartJob},
		"no rule is for the task":           {"job-learner-0", 1, restartJob},
		"no rule is for the task, code 137": {"job-learner-0", 137, restartJob},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := runningJob(t, 3, rules...)
			w.end(tc.pod, tc.code)
			status, action := Decide(w.observe()).Status, ignore
			switch {
			case status.Phase == v2alpha1.JobFailed:
				action = failJob
				const want = "which fails the job by rule 1 of its failurePolicy"
				if got := conditionMessage(&status, string(v2alpha1.JobFailed)); !strings.Contains(got, want) {
					t.Errorf("the condition says %q, want %q", got, want)
				}
			case status.Restarts == 1:
				action = restartJob
			case status.ReplicaRestarts[tc.pod] == 1:
				action = restartReplica
			}
			expect.Equal(t, "result", tc.want, action)
		})
	}
}

func TestAFailureThatFailsTheJobDoesSoAtOnce(t *testing.T) {
	w := runningJob(t, 3, v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyFailJob, OnExitCodes: onCodes(v2alpha1.ExitCodesIn, 2)})
	w.end("job-collector-0", 1)
	w.end("job-collector-1", 2)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	if w.job.Status.Restarts != 0 || w.job.Status.LastFailure.Pod != "job-collector-1" {
		t.Errorf("restarts are %d and the last failure is %+v", w.job.Status.Restarts, w.job.Status.LastFailure)
	}
	const want = "pod job-collector-1 has failed (exit code 2), which fails the job by rule 0 of its failurePolicy"
	expect.Equal(t, "the condition", want, conditions.Find(&w.job.Status, string(v2alpha1.JobFailed)).Message)
}

func TestAReplicaIsRestartedAloneAsOftenAsTheLimitAllows(t *testing.T) {
	w := runningJob(t, 2, v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyRestartReplica})
	others := map[string]string{}
	for name, pod := range w.pods {
		others[name] = string(pod.UID)
	}
	for round := range 2 {
		w.end("job-collector-1", 1)
		w.settle()
		w.expectPhase(v2alpha1.JobRunning)
		pod := w.pod("job-collector-1")
		if pod.Annotations[names.AnnotationRank] != "2" || w.environmentOf(pod)[names.EnvDIJobID] != "space.job.0" {
			t.Errorf("round %d: the replica came back as %v", round, pod.Annotations)
		}
		w.run("job-collector-1")
		w.settle()
	}
	for name, uid := range others {
		if name != "job-collector-1" && string(w.pod(name).UID) != uid {
			t.Errorf("pod %s was restarted, too", name)
		}
	}
	if diff := cmp.Diff(map[string]int32{"job-collector-1": 2}, w.job.Status.ReplicaRestarts); diff != "" || w.job.Status.Restarts != 0 {
		t.Errorf("restarts of the job are %d, of replicas (-want +got):\n%s", w.job.Status.Restarts, diff)
	}
	w.end("job-collector-0", 1)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	w.run("job-collector-0")
	w.end("job-collector-1", 1)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
}

func TestAStatusFromABackupLearnsOfReplicasRestartsFromThePods(t *testing.T) {
	w := runningJob(t, 2, v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyRestartReplica})
	backup := *w.job.Status.DeepCopy()
	w.end("job-learner-0", 1)
	w.settle()
	w.run("job-learner-0")
	w.settle()
	w.job.Status = backup
	w.settle()
	if got := w.job.Status.ReplicaRestarts["job-learner-0"]; got != 1 || w.created["job-learner-0"] != 2 {
		t.Errorf("restarts of the learner are %d and it was created %d times", got, w.created["job-learner-0"])
	}
}

func TestARestartOfTheJobForgetsTheRestartsOfReplicas(t *testing.T) {
	w := runningJob(t, 3,
		v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyRestartReplica, Tasks: []string{"collector"}})
	w.end("job-collector-0", 1)
	w.settle()
	w.run("job-collector-0")
	w.settle()
	w.end("job-learner-0", 1)
	w.settle()
	if w.job.Status.Restarts != 1 || len(w.job.Status.ReplicaRestarts) != 0 {
		t.Errorf("restarts are %d, of replicas %v", w.job.Status.Restarts, w.job.Status.ReplicaRestarts)
	}
	for name, pod := range w.pods {
		if _, annotated := pod.Annotations[names.AnnotationReplicaRestart]; annotated {
			t.Errorf("pod %s of the new attempt remembers a restart of its own", name)
		}
	}
}

func TestAnIgnoredFailureIsNotCountedAndTheReplicaIsMadeAgainInAWhile(t *testing.T) {
	w := runningJob(t, 0, v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyIgnore})
	w.end("job-collector-0", 1)
	ended := w.now
	for w.step() {
	}
	expect.MustEqual(t, "the pod was created times at once", 1, w.created["job-collector-0"])
	decision := Decide(w.observe())
	if decision.RequeueAfter <= 0 || decision.RequeueAfter > 5*time.Second {
		t.Errorf("is looked at again after %s", decision.RequeueAfter)
	}
	w.now = ended.Add(5*time.Second + time.Second)
	w.settle()
	if got := w.created["job-collector-0"]; got != 2 || w.job.Status.Restarts != 0 || w.job.Status.LastFailure != nil {
		t.Errorf("the pod was created %d times, restarts are %d, the last failure is %+v", got, w.job.Status.Restarts, w.job.Status.LastFailure)
	}
	w.expectPhase(v2alpha1.JobRunning)
}

func TestAnOutOfMemoryKillIsToldApart(t *testing.T) {
	w := runningJob(t, 3)
	w.end("job-learner-0", 137)
	w.pod("job-learner-0").Status.ContainerStatuses[0].State.Terminated.Reason = v2alpha1.ReasonOOMKilled
	w.settle()
	expect.Equal(t, "the reason of the last failure", v2alpha1.ReasonOOMKilled, w.job.Status.LastFailure.Reason)
	if !slices.Contains(w.events, v2alpha1.ReasonOOMKilled) {
		t.Errorf("events are %v", w.events)
	}
	message := w.lastEvents[v2alpha1.ReasonJobRestarting]
	if !strings.Contains(message, "(exit code 137, OOMKilled)") {
		t.Errorf("the event says %q", message)
	}
}

func TestTheNamedTasksDecideOnSuccess(t *testing.T) {
	spec := trainingJob()
	spec.SuccessPolicy = &v2alpha1.SuccessPolicy{TargetTasks: []string{"learner", "evaluator"}}
	w := allRunning(t, spec)
	w.end("job-learner-0", 0)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	w.end("job-evaluator-0", 0)
	// A failure after the job has finished changes nothing.
	w.end("job-collector-0", 1)
	w.settle()
	w.expectPhase(v2alpha1.JobSucceeded)
	w.expectPods("job-collector-0", "job-evaluator-0", "job-learner-0")
}

func TestALostNodeIsAFailureThatRulesAboutExitCodesDoNotMatch(t *testing.T) {
	w := runningJob(t, 3,
		v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyFailJob, OnExitCodes: onCodes(v2alpha1.ExitCodesNotIn, 1)},
		v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyRestartReplica})
	w.pod("job-collector-0").Status.Phase = corev1.PodUnknown
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	expect.Equal(t, "the pod was created times", 2, w.created["job-collector-0"])
}

func TestWhatRunsForLongIsRestartedAtOnce(t *testing.T) {
	w := runningJob(t, -1)
	for restarts := range 12 {
		w.now = w.now.Add(6 * time.Minute)
		w.end("job-learner-0", 1)
		w.settle()
		if got := w.job.Status.Restarts; got != int32(restarts)+1 || len(w.pods) != 4 {
			t.Fatalf("restarts are %d after %d failures, pods %v", got, restarts+1, w.podNames())
		}
		w.run(w.podNames()...)
		w.settle()
	}
}

func TestARestartThatWaitsIsSuspendedAndEnded(t *testing.T) {
	waiting := func() *world {
		w := runningJob(t, -1)
		w.job.Status.Restarts = 8
		for _, pod := range w.pods {
			pod.Annotations[names.AnnotationAttempt] = "8"
		}
		w.end("job-learner-0", 1)
		w.settle()
		w.expectPhase(v2alpha1.JobRestarting)
		w.expectPods("job-learner-0")
		return w
	}
	w := waiting()
	w.job.Spec.Suspend = ptr.To(true)
	w.settle()
	w.expectPods()
	w.expectPhase(v2alpha1.JobPending)

	w = waiting()
	w.job.Spec.ActiveDeadlineSeconds = ptr.To[int64](1)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	w.expectPods("job-learner-0")
}

func TestAClockThatIsSetBackHoldsUpNothingThatWasInterrupted(t *testing.T) {
	w := runningJob(t, 0)
	for range 2 {
		w.evict("job-learner-0")
		w.now = w.now.Add(-time.Hour)
		w.settle()
		if phase := w.pod("job-learner-0").Status.Phase; phase == corev1.PodFailed {
			t.Fatal("the pod waits until the clock has caught up")
		}
	}
}

func TestWhatBefellPodsIsNotPastWhileTheJobRestarts(t *testing.T) {
	w := runningJob(t, -1)
	w.evict("job-learner-0")
	w.settle()
	w.job.Status.Restarts = 8
	for _, pod := range w.pods {
		pod.Annotations[names.AnnotationAttempt] = "8"
	}
	w.now = w.now.Add(disruptions.LongestBackoff)
	w.end("job-learner-0", 1)
	w.pod("job-learner-0").CreationTimestamp = metav1.NewTime(w.now)
	w.settle()
	w.expectPhase(v2alpha1.JobRestarting)
	w.expectPods("job-learner-0")
	if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasDisrupted) {
		t.Errorf("the trouble is over though nothing is ready: %+v", w.job.Status.Conditions)
	}
}

func TestTheFirstContainerIsTheMainOneWhereNoneIsNamedSo(t *testing.T) {
	ended := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}}
	}
	w := runningJob(t, 3, v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyFailJob, OnExitCodes: onCodes(v2alpha1.ExitCodesIn, 42)})
	pod := w.pod("job-learner-0")
	pod.Spec.Containers = []corev1.Container{{Name: "train"}, {Name: "log"}}
	pod.Status.Phase = corev1.PodFailed
	// The kubelet sorts them by name.
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended("log", 1), ended("train", 42)}
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	if got := w.job.Status.LastFailure; got == nil || got.ExitCode == nil || *got.ExitCode != 42 {
		t.Errorf("the last failure is %+v", got)
	}
}

func TestAReplicaThatItsProbeKilledHasFailedAlthoughItExitedWithZero(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.job.Spec.BackoffLimit = ptr.To(int32(0))
		w.end(pod, 0)
		w.pod(pod).Spec.RestartPolicy = corev1.RestartPolicyNever
		const kill = "the kubelet killed container di-container: Liveness probe failed: no"
		observed := w.observe()
		observed.ProbeKills = map[types.UID]string{w.pod(pod).UID: kill}
		status := Decide(observed).Status
		expect.Equal(t, "phase", v2alpha1.JobFailed, status.Phase)
		expect.Equal(t, "reason and message", []string{v2alpha1.ReasonProbeFailed, kill}, []string{status.LastFailure.Reason, status.LastFailure.Message})
		expect.Equal(t, "exit code", ptr.To(int32(0)), status.LastFailure.ExitCode)
		observed.ProbeKills = nil
		expect.Equal(t, "phase without a kill", v2alpha1.JobSucceeded, Decide(observed).Status.Phase)
	})
}
