// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// began is the creation time of the tests' jobs.
var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func pong() *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: "pong", UID: "job", CreationTimestamp: metav1.NewTime(began)},
		Spec: v2alpha1.DIJobSpec{Preemptible: true, Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner}, {Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To[int32](2)},
		}},
	}
	job.Status = v2alpha1.DIJobStatus{
		Phase: v2alpha1.JobStarting, Replicas: 4, ReadyReplicas: 2, Restarts: 1, Allocation: []string{"node-a", "node-a", "node-b", "node-b"},
		Conditions: []v2alpha1.DIJobCondition{
			{Type: "Starting", Status: corev1.ConditionTrue, Reason: "JobStarting"},
			{Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: "CrashLoop", Message: "container di-container of pod pong-collector-1 ends soon after each start"},
			{Type: v2alpha1.ConditionAllocated, Status: corev1.ConditionTrue},
		},
	}
	return job
}

func reported(job *v2alpha1.DIJob, report string) *v2alpha1.DIJob {
	job = job.DeepCopy()
	job.Status.Profilings = ptr.To(jobs.Raw(report))
	return job
}

func worker(task v2alpha1.TaskType, index int32, node string, ready bool) *corev1.Pod {
	name := names.WorkerPod("pong", string(task), index)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rl", Name: name, UID: types.UID(name), Labels: names.WorkerLabels("pong", task, string(task), name),
			CreationTimestamp: metav1.NewTime(began.Add(time.Minute)),
			OwnerReferences:   []metav1.OwnerReference{{UID: "job", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if ready {
		pods.Ready(pod)
	}
	return pod
}

func happened(uid, reason, object, message string, after time.Duration) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(reason + object)}, Type: corev1.EventTypeNormal, Reason: reason, Message: message, Count: 3,
		InvolvedObject: corev1.ObjectReference{Name: object, UID: types.UID(uid)}, LastTimestamp: metav1.NewTime(began.Add(after)),
	}
}

// changes returns a batch with all objects of a test's view.
func changes() batch {
	crashes := worker(v2alpha1.TaskTypeCollector, 1, "node-b", false)
	crashes.Status.ContainerStatuses = []corev1.ContainerStatus{{
		RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	}}
	all := []cluster.Change{
		{Object: worker(v2alpha1.TaskTypeCollector, 10, "", false)}, {Object: worker(v2alpha1.TaskTypeCollector, 0, "node-b", true)},
		{Object: crashes}, {Object: worker(v2alpha1.TaskTypeLearner, 0, "node-a", true)},
		{Object: happened("job", "Allocated", "pong", "4 replicas are on 2 nodes", 30*time.Second)},
		{Object: happened("pong-collector-1", "BackOff", "pong-collector-1", "back-off\x1b[2J restarting a failed container, which goes on at some length", 4*time.Minute)},
		{Object: happened("other", "Pulled", "other-learner-0", "of another job", time.Minute)},
	}
	for round := range 30 {
		report := fmt.Sprintf(`{"round":%d,"reward":%d,"loss":{"policy":%g},"done":false}`, round, 20+round*round/8, 1/float64(round+1))
		all = append(all, cluster.Change{Object: reported(pong(), report)})
	}
	return changed(all...)
}

// changed returns a batch of changes, from the watch of pods if that matters.
func changed(all ...cluster.Change) batch {
	var updates batch
	for _, change := range all {
		updates = append(updates, func(w *world) { w.change(1, change) })
	}
	return updates
}

func lacking(why string) batch {
	return batch{func(w *world) { w.stopped(2, errors.New(why)) }}
}

// shown returns a model after messages.
func shown(messages ...tea.Msg) *model {
	m := newModel(newWorld(pong()), began.Add(5*time.Minute), func() tea.Cmd { return nil })
	for _, message := range messages {
		m.Update(message)
	}
	return m
}

func key(text string) tea.Msg {
	codes := map[string]rune{"tab": tea.KeyTab, "down": tea.KeyDown, "end": tea.KeyEnd, "pgup": tea.KeyPgUp}
	if code, is := codes[text]; is {
		return tea.KeyPressMsg{Code: code}
	}
	return tea.KeyPressMsg{Code: []rune(text)[0], Text: text}
}

func size(width, height int) tea.Msg { return tea.WindowSizeMsg{Width: width, Height: height} }

func TestTheViewIsDrawnAs(t *testing.T) {
	t.Parallel()
	for name, messages := range map[string][]tea.Msg{
		"replicas-80":    {size(80, 18), changes()},
		"replicas-40":    {size(40, 14), changes()},
		"replicas-200":   {size(200, 18), changes()},
		"by-restarts":    {size(80, 18), changes(), key("s"), key("s"), key("s")},
		"nodes":          {size(80, 18), changes(), key("tab")},
		"profilings":     {size(80, 18), changes(), key("tab"), key("tab")},
		"events-100":     {size(100, 16), changes(), key("tab"), key("tab"), key("tab")},
		"events-40":      {size(40, 16), changes(), key("tab"), key("tab"), key("tab")},
		"help":           {size(60, 18), lacking("watching events: forbidden\na role allows it"), key("?")},
		"help-left":      {size(80, 10), lacking("watching events: forbidden"), key("?"), key("x")},
		"nothing-yet":    {size(60, 10)},
		"scrolled":       {size(60, 9), changes(), key("down")},
		"a-minute-later": {size(80, 12), changes(), tick(began.Add(6 * time.Minute))},
		"no-connection": {
			size(60, 10), changed(cluster.Change{Broken: errors.New("connection refused")}), tick(began.Add(6 * time.Minute)), changed(cluster.Change{Broken: errors.New("connection refused")}),
		},
		"connected-again": {size(60, 10), changed(cluster.Change{Broken: errors.New("connection refused")}, cluster.Change{Restored: true})},
		"deleted":         {size(60, 10), changed(cluster.Change{Object: pong(), Gone: true})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := shown(messages...)
			frame := ansi.Strip(m.View().Content)
			for text := range strings.Lines(frame) {
				if got := ansi.StringWidth(strings.TrimSuffix(text, "\n")); got > m.width {
					t.Errorf("a line is %d wide, of %d: %s", got, m.width, text)
				}
			}
			if got := strings.Count(frame, "\n") + 1; got > m.height {
				t.Errorf("%d lines are drawn on %d", got, m.height)
			}
			expect.Golden(t, filepath.Join("testdata", name+".txt"), frame+"\n", *update)
		})
	}
}

func TestTheViewFitsAnySize(t *testing.T) {
	t.Parallel()
	m := shown(changes())
	for width := 1; width <= 220; width += 13 {
		for height := 1; height <= 60; height += 7 {
			for range panes {
				m.Update(size(width, height))
				m.Update(key("tab"))
				lines := strings.Split(ansi.Strip(m.View().Content), "\n")
				if len(lines) > max(height, 1) {
					t.Errorf("%d×%d: %d lines", width, height, len(lines))
				}
				for _, text := range lines {
					if ansi.StringWidth(text) > width {
						t.Errorf("%d×%d: %q is too wide", width, height, text)
					}
				}
			}
		}
	}
}

func TestOnlyTheRowsThatAreSeenAreDrawn(t *testing.T) {
	t.Parallel()
	var all []cluster.Change
	for index := range int32(1000) {
		all = append(all, cluster.Change{Object: worker(v2alpha1.TaskTypeCollector, index, "node-a", true)})
	}
	m := shown(size(100, 40), changed(all...), key("end"))
	list := m.table()
	drawn, row := 0, list.row
	list.row = func(at int) []string { drawn++; return row(at) }
	list.lines(m.width, m.from[m.pane], m.rows())
	if drawn == 0 || drawn > m.height {
		t.Errorf("%d of %d rows are drawn on %d lines", drawn, list.count, m.height)
	}
	if frame := ansi.Strip(m.View().Content); !strings.Contains(frame, "collector-999 ") || !strings.Contains(frame, " of 1000  ") {
		t.Errorf("the end is not seen:\n%s", frame)
	}
	m.Update(key("pgup"))
	if frame := ansi.Strip(m.View().Content); strings.Contains(frame, "collector-999 ") {
		t.Errorf("a page up the end is still seen:\n%s", frame)
	}
}

func TestAJobOfTheSameNameIsAnotherOne(t *testing.T) {
	t.Parallel()
	other := pong()
	other.UID, other.Status.Phase = "other", v2alpha1.JobRunning
	m := shown(changed(cluster.Change{Object: other}))
	if m.snapshot.Phase != "Deleted" {
		t.Errorf("the phase is %s", m.snapshot.Phase)
	}
}

func TestAMissingRightEndsTheView(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	m := shown()
	_, command := m.Update(batch{func(w *world) { w.stopped(0, refused) }})
	if command == nil || command() != tea.Quit() || !errors.Is(m.world.failed, refused) {
		t.Errorf("it continues with %v", m.world.failed)
	}
}

// stillWatches sends the pods of a test's job once.
type stillWatches struct{ pods []*corev1.Pod }

// Observe implements watches.
func (s *stillWatches) Observe(ctx context.Context, watched cluster.Watched, handle cluster.Handle) error {
	if _, isPods := watched.Object.(*corev1.Pod); isPods {
		for _, pod := range s.pods {
			handle(cluster.Change{Object: pod})
		}
	}
	handle(cluster.Change{Complete: true})
	<-ctx.Done()
	return nil
}

// screen is a terminal whose output can be awaited.
type screen struct {
	mutex   sync.Mutex
	drawn   bytes.Buffer
	changed chan struct{}
}

// Write implements io.Writer.
func (s *screen) Write(text []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return s.drawn.Write(text)
}

func (s *screen) has(text string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return strings.Contains(s.drawn.String(), text)
}

// TestTheViewRunsUntilItIsQuit runs the view with a fake terminal.
func TestTheViewRunsUntilItIsQuit(t *testing.T) {
	t.Parallel()
	in, keys := io.Pipe()
	out := &screen{changed: make(chan struct{}, 1)}
	o := &options{clock: clock.RealClock{}}
	from := &stillWatches{pods: []*corev1.Pod{worker(v2alpha1.TaskTypeCollector, 10, "", false)}}
	ended := make(chan error, 1)
	go func() {
		view := newModel(newWorld(pong()), began, func() tea.Cmd { return nil })
		ended <- o.program(t.Context(), from, view, in, out, tea.WithWindowSize(80, 24), tea.WithEnvironment([]string{"TERM=xterm-256color"}))
	}()
	for !out.has("collector-10") {
		<-out.changed
	}
	if _, err := keys.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
