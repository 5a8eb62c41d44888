// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// overview shows all jobs, and each that the user opens, until the user quits.
func (o *options) overview(ctx context.Context) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	namespace := found.Namespace
	if o.all {
		namespace = ""
	}
	in, out, isTerminal := o.terminal()
	switch {
	case o.watch && !isTerminal:
		return cli.Usagef("--watch: name a JOB, or use kubectl di list --watch")
	case o.once || !o.output.IsText() || !isTerminal:
		return o.listOnce(ctx, found, namespace)
	}
	view := newOverview(namespace, o.clock.Now(), everySecond)
	for {
		view.opened = nil
		if err := o.browse(ctx, found, view, in, out); err != nil || view.opened == nil || ctx.Err() != nil {
			return err
		}
		job := view.opened
		err := o.program(ctx, found.In(job.Namespace), newModel(newWorld(job), o.clock.Now(), everySecond), in, out)
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// listOnce prints the jobs once.
func (o *options) listOnce(ctx context.Context, found *cluster.Cluster, namespace string) error {
	jobs, err := found.Jobs(ctx, namespace, "")
	if err != nil {
		return err
	}
	view := newOverview(namespace, o.clock.Now(), nil)
	for i := range jobs {
		view.jobs[jobs[i].UID] = &jobs[i]
	}
	all := view.list()
	switch {
	case o.output.Form == "name":
		for _, job := range all {
			fmt.Fprintf(o.Out, "dijob.%s/%s\n", v2alpha1.GroupName, job.Name)
		}
		return nil
	case !o.output.IsText():
		summaries := make([]Snapshot, 0, len(all))
		for _, job := range all {
			summaries = append(summaries, summarize(newWorld(job)))
		}
		return o.output.Print(o.Out, summaries)
	}
	return (&cli.Lines{Out: o.Out, Column: "PHASE"}).Write(view.rows(all))
}

// browse runs the overview until the user opens a job or quits.
func (o *options) browse(ctx context.Context, found *cluster.Cluster, view *overview, in io.Reader, out io.Writer) error {
	view.seen = map[types.UID]bool{}
	program := tea.NewProgram(view, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	watching, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	var failed error
	working.Go(func() {
		failed = found.Observe(watching, cluster.WatchJobs(view.namespace), func(change cluster.Change) { program.Send(change) })
		if failed != nil {
			program.Quit()
		}
	})
	_, err := program.Run()
	stop()
	working.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The user has ended the command.
	}
	return errors.Join(failed, err)
}

// overview is the state of the list of jobs.
type overview struct {
	namespace string
	jobs      map[types.UID]*v2alpha1.DIJob
	// seen are the jobs that this watch has shown. Those of an earlier one may be gone.
	seen          map[types.UID]bool
	now           time.Time
	width, height int
	order         int
	// at is the place of the job under the cursor, and from that of the first one that is shown.
	at, from int
	// chosen is the job under the cursor, which stays there when others come and go; "" at the top.
	chosen types.UID
	// sorted are the jobs in the order of the view, and isStale is set if they must be sorted again: a list of many jobs
	// comes as a change for each.
	sorted  []*v2alpha1.DIJob
	isStale bool
	broken  error
	// opened is the job that the user opened.
	opened *v2alpha1.DIJob
	next   func() tea.Cmd
}

func newOverview(namespace string, now time.Time, next func() tea.Cmd) *overview {
	return &overview{
		namespace: namespace, jobs: map[types.UID]*v2alpha1.DIJob{}, seen: map[types.UID]bool{}, now: now, width: 80, height: 24, next: next, isStale: true,
	}
}

// jobOrder is a sort order of the jobs.
type jobOrder struct {
	name    string
	compare func(a, b *v2alpha1.DIJob) int
}

// jobOrders are the orders of the jobs. What is equal is sorted by name.
func jobOrders() []jobOrder {
	rank := func(job *v2alpha1.DIJob) int {
		if jobview.IsStuck(job) {
			return -1
		}
		return slices.Index(replicas.Phases(), string(cmp.Or(job.Status.Phase, v2alpha1.JobPending)))
	}
	return []jobOrder{
		{"name", func(_, _ *v2alpha1.DIJob) int { return 0 }},
		{"trouble", func(a, b *v2alpha1.DIJob) int { return cmp.Compare(rank(a), rank(b)) }},
		{"age", func(a, b *v2alpha1.DIJob) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) }},
		{"GPUs", func(a, b *v2alpha1.DIJob) int { return cmp.Compare(jobview.GPUs(b, nil), jobview.GPUs(a, nil)) }},
	}
}

// Init implements tea.Model.
func (m *overview) Init() tea.Cmd { return m.next() }

// Update implements tea.Model.
func (m *overview) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
	case tick:
		m.now = time.Time(message)
		return m, m.next()
	case cluster.Change:
		m.change(message)
	case tea.KeyPressMsg:
		if isDone := m.press(message.String()); isDone {
			return m, tea.Quit
		}
	}
	return m, nil
}

// change takes a change of a job.
func (m *overview) change(change cluster.Change) {
	switch {
	case change.Broken != nil:
		m.broken = change.Broken
	case change.Restored:
		m.broken = nil
	case change.Complete:
		maps.DeleteFunc(m.jobs, func(uid types.UID, _ *v2alpha1.DIJob) bool { return !m.seen[uid] })
		m.isStale = true
	}
	if job, isJob := change.Object.(*v2alpha1.DIJob); isJob {
		m.seen[job.UID] = true
		keep(m.jobs, job.UID, job, change.Gone)
		m.isStale = true
	}
}

// press handles a key, and reports whether the list ends.
func (m *overview) press(key string) bool {
	m.list()
	switch key {
	case "q", "ctrl+c", "esc":
		return true
	case "enter", "right", "l":
		m.opened = m.selected()
		return m.opened != nil
	case "s":
		m.order, m.chosen, m.isStale = (m.order+1)%len(jobOrders()), "", true
		return false
	case "up", "k":
		m.at--
	case "down", "j":
		m.at++
	case "pgup":
		m.at -= m.room()
	case "pgdown", "space":
		m.at += m.room()
	case "home", "g":
		m.at = 0
	case "end", "G":
		m.at = len(m.jobs)
	}
	m.at = max(0, min(m.at, len(m.sorted)-1))
	if m.chosen = ""; m.at > 0 {
		m.chosen = m.sorted[m.at].UID
	}
	return false
}

// selected returns the job under the cursor, nil if there is none.
func (m *overview) selected() *v2alpha1.DIJob {
	if all := m.list(); len(all) > 0 {
		return all[m.at]
	}
	return nil
}

// list returns the jobs in the order of the view. The cursor stays at its job, or at its place if the job is gone.
func (m *overview) list() []*v2alpha1.DIJob {
	if m.isStale {
		compare := jobOrders()[m.order].compare
		m.sorted, m.isStale = slices.SortedFunc(maps.Values(m.jobs), func(a, b *v2alpha1.DIJob) int {
			return cmp.Or(compare(a, b), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		}), false
		if at := slices.IndexFunc(m.sorted, func(job *v2alpha1.DIJob) bool { return job.UID == m.chosen }); at >= 0 {
			m.at = at
		}
	}
	m.at = max(0, min(m.at, len(m.sorted)-1))
	return m.sorted
}

// room returns how many jobs fit between the title, the header and the footer.
func (m *overview) room() int { return max(1, m.height-3) }

// rows returns the columns of jobs below their header.
func (m *overview) rows(jobs []*v2alpha1.DIJob) cli.Table {
	rows := cli.Table{{"NAME", "PHASE", "READY", "GPUS", "REASON", "RESTARTS", "QUEUE", "AGE"}}
	for _, job := range jobs {
		s := jobview.Summarize(job, jobview.Members{})
		name := s.Name
		if m.namespace == "" {
			name = s.Namespace + "/" + s.Name
		}
		rows = append(rows, []string{
			name, string(s.Phase), s.ReadyText(), strconv.FormatInt(s.GPUs, 10), s.Reason, strconv.Itoa(int(s.Restarts)), s.Queue,
			replicas.Age(m.now, s.CreatedAt),
		})
	}
	return rows
}

// View implements tea.Model.
func (m *overview) View() tea.View {
	view := tea.NewView(m.frame())
	view.AltScreen, view.WindowTitle = true, "kubectl di top"
	return view
}

// frame returns as many lines as the terminal has.
func (m *overview) frame() string {
	all := m.list()
	m.from = max(0, min(m.from, m.at, len(all)-m.room()), m.at-m.room()+1)
	where := cmp.Or(m.namespace, "all namespaces")
	title := bold("Jobs of "+where) + gap + strconv.Itoa(len(all))
	if m.broken != nil {
		title += gap + lipgloss.NewStyle().Foreground(lipgloss.Red).Render("no connection, this may be old: "+clean(m.broken.Error()))
	}
	var text strings.Builder
	lines := cli.Lines{Out: &text}
	_ = lines.Write(m.rows(all[m.from:min(len(all), m.from+m.room())])) // A builder returns no error.
	table := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	shown := []string{title, bold(table[0])}
	for i, line := range table[1:] {
		if m.from+i == m.at {
			line = lipgloss.NewStyle().Reverse(true).Render(line)
		} else {
			line = colourRow(line)
		}
		shown = append(shown, line)
	}
	for len(shown) < m.height-1 {
		shown = append(shown, "")
	}
	foot := faint("q quit  ↑↓ choose  enter open  s sort: " + jobOrders()[m.order].name)
	return strings.Join(append(fitted(shown, m.width, m.height-1), ansi.Truncate(foot, m.width, "…")), "\n")
}
