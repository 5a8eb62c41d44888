// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// listed returns an overview of three jobs: a runs, b is stuck, c has failed.
func listed(t *testing.T) *overview {
	t.Helper()
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := newOverview("rl", begin.Add(time.Hour), func() tea.Cmd { return nil })
	for i, phase := range []v2alpha1.Phase{v2alpha1.JobRunning, v2alpha1.JobStarting, v2alpha1.JobFailed} {
		name := string(rune('a' + i))
		job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{
			Namespace: "rl", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(begin.Add(time.Duration(i) * time.Minute)),
		}}
		job.Status.Phase = phase
		if name == "b" {
			job.Status.Summary = &v2alpha1.StatusSummary{Reason: "ImagePull"}
			job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: "ImagePull"}}
		}
		m.Update(cluster.Change{Object: job})
	}
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 7})
	return m
}

// press presses keys, and reports whether the list has ended.
func press(m *overview, keys ...string) bool {
	isDone := false
	for _, key := range keys {
		code := []rune(key)[0]
		if key == "enter" {
			code = tea.KeyEnter
		}
		message := tea.KeyPressMsg{Code: code, Text: key}
		if key == "enter" {
			message.Text = ""
		}
		_, command := m.Update(message)
		isDone = command != nil
	}
	return isDone
}

// firsts returns the first word of each line between the header and the footer.
func firsts(m *overview) string {
	var words []string
	lines := strings.Split(ansi.Strip(m.frame()), "\n")
	for _, line := range lines[2 : len(lines)-1] {
		if fields := strings.Fields(line); len(fields) > 0 {
			words = append(words, fields[0])
		}
	}
	return strings.Join(words, " ")
}

func TestTheJobsOfANamespaceAreListedAndOneIsOpened(t *testing.T) {
	t.Parallel()
	m := listed(t)
	lines := strings.Split(ansi.Strip(m.frame()), "\n")
	expect.Equal(t, "lines", 7, len(lines))
	for i, want := range []string{"Jobs of rl 3", "NAME PHASE READY GPUS REASON RESTARTS QUEUE AGE", "a Running 0/0 0 0 60m", "b Starting 0/0 0 ImagePull 0 59m", "c Failed 0 0 58m"} {
		expect.Equal(t, "line", want, strings.Join(strings.Fields(lines[i]), " "))
	}
	if press(m, "j") || !press(m, "enter") || m.opened == nil || m.opened.Name != "b" {
		t.Errorf("opened is %v", m.opened)
	}
	m.opened = nil
	// The cursor follows its job when another appears before it.
	m.Update(cluster.Change{Object: &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: "a0", UID: "a0"}}})
	if !press(m, "enter") || m.opened.Name != "b" {
		t.Errorf("opened is %v", m.opened)
	}
	if m.opened = nil; !press(m, "q") || m.opened != nil {
		t.Error("q does not quit")
	}
}

func TestTheJobsAreSortedAndScrolled(t *testing.T) {
	t.Parallel()
	m := listed(t)
	for _, want := range []string{"b a c", "c b a", "a b c", "a b c"} {
		press(m, "s")
		expect.Equal(t, "jobs", want, firsts(m))
	}
	// What was deleted while a job was open is gone.
	m.jobs["old"] = &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	m.Update(cluster.Change{Complete: true})
	expect.Equal(t, "jobs", "a b c", firsts(m))
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 5})
	expect.Equal(t, "jobs", "a b", firsts(m))
	press(m, "j", "j", "j", "j")
	expect.Equal(t, "jobs", "b c", firsts(m))
	m.Update(cluster.Change{Object: m.selected(), Gone: true})
	expect.Equal(t, "jobs", "a b", firsts(m))
	for range 2 {
		m.Update(cluster.Change{Object: m.selected(), Gone: true})
	}
	if press(m, "enter") || firsts(m) != "" {
		t.Error("there is no job to open")
	}
}
