// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// View implements tea.Model.
func (m *model) View() tea.View {
	view := tea.NewView(m.frame())
	view.AltScreen = true
	view.WindowTitle = "kubectl di top " + m.snapshot.Name
	return view
}

// frame returns as many lines as the terminal has.
func (m *model) frame() string {
	if m.isHelp {
		return strings.Join(fitted(m.help(), m.width, m.height), "\n")
	}
	lines := m.head()
	// The list keeps at least one line if the header is too high.
	lines = lines[:min(len(lines), max(1, m.height-4))]
	header, body := m.table().lines(m.width, m.from[m.pane], m.rows())
	lines = append(lines, m.tabs(), bold(header))
	for _, row := range body {
		lines = append(lines, colourRow(row))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(fitted(lines, m.width, m.height-1), ansi.Truncate(m.foot(), m.width, "…")), "\n")
}

func fitted(lines []string, width, height int) []string {
	fitting := make([]string, 0, height)
	for _, text := range lines[:min(len(lines), max(0, height))] {
		fitting = append(fitting, ansi.Truncate(text, width, "…"))
	}
	return fitting
}

func bold(text string) string { return lipgloss.NewStyle().Bold(true).Render(text) }

func faint(text string) string { return lipgloss.NewStyle().Faint(true).Render(text) }

// head returns the header of every pane.
func (m *model) head() []string {
	s := &m.snapshot
	lines := []string{m.title()}
	if broken := m.world.whyBroken(); broken != nil {
		text := clean(fmt.Sprintf("! No connection for %s, this may be old: %v", replicas.Age(m.now, m.brokenSince), broken))
		lines = append(lines, lipgloss.NewStyle().Foreground(lipgloss.Red).Render(ansi.Truncate(text, m.width, "…")))
	}
	for _, condition := range s.Conditions[:min(len(s.Conditions), 3)] {
		text := clean(fmt.Sprintf("! %s %s: %s", condition.Type, condition.Reason, condition.Message))
		lines = append(lines, lipgloss.NewStyle().Foreground(lipgloss.Yellow).Render(ansi.Truncate(text, m.width, "…")))
	}
	lines = append(lines, "tasks  "+counts(s.Tasks), "nodes  "+counts(s.Nodes))
	if s.Preemptible {
		lines = append(lines, "placed "+placed(s.placement))
	}
	for _, text := range s.Scaling {
		lines = append(lines, "scaled "+ansi.Truncate(clean(text), m.width-7, "…"))
	}
	return append(lines, m.curves(2)...)
}

func (m *model) title() string {
	s := &m.snapshot
	facts := []string{
		bold(s.Name), strings.TrimSpace(colourPhase(s.Phase).Render(string(s.Phase)) + " " + clean(s.Reason)),
	}
	if s.readyText != "" {
		facts = append(facts, "ready "+s.readyText)
	}
	facts = append(facts, "age "+replicas.Age(s.end(m.now), s.CreatedAt), fmt.Sprintf("restarts %d", s.Restarts))
	if s.Reschedules > 0 {
		facts = append(facts, fmt.Sprintf("reschedules %d", s.Reschedules))
	}
	facts = append(facts, string(s.Lifecycle))
	if s.Preemptible {
		facts = append(facts, "preemptible")
	}
	return strings.Join(append(facts, faint("ns "+s.Namespace)), gap)
}

func counts(all []Count) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, fmt.Sprintf("%s %d/%s", cmp.Or(one.Name, "(no node)"), one.Ready, one.wanted()))
	}
	return cmp.Or(strings.Join(texts, " · "), "-")
}

// placed returns the number of ranks on each node.
func placed(nodes []jobview.OnNode) string {
	var texts []string
	for _, one := range nodes {
		texts = append(texts, fmt.Sprintf("%s ×%d", one.Node, one.Count))
	}
	return cmp.Or(strings.Join(texts, " · "), "nowhere yet")
}

// curves returns sparklines of the first numbers that the job reports.
func (m *model) curves(most int) []string {
	var lines []string
	names := m.world.numbers()
	for _, name := range names[:min(len(names), most)] {
		series := m.world.series[name]
		start := fmt.Sprintf("%s %s ", clean(name), number(last(series)))
		room := max(0, m.width-ansi.StringWidth(start))
		lines = append(lines, start+lipgloss.NewStyle().Foreground(lipgloss.Cyan).Render(sparkline(series, room)))
	}
	return lines
}

func (m *model) tabs() string {
	var tabs strings.Builder
	for p := range panes {
		if p == m.pane {
			tabs.WriteString(lipgloss.NewStyle().Reverse(true).Render("[" + p.String() + "]"))
		} else {
			tabs.WriteString(" " + p.String() + " ")
		}
	}
	return tabs.String()
}

func (m *model) foot() string {
	count := m.table().count
	text := "q quit  tab pane  ↑↓ scroll  ? help"
	if m.pane == paneReplicas {
		text = "q quit  tab pane  ↑↓ scroll  s sort: " + orders()[m.order].name + "  ? help"
	}
	if count > m.rows() {
		text = fmt.Sprintf("%d-%d of %d  ", m.from[m.pane]+1, min(count, m.from[m.pane]+m.rows()), count) + text
	}
	if len(m.snapshot.Lacks) > 0 {
		text = "not shown: see ?  " + text
	}
	return faint(text)
}

func (m *model) help() []string {
	lines := []string{
		bold("kubectl di top"), "",
		"q, esc, ctrl+c    quit",
		"tab, shift+tab    next pane, pane before",
		"up, down, k, j    scroll by a line",
		"pgup, pgdown      scroll by a page",
		"home, end, g, G   to the first, to the last",
		"s                 sort replicas by task, node, status, restarts, age",
		"?                 this help; any key leaves it", "",
		"ready N/M: N of M desired replicas are ready.",
		"Curves: what the job reported since this view began, newest right.",
	}
	for _, lack := range m.snapshot.Lacks {
		lines = append(lines, "", "Not shown:")
		for text := range strings.Lines(lack) {
			lines = append(lines, clean(strings.TrimSuffix(text, "\n")))
		}
	}
	return lines
}

// table returns the list of the pane.
func (m *model) table() *table {
	s := &m.snapshot
	switch m.pane {
	case paneNodes:
		return &table{[]string{"NODE", "READY", "REPLICAS", "ALLOCATED"}, []int{0, 1, 2, 3}, false, len(s.Nodes), func(at int) []string {
			node := s.Nodes[at]
			given := 0
			if at := slices.IndexFunc(s.placement, func(one jobview.OnNode) bool { return one.Node == node.Name }); at >= 0 {
				given = s.placement[at].Count
			}
			return []string{cmp.Or(node.Name, "(no node)"), strconv.Itoa(node.Ready), node.wanted(), strconv.Itoa(given)}
		}}
	case paneProfilings:
		names := m.world.numbers()
		return &table{[]string{"NUMBER", "LAST", "LEAST", "MOST", "CURVE"}, []int{0, 1, 4, 3, 2}, true, len(names), func(at int) []string {
			series := m.world.series[names[at]]
			return []string{
				names[at], number(last(series)), number(slices.Min(series)), number(slices.Max(series)), sparkline(series, max(8, m.width/2)),
			}
		}}
	case paneEvents:
		return &table{[]string{"AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"}, []int{0, 3, 1, 2, 0}, true, len(s.Events), func(at int) []string {
			event := &s.Events[at]
			age := replicas.Age(m.now, event.At)
			if event.Count > 1 {
				age += fmt.Sprintf(" (x%d)", event.Count)
			}
			return []string{age, event.Type, event.Reason, event.Object, event.Message}
		}}
	case paneReplicas, panes:
	}
	header, ranks := []string{"REPLICA", "TASK", "READY", "STATUS", "RESTARTS", "AGE", "NODE"}, []int{0, 5, 4, 1, 2, 3, 6}
	return &table{header, ranks, false, len(s.Replicas), func(at int) []string {
		r := &s.Replicas[at]
		ready := map[bool]string{true: "yes", false: "no"}[r.Ready]
		return []string{r.Name, r.Task, ready, r.Status, strconv.Itoa(int(r.Restarts)), replicas.Age(m.now, r.CreatedAt), r.Node}
	}}
}

func colourPhase(phase v2alpha1.Phase) lipgloss.Style {
	style := lipgloss.NewStyle().Bold(true)
	switch phase {
	case v2alpha1.JobRunning, v2alpha1.JobSucceeded:
		return style.Foreground(lipgloss.Green)
	case v2alpha1.JobFailed:
		return style.Foreground(lipgloss.Red)
	case v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRestarting, v2alpha1.JobRescheduling, v2alpha1.JobUnknown:
	}
	return style.Foreground(lipgloss.Yellow)
}

// colourRow highlights a row with a problem.
func colourRow(row string) string {
	for _, word := range []string{"BackOff", "Failed", "Error", "OOMKilled", "Warning", "Evicted", "Exit "} {
		if strings.Contains(row, word) {
			return lipgloss.NewStyle().Foreground(lipgloss.Red).Render(row)
		}
	}
	return row
}

// sparkline draws the latest numbers, one per cell.
func sparkline(series []float64, width int) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	series = series[max(0, len(series)-width):]
	if len(series) == 0 {
		return ""
	}
	least, most := slices.Min(series), slices.Max(series)
	drawn := make([]rune, 0, len(series))
	for _, value := range series {
		at := 0
		if most > least {
			// Halve both values, because their difference may overflow.
			at = int((value/2 - least/2) / (most/2 - least/2) * float64(len(bars)-1))
		}
		drawn = append(drawn, bars[at])
	}
	return string(drawn)
}

// number formats a number briefly.
func number(value float64) string { return strconv.FormatFloat(value, 'g', 6, 64) }
