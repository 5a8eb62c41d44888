// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// batch is what changed since the last one.
type batch struct {
	changes []cluster.Change
	// lack says what will not be observed; failed ends the view.
	lack   string
	failed error
	// broken says why what is shown may be old.
	broken error
}

// tick says what time it is.
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

// model is the state of the view. It knows the time, the size of the terminal
// and what changes by messages alone.
type model struct {
	world    *world
	snapshot Snapshot
	now      time.Time
	width    int
	height   int
	pane     pane
	order    order
	from     [panes]int
	isHelp   bool
	failed   error
	// broken says why what is shown may be old, which it may be since.
	broken error
	since  time.Time
	next   func() tea.Cmd
}

// newModel returns the model of a job; next returns what brings the next tick.
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
		if m.failed = message.failed; m.failed != nil {
			return m, tea.Quit
		}
		m.take(message)
	case tea.KeyPressMsg:
		return m, m.press(message.String())
	}
	m.hold()
	return m, nil
}

func (m *model) take(message batch) {
	if message.lack != "" {
		m.world.lack(message.lack)
		m.sum()
		return
	}
	if message.broken != nil && m.broken == nil {
		m.since = m.now
	}
	m.broken = message.broken
	for _, change := range message.changes {
		m.world.apply(change)
	}
	m.sum()
}

func (m *model) sum() {
	m.snapshot = summarize(m.world)
	m.order.sort(m.snapshot.Replicas)
}

// press does what a key asks for.
func (m *model) press(key string) tea.Cmd {
	if m.isHelp && key != "ctrl+c" {
		m.isHelp = false
		return nil
	}
	page := max(1, m.rows()-1)
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "?", "h":
		m.isHelp = true
	case "tab", "right", "l":
		m.pane = (m.pane + 1) % panes
	case "shift+tab", "left":
		m.pane = (m.pane + panes - 1) % panes
	case "s":
		m.order = (m.order + 1) % orders
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
	m.hold()
	return nil
}

// hold keeps what is scrolled to within what there is.
func (m *model) hold() {
	m.from[m.pane] = max(0, min(m.from[m.pane], m.table().count-m.rows()))
}

// rows is how many rows of the list fit below the header.
func (m *model) rows() int {
	// Beside the list there are the names of the panes, its header and the foot.
	return max(1, m.height-len(m.head())-3)
}
