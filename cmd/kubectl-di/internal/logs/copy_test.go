// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// entry is a line of a container's log in the runtime.
type entry struct {
	at   time.Time
	text string
}

// since returns the API's response for a log from a second on.
func since(log []entry, at position) string {
	var sent strings.Builder
	second, resumed := at.second()
	for _, one := range log {
		if !resumed || !one.at.Before(second) {
			sent.WriteString(one.at.Format(time.RFC3339Nano) + " " + one.text + "\n")
		}
	}
	return sent.String()
}

// TestABrokenLogIsTakenUpWhereItBroke breaks streams of random logs at random bytes. Some lines
// have equal times, and some are out of order.
func TestABrokenLogIsTakenUpWhereItBroke(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		log := randomLog(random)
		var at position
		var printed strings.Builder
		print := func(one line) error { printed.Write(one.text); printed.WriteByte('\n'); return nil }
		for range random.IntN(6) {
			sent := since(log, at)
			broken := io.MultiReader(strings.NewReader(sent[:random.IntN(len(sent)+1)]), failing{})
			if err := newCopying(broken, &at, false, print).run(); err == nil {
				t.Fatal("a broken stream ended as a whole one")
			}
		}
		expect.NoError(t, newCopying(strings.NewReader(since(log, at)), &at, true, print).run())
		var want strings.Builder
		for _, one := range log {
			want.WriteString(one.text + "\n")
		}
		if diff := cmp.Diff(want.String(), printed.String()); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, diff)
		}
	}
}

func randomLog(random *rand.Rand) []entry {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var log []entry
	for i := range 1 + random.IntN(30) {
		at = at.Add(time.Duration(random.IntN(4)) * 300 * time.Millisecond)
		log = append(log, entry{at.Add(-time.Duration(random.IntN(2)) * 10 * time.Millisecond), fmt.Sprintf("line %d", i)})
		if random.IntN(8) == 0 {
			log[i].text = ""
		}
	}
	// Lines within a second may be out of order, but a line is never from an earlier second than a
	// printed one.
	for i := 1; i < len(log); i++ {
		if log[i].at.Truncate(time.Second).Before(log[i-1].at.Truncate(time.Second)) {
			log[i].at = log[i-1].at
		}
	}
	return log
}

type failing struct{}

// Read implements io.Reader.
func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestALineThatIsTooLongIsPrintedInPieces(t *testing.T) {
	t.Parallel()
	const stamp = "2026-01-02T03:04:05.123456789Z "
	long := strings.Repeat("0123456789", longest/4)
	sent := stamp + long + "\n" + stamp + "short\n"
	var at position
	var printed []string
	print := func(one line) error {
		if len(one.text) > longest {
			t.Errorf("%d bytes are printed at once", len(one.text))
		}
		printed = append(printed, string(one.text))
		return nil
	}
	// The stream breaks in the third piece, so that nothing of it is printed.
	if err := newCopying(io.MultiReader(strings.NewReader(sent[:len(long)-100]), failing{}), &at, false, print).run(); err == nil {
		t.Error("a broken stream ended as a whole one")
	}
	if len(printed) != 2 {
		t.Errorf("%d pieces were printed, want 2", len(printed))
	}
	expect.NoError(t, newCopying(strings.NewReader(sent), &at, true, print).run())
	if got := strings.Join(printed, ""); got != long+"short" {
		t.Errorf("%d bytes came of %d", len(got), len(long)+5)
	}
}

func TestALastLineWithoutEndIsPrintedWhenTheContainerHasEnded(t *testing.T) {
	t.Parallel()
	for isOver, want := range map[bool]string{true: "whole|kubelet says|rest", false: "whole|kubelet says"} {
		var printed []string
		sent := "2026-01-02T03:04:05Z whole\nkubelet says\n2026-01-02T03:04:06Z rest"
		err := newCopying(strings.NewReader(sent), &position{}, isOver, func(one line) error {
			printed = append(printed, string(one.text))
			return nil
		}).run()
		if got := strings.Join(printed, "|"); got != want || err != nil {
			t.Errorf("over %t: got %s, %v, want %s", isOver, got, err, want)
		}
	}
}

func TestReplicasHaveColoursOfTheirOwn(t *testing.T) {
	t.Parallel()
	printed := func(profile colorprofile.Profile, names ...string) []string {
		var out bytes.Buffer
		p := newPrinter(&out, true, false, profile)
		p.introduce("learner-0")
		for _, name := range names {
			expect.NoError(t, p.print(line{replica: name, text: []byte("text")}))
		}
		return slices.Collect(strings.Lines(out.String()))
	}
	for _, plain := range []colorprofile.Profile{colorprofile.NoTTY, colorprofile.ASCII} {
		if got := printed(plain, "learner-0"); got[0] != "[learner-0] text\n" {
			t.Errorf("without colours it is %q", got)
		}
	}
	for _, coloured := range []colorprofile.Profile{colorprofile.ANSI, colorprofile.ANSI256, colorprofile.TrueColor} {
		got := printed(coloured, "collector-0", "learner-0", "collector-1", "collector-0")
		alone := printed(coloured, "learner-0")
		if got[1] != alone[0] || got[0] != got[3] {
			t.Errorf("%s: the colour of a replica changes: %q", coloured, got)
		}
		used := map[int]bool{}
		for place, colour := range palette(coloured) {
			if used[colour] {
				t.Errorf("%s: colour %d at place %d is there twice", coloured, colour, place)
			}
			used[colour] = true
		}
	}
}

func TestWhatAPodTellsOfAContainer(t *testing.T) {
	t.Parallel()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(id string, code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id, ExitCode: code}}
	}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		phase  corev1.PodPhase
		status *corev1.ContainerStatus
		want   state
	}{
		"no node yet":  {want: state{waiting: "waiting for a node"}},
		"it was never": {phase: corev1.PodFailed, want: state{isOver: true, waiting: "waiting for a node"}},
		"no image": {
			status: &corev1.ContainerStatus{State: waiting("ImagePullBackOff", "no such image")},
			want:   state{waiting: "ImagePullBackOff: no such image"},
		},
		"it runs":           {status: &corev1.ContainerStatus{State: running, ContainerID: "a"}, want: state{instance: "a", isRunning: true}},
		"it runs again":     {status: &corev1.ContainerStatus{State: running, ContainerID: "b", RestartCount: 1, LastTerminationState: ended("a", 1)}, want: state{instance: "b", previous: "a", isRunning: true, restarts: 1}},
		"it waits to start": {status: &corev1.ContainerStatus{State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended("a", 1)}, want: state{instance: "a", waiting: "CrashLoopBackOff"}},
		"it ended for good": {policy: corev1.RestartPolicyNever, status: &corev1.ContainerStatus{State: ended("a", 1)}, want: state{instance: "a", isOver: true}},
		"it ended well":     {policy: corev1.RestartPolicyOnFailure, status: &corev1.ContainerStatus{State: ended("a", 0)}, want: state{instance: "a", isOver: true}},
		"it failed":         {policy: corev1.RestartPolicyOnFailure, status: &corev1.ContainerStatus{State: ended("a", 1)}, want: state{instance: "a"}},
		"its pod ended":     {policy: corev1.RestartPolicyAlways, phase: corev1.PodSucceeded, status: &corev1.ContainerStatus{State: ended("a", 0)}, want: state{instance: "a", isOver: true}},
		"it has no id":      {status: &corev1.ContainerStatus{State: running, RestartCount: 2, LastTerminationState: ended("", 1)}, want: state{instance: "#2", previous: "#1", isRunning: true, restarts: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: tc.policy, Containers: []corev1.Container{{Name: "c"}}}}
			pod.Status.Phase = tc.phase
			if tc.status != nil {
				tc.status.Name = "c"
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{*tc.status}
			}
			if diff := cmp.Diff(tc.want, stateOf(pod, "c"), cmp.AllowUnexported(state{})); diff != "" {
				t.Errorf("the state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnInitContainerIsStartedAgainByItsOwnPolicy(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		InitContainers: []corev1.Container{
			{Name: "first"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		},
	}}
	if isStartedAgain(pod, "first", 1) || !isStartedAgain(pod, "sidecar", 0) {
		t.Error("a sidecar alone is started again where the pod's policy is Never")
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if isStartedAgain(pod, "first", 0) || !isStartedAgain(pod, "first", 1) {
		t.Error("an init container is started again where it failed")
	}
}

// hanging is a source whose log never ends and has no lines.
type hanging struct{ pod *corev1.Pod }

// Logs implements source.
func (h *hanging) Logs(ctx context.Context, _ string, _ *corev1.PodLogOptions) (io.ReadCloser, error) {
	from, to := io.Pipe()
	context.AfterFunc(ctx, func() { to.CloseWithError(context.Cause(ctx)) })
	return from, nil
}

// Get implements source.
func (h *hanging) Get(_ context.Context, _, _ string, object client.Object) error {
	object.SetUID(h.pod.UID)
	return nil
}

func TestALogThatHangsIsLeftAWhileAfterItsPodIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pong-learner-0", UID: "1"}}
		running := state{instance: "run://1", isRunning: true}
		one := &follower{
			source: &hanging{pod}, clock: clock.RealClock{}, print: func(line) error { return nil }, notice: func(string, ...any) {},
			slots: make(chan struct{}, 1), pod: pod, container: "di-container", replica: "learner-0", now: running,
			changed: make(chan struct{}, 1), gone: make(chan struct{}),
		}
		begun, ended := time.Now(), make(chan error, 1)
		go func() { ended <- one.run(t.Context()) }()
		<-time.After(time.Hour) // by the bubble's clock
		select {
		case err := <-ended:
			t.Fatalf("it is left though its pod is there: %v", err)
		default:
		}
		running.isGone = true
		one.update(running)
		if err := <-ended; err != nil || time.Since(begun) != time.Hour+rest {
			t.Errorf("%v, after %s", err, time.Since(begun))
		}
	})
}

// TestLogsOfAFinishedJobAreLeftWhosePodsStay follows a job with a pod that never ends, independent
// of the job's state.
func TestLogsOfAFinishedJobAreLeftWhosePodsStay(t *testing.T) {
	t.Parallel()
	for policy, takes := range map[v2alpha1.CleanPodPolicy]time.Duration{
		v2alpha1.CleanPodPolicyNone: retention,
		// The operator deletes the pod in this case; the test does so after an hour.
		v2alpha1.CleanPodPolicyRunning: time.Hour,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: "pong", UID: "1"}}
				job.Spec.CleanPodPolicy, job.Status.Phase = policy, v2alpha1.JobSucceeded
				var out, report bytes.Buffer
				r := &run{clock: clock.RealClock{}, job: job, printer: newPrinter(&out, true, false, 0), notices: &notices{report: func(text string) { fmt.Fprintln(&report, "kubectl-di:", text) }, printed: map[string]bool{}}}
				f := &following{run: r, events: make(chan event), slots: make(chan struct{}, 1), live: 1, hasPods: true}
				begun := time.Now()
				var working sync.WaitGroup
				working.Go(func() {
					f.send(t.Context(), event{job: true, change: cluster.Change{Object: job}})
					<-time.After(time.Hour) // by the bubble's clock
					ctx, stop := context.WithTimeout(t.Context(), time.Second)
					defer stop()
					f.send(ctx, event{ended: &follower{}})
				})
				if err := f.loop(t.Context(), &working); err != nil || time.Since(begun) != takes {
					t.Errorf("%v, after %s", err, time.Since(begun))
				}
				isPrinted := strings.Contains(report.String(), "job rl/pong has finished, and its spec.cleanPodPolicy None keeps pods: 1 container is no longer followed\n")
				if isPrinted != (policy == v2alpha1.CleanPodPolicyNone) {
					t.Errorf("printed %s", &report)
				}
				working.Wait()
			})
		})
	}
}
