// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var update = flag.Bool("update", false, "write the tables of docs/lifecycle.md and the sources of its diagrams anew")

// transition is a change of a job's phase, with the step of a decision that causes it.
type transition struct {
	from, to v2alpha1.Phase
	rule     string
}

// change is a row of the table of transitions: from any of some phases to another one, by one step
// of a decision.
type change struct {
	from []v2alpha1.Phase
	to   v2alpha1.Phase
	rule string
	// label describes it in the diagram, when in the table.
	label, when string
}

const (
	none         v2alpha1.Phase = ""
	pending                     = v2alpha1.JobPending
	starting                    = v2alpha1.JobStarting
	running                     = v2alpha1.JobRunning
	restarting                  = v2alpha1.JobRestarting
	rescheduling                = v2alpha1.JobRescheduling
)

// chart is the state machine of a lifecycle.
type chart struct {
	title string
	// live are the phases of an unfinished job.
	live    []v2alpha1.Phase
	changes []change
}

func but(live []v2alpha1.Phase, without ...v2alpha1.Phase) []v2alpha1.Phase {
	return slices.DeleteFunc(slices.Clone(live), func(phase v2alpha1.Phase) bool { return slices.Contains(without, phase) })
}

func workerChart() chart {
	live := []v2alpha1.Phase{none, pending, starting, running, restarting, rescheduling}
	return chart{title: "Worker-led", live: live, changes: []change{
		{[]v2alpha1.Phase{none, starting, running}, pending, summaryName, "no pods", "the job has no pods: it is new, or all of them are gone at once"},
		{[]v2alpha1.Phase{restarting, rescheduling}, pending, summaryName, "no place", "a preemptible job waits for the allocator to place it"},
		{but(live, starting, running), starting, summaryName, "pods created", "all pods are created, and not all are ready"},
		{but(live, running), running, summaryName, "all ready", "every replica is ready or has succeeded"},
		{but(live, restarting), restarting, "failures are counted", "a replica failed", "a replica has failed, its failure restarts the job, and `backoffLimit` allows it"},
		{
			but(live, restarting, rescheduling), restarting, "stale pods are deleted",
			"leftovers", "stale pods of an earlier attempt exist, created from an outdated cache",
		},
		{
			but(live, rescheduling), rescheduling, "another placement or size restarts all replicas",
			"placed anew", "the allocation changed, and not only by a resize that `elastic.onResize: Continue` allows; or the size did and `elastic.onResize` is `Restart`, or the job is one of Torch or queues by Kueue; or such a job was evicted, resumed, or lost all its pods; or a replica [was out of memory](memory.md) and gets more",
		},
		{but(live, pending), pending, "a deleted job that is held has no pods", "deleted", "the job is being deleted, and a finalizer holds it"},
		{but(live, pending), pending, "a suspended job has no pods", "suspended", "`spec.suspend` is true"},
		{
			but(live, pending), pending, "stale pods are deleted",
			"leftovers, suspended", "`spec.suspend` is true, and stale pods of an earlier attempt exist",
		},
		{live, v2alpha1.JobSucceeded, "all deciding ranks have succeeded", "all succeeded", "every replica has succeeded, or each of the tasks that `successPolicy` names"},
		{live, v2alpha1.JobFailed, "failures are counted", "failed too often", "a replica has failed, and `backoffLimit` or the failure policy ends the job with it"},
		{live, v2alpha1.JobFailed, "the active deadline passes", "deadline", "the job was active for `activeDeadlineSeconds`"},
	}}
}

func coordinatorChart() chart {
	live := []v2alpha1.Phase{none, pending, starting, running}
	const end = "the job finishes with its coordinator"
	return chart{title: "Coordinator-led", live: live, changes: []change{
		{[]v2alpha1.Phase{none}, pending, summaryName, "no coordinator", "the coordinator is not created yet"},
		{but(live, starting), starting, summaryName, "coordinator created", "a coordinator exists and does not run, or it is lost and recreated"},
		{but(live, running), running, summaryName, "coordinator runs", "the coordinator runs"},
		{but(live, pending), pending, "a deleted job that is held has no pods", "deleted", "the job is being deleted, and a finalizer holds it"},
		{but(live, pending), pending, "a suspended job has no pods", "suspended", "`spec.suspend` is true"},
		{live, v2alpha1.JobSucceeded, end, "coordinator succeeded", "the coordinator has succeeded"},
		{live, v2alpha1.JobFailed, end, "coordinator failed", "the coordinator has failed"},
		{live, v2alpha1.JobFailed, "the active deadline passes", "deadline", "the job was active for `activeDeadlineSeconds`"},
	}}
}

func chartOf(job *v2alpha1.DIJob) chart {
	if state.IsCoordinatorLed(job) {
		return coordinatorChart()
	}
	return workerChart()
}

// allows reports whether a transition is in the table.
func (c *chart) allows(found transition) bool {
	return slices.ContainsFunc(c.changes, func(row change) bool {
		return row.to == found.to && row.rule == found.rule && slices.Contains(row.from, found.from)
	})
}

// checkTransition checks that decisions change the phase only as in the table.
func (w *world) checkTransition(observed *Observed, decision *Decision, cause string) {
	w.t.Helper()
	found := transition{from: observed.Job.Status.Phase, to: decision.Status.Phase, rule: cause}
	if found.from == found.to || decision.DeleteJob || decision.IsAdoption() {
		return
	}
	if c := chartOf(observed.Job); !c.allows(found) {
		w.t.Fatalf("phase goes from %q to %q as %q, which is not in the table of transitions", found.from, found.to, found.rule)
	}
	w.history.seen[found] = true
}

// TestEveryTransitionOfAWorkerLedJobHappens causes each row of the table from each of its phases.
func TestEveryTransitionOfAWorkerLedJobHappens(t *testing.T) {
	t.Parallel()
	showAll(t, workerChart(), newWorkerAt, causeInWorkers)
}

func TestEveryTransitionOfACoordinatorLedJobHappens(t *testing.T) {
	t.Parallel()
	showAll(t, coordinatorChart(), newLedAt, causeInLed)
}

// showAll brings a job to each phase and causes the event of each row there.
func showAll(t *testing.T, c chart, at func(*testing.T, v2alpha1.Phase) *world, cause func(*world, change)) {
	t.Helper()
	for _, row := range c.changes {
		for _, from := range row.from {
			t.Run(fmt.Sprintf("from %s to %s as %s", orNone(from), row.to, row.rule), func(t *testing.T) {
				t.Parallel()
				w := at(t, from)
				w.expectPhase(from)
				cause(w, row)
				w.step()
				if want := (transition{from: from, to: row.to, rule: row.rule}); !w.history.seen[want] {
					t.Errorf("%v is not seen, the phase is %s; seen are %v", want, w.job.Status.Phase, w.history.seen)
				}
			})
		}
	}
}

func orNone(phase v2alpha1.Phase) string {
	if phase == none {
		return "none"
	}
	return string(phase)
}

// newWorkerAt returns a world with a worker-led job in a phase, and with its pods.
func newWorkerAt(t *testing.T, phase v2alpha1.Phase) *world {
	t.Helper()
	spec := trainingJob()
	spec.Preemptible = true
	w := newWorld(t, spec)
	w.job.Status.Allocation = []string{"a", "a", "a", "a"}
	w.step()
	switch phase {
	case none:
		// As after a restore from a backup, only the spec of the job is known.
		w.job.Status = v2alpha1.DIJobStatus{Allocation: w.job.Status.Allocation}
	case starting:
		w.step()
	case running:
		w.run(w.podNames()...)
		w.step()
	case restarting:
		w.end("job-learner-0", 1)
		w.step()
		w.history.failedIn[0] = true
		w.step()
		w.reap()
		w.step()
	case rescheduling:
		w.job.Status.Allocation = []string{"b", "b", "b", "b"}
		w.step()
		w.reap()
		w.step()
	default:
		// The job is pending already.
	}
	return w
}

// causeInWorkers causes the event of a row of the table.
func causeInWorkers(w *world, row change) {
	switch row.label {
	case "no pods":
		clear(w.pods)
	case "no place":
		// The status records no placement either, so that its loss is not new.
		w.job.Status.Allocation, w.job.Status.Scaling.LastAllocation = nil, ""
		clear(w.pods)
	case "pods created":
	case "all ready":
		w.run(w.podNames()...)
	case "a replica failed":
		w.end("job-collector-0", 1)
	case "leftovers":
		w.job.Status.Restarts++
	case "placed anew":
		for _, pod := range w.pods {
			pod.Spec.NodeName = "a"
		}
		w.job.Status.Allocation = []string{"c", "c", "c", "c"}
	case "deleted":
		w.job.Finalizers, w.job.DeletionTimestamp = []string{"example.com/archive"}, &metav1.Time{Time: w.now}
	case "suspended":
		w.job.Spec.Suspend = ptr.To(true)
	case "leftovers, suspended":
		w.job.Spec.Suspend = ptr.To(true)
		w.job.Status.Restarts++
	case "all succeeded":
		for _, name := range w.podNames() {
			w.end(name, 0)
		}
	case "failed too often":
		w.job.Spec.BackoffLimit = ptr.To(int32(0))
		w.end("job-collector-0", 1)
	case "deadline":
		w.job.Spec.ActiveDeadlineSeconds = ptr.To(int64(60))
		w.now = w.now.Add(time.Minute)
	}
}

// newLedAt returns a world with a coordinator-led job in a phase, and with its coordinator.
func newLedAt(t *testing.T, phase v2alpha1.Phase) *world {
	t.Helper()
	w := newWorld(t, ledJob())
	w.step()
	switch phase {
	case none:
		// As after a restore from a backup, only the spec of the job is known.
		w.job.Status = v2alpha1.DIJobStatus{}
	case pending:
	case starting:
		w.step()
	default:
		w.run(coordinator)
		w.step()
	}
	return w
}

func causeInLed(w *world, row change) {
	switch row.label {
	case "no coordinator":
		clear(w.pods)
	case "coordinator created":
		w.pod(coordinator).Status.Phase = "Pending"
	case "coordinator runs":
		w.run(coordinator)
	case "deleted":
		w.job.Finalizers, w.job.DeletionTimestamp = []string{"example.com/archive"}, &metav1.Time{Time: w.now}
	case "suspended":
		w.job.Spec.Suspend = ptr.To(true)
	case "coordinator succeeded":
		w.end(coordinator, 0)
	case "coordinator failed":
		w.end(coordinator, 1)
	case "deadline":
		w.job.Spec.ActiveDeadlineSeconds = ptr.To(int64(60))
		w.now = w.now.Add(time.Minute)
	}
}

// TestTheRulesOfTheTableAreThoseOfTheCode fails for rows whose rule is renamed or removed.
func TestTheRulesOfTheTableAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		chart chart
		rules []state.Rule
	}{{workerChart(), rulesOf(v2alpha1.LifecycleWorkerLed)}, {coordinatorChart(), rulesOf(v2alpha1.LifecycleCoordinatorLed)}} {
		for _, row := range tc.chart.changes {
			isRule := slices.ContainsFunc(tc.rules, func(rule state.Rule) bool { return rule.Name == row.rule })
			if !isRule && row.rule != summaryName {
				t.Errorf("%s: there is no rule %q", tc.chart.title, row.rule)
			}
		}
	}
}

// rulesOf returns the rules of all stages of a lifecycle.
func rulesOf(lifecycle v2alpha1.Lifecycle) []state.Rule {
	var rules []state.Rule
	newReconcile(Observed{Job: &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{Lifecycle: lifecycle}}}).job.Decide(func(stage []state.Rule) state.Result {
		rules = append(rules, stage...)
		return state.Continue
	})
	return rules
}

// TestTheDocumentedStateMachinesAreThoseOfTheTable compares docs/lifecycle.md and the sources of
// its diagrams with the table; -update rewrites them.
func TestTheDocumentedStateMachinesAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "docs")
	page := readText(t, filepath.Join(docs, "lifecycle.md"))
	for _, c := range []chart{workerChart(), coordinatorChart()} {
		head, rest, foundHead := strings.Cut(page, "\n## "+c.title+"\n")
		_, tail, foundTail := strings.Cut(rest, "\n<!-- end of what is generated -->\n")
		if !foundHead || !foundTail {
			t.Fatalf("docs/lifecycle.md has no generated part %q", c.title)
		}
		picture := fmt.Sprintf("![The phases of a %s job](%s.svg)", strings.ToLower(c.title), c.picture())
		page = head + "\n## " + c.title + "\n\n" + picture + "\n\n" + c.table() + "\n<!-- end of what is generated -->\n" + tail
		isDocumented(t, filepath.Join(docs, c.picture()+".d2"), c.diagram())
	}
	isDocumented(t, filepath.Join(docs, "lifecycle.md"), page)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	expect.NoError(t, err)
	return string(text)
}

// isDocumented compares a file with its desired content; -update writes that.
func isDocumented(t *testing.T, path, wanted string) {
	t.Helper()
	if *update {
		expect.NoError(t, os.WriteFile(path, []byte(wanted), 0o644))
		return
	}
	if diff := cmp.Diff(wanted, readText(t, path)); diff != "" {
		t.Errorf("run go test ./job/lifecycle -run DocumentedStateMachines -update and make generate (-want +got of %s):\n%s", path, diff)
	}
}

// picture returns the path of the chart's diagram in docs, without extension.
func (c *chart) picture() string {
	return "images/phases-" + strings.ToLower(c.title)
}

// arrow is a line of a diagram with its labels.
type arrow struct {
	from, to string
	labels   []string
}

// diagram returns the chart in D2.
func (c *chart) diagram() string {
	arrows := c.arrows()
	var b strings.Builder
	b.WriteString("# Generated by job/lifecycle/transitions_test.go from its table; do not edit.\n...@_style\ndirection: down\n\n")
	b.WriteString("any: \"any phase but\\nSucceeded and Failed,\\nor none yet\" {class: kube}\n")
	if slices.ContainsFunc(arrows, func(a arrow) bool { return a.from == orNone(none) }) {
		b.WriteString("none: \"none yet\" {class: user}\n")
	}
	for _, phase := range c.live[1:] {
		fmt.Fprintf(&b, "%s: {class: ours}\n", phase)
	}
	b.WriteString("Succeeded: {class: pod}\nFailed: {class: bad}\n\n")
	for _, a := range arrows {
		fmt.Fprintf(&b, "%s -> %s: %q\n", a.from, a.to, strings.Join(a.labels, "\n"))
	}
	if slices.ContainsFunc(arrows, func(a arrow) bool { return strings.HasSuffix(a.labels[len(a.labels)-1], someOnly) }) {
		fmt.Fprintf(&b, "\nnote: %q {\n  shape: text\n  near: bottom-center\n}\n", someOnly+" from some of these phases: see the table")
	}
	return b.String()
}

// someOnly marks a change in a diagram that starts only from some of the live phases.
const someOnly = "*"

// arrows returns the changes of the chart, merged if they connect the same phases. A change that
// starts from all phases is drawn once, from a state that represents them. A change from some
// phases to the target of such an arrow is drawn from there, too, and marked.
func (c *chart) arrows() []arrow {
	var arrows []arrow
	draw := func(from string, to v2alpha1.Phase, label string) {
		for i := range arrows {
			if arrows[i].from == from && arrows[i].to == string(to) {
				arrows[i].labels = append(arrows[i].labels, label)
				return
			}
		}
		arrows = append(arrows, arrow{from: from, to: string(to), labels: []string{label}})
	}
	var general []v2alpha1.Phase
	for _, row := range c.changes {
		if c.isGeneral(&row) {
			general = append(general, row.to)
			draw("any", row.to, row.label)
		}
	}
	for _, row := range c.changes {
		switch {
		case c.isGeneral(&row):
		case slices.Contains(general, row.to):
			draw("any", row.to, row.label+someOnly)
		default:
			for _, from := range row.from {
				draw(orNone(from), row.to, row.label)
			}
		}
	}
	return arrows
}

// isGeneral reports whether a row starts from all live phases except its target.
func (c *chart) isGeneral(row *change) bool {
	return len(row.from) > 2 && slices.Equal(but(c.live, row.to), row.from)
}

func (c *chart) table() string {
	var b strings.Builder
	b.WriteString("| from | to | when | rule |\n| --- | --- | --- | --- |\n")
	for _, row := range c.changes {
		from := "any but those of the end"
		if !slices.Equal(but(c.live, row.to), but(row.from, row.to)) {
			phases := make([]string, len(row.from))
			for i, phase := range row.from {
				phases[i] = orNone(phase)
			}
			from = strings.Join(phases, ", ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", from, row.to, row.when, row.rule)
	}
	return b.String()
}
