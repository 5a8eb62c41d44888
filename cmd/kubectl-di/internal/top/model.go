// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
)

// tick is the current time.
type tick time.Time

// pane is one of the lists below the header.
type pane int

const (
	paneReplicas pane = iota
	paneNodes
	paneProfilings
	paneEvents
	panes
)

// String implements fmt.Stringer.
func (p pane) String() string {
	return [...]string{"Replicas", "Nodes", "Profilings", "Events"}[p]
}

// order is a sort order of the replicas.
type order struct {
	name    string
	compare func(a, b Replica) int
}

func orders() []order {
	return []order{
		{"task", func(Replica, Replica) int { return 0 }}, // Replicas are sorted by task.
		{"node", func(a, b Replica) int { return cmp.Compare(a.Node, b.Node) }},
		{"status", func(a, b Replica) int { return cmp.Compare(a.Status, b.Status) }},
		{"restarts", func(a, b Replica) int { return cmp.Compare(b.Restarts, a.Restarts) }},
		{"age", func(a, b Replica) int { return a.CreatedAt.Compare(b.CreatedAt) }},
	}
}

// model is the state of the view. It receives the time, the terminal's size and changes only as
// messages.
type model struct {
	world         *world
	snapshot      Snapshot
	now           time.Time
	width, height int
	pane          pane
	order         int
	from          [panes]int
	isHelp        bool
	// brokenSince is when the connection broke, if it is broken.
	brokenSince time.Time
	next        func() tea.Cmd
}

// newModel returns the model of a job; next returns the command for the next tick.
func newModel(w *world, now time.Time, next func() tea.Cmd) *model {
	m := &model{world: w, now: now, width: 80, height: 24, next: next}
	m.sum()
	return m
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.next() }

// Update implements tea.Model.
func (m *model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
	case tick:
		m.now = time.Time(message)
		return m, m.next()
	case batch:
		wasBroken := m.world.whyBroken() != nil
		m.world.apply(message)
		if m.world.failed != nil {
			return m, tea.Quit
		}
		if !wasBroken {
			m.brokenSince = m.now
		}
		m.sum()
	case tea.KeyPressMsg:
		if isQuit := m.press(message.String()); isQuit {
			return m, tea.Quit
		}
	}
	// The scroll position stays within the rows.
	m.from[m.pane] = max(0, min(m.from[m.pane], m.table().count-m.rows()))
	return m, nil
}

func (m *model) sum() {
	m.snapshot = summarize(m.world)
	slices.SortStableFunc(m.snapshot.Replicas, orders()[m.order].compare)
}

// press handles a key, and reports whether it quits.
func (m *model) press(key string) bool {
	if m.isHelp && key != "ctrl+c" {
		m.isHelp = false
		return false
	}
	page := max(1, m.rows()-1)
	switch key {
	case "q", "ctrl+c", "esc":
		return true
	case "?", "h":
		m.isHelp = true
	case "tab", "right", "l":
		m.pane = (m.pane + 1) % panes
	case "shift+tab", "left":
		m.pane = (m.pane + panes - 1) % panes
	case "s":
		m.order = (m.order + 1) % len(orders())
		m.sum()
	case "up", "k":
		m.from[m.pane]--
	case "down", "j":
		m.from[m.pane]++
	case "pgup":
		m.from[m.pane] -= page
	case "pgdown", "space":
		m.from[m.pane] += page
	case "home", "g":
		m.from[m.pane] = 0
	case "end", "G":
		m.from[m.pane] = m.table().count
	}
	return false
}

// rows returns how many rows of the list fit below the header.
func (m *model) rows() int {
	// The names of the panes, the list's header and the footer take a line each.
	return max(1, m.height-len(m.head())-3)
}
