// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build hostile

package hostile

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/coordinator"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/figures"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

var (
	duration  = flag.Duration("hostile.duration", 2*time.Second, "how long each attack lasts")
	attackers = flag.Int("hostile.attackers", 8, "how many attack at a time")
	// This limit applies only on an otherwise idle machine.
	limit = flag.Duration("hostile.p99", 0, "time that 99 of 100 calls of the others must not exceed; 0 for no limit")
)

// attack is one action of an intruder.
type attack struct {
	// name is a sentence that states the protected property.
	name string
	// gets are the allowed outcomes for the intruder, such as 401; nil for any.
	gets []string
	// step executes the action once and returns its outcome. It is repeated until the attack ends.
	step func(ctx context.Context, w *world, attacker int) string
	// holds checks additional requirements after the attack; nil for none.
	holds func(ctx context.Context, w *world) error
	// once is set if one attacker executes the step a single time.
	once bool
}

// row is the result of an attack.
type row struct {
	name     string
	outcomes map[string]int
	calls    []pace.Tally

	webhooks, operator, server, history program.Usage
}

func TestNothingThatIntrudersSendEndsAProgramOrDisturbsOthers(t *testing.T) {
	// The programs are stopped explicitly, after the end of the test's own context.
	ctx := context.WithoutCancel(t.Context())
	w, err := newWorld(ctx, t.TempDir())
	expect.NoError(t, err)
	var rows []row
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		printRows(rows)
	})
	load := w.others()
	for _, prober := range load {
		prober.Start(ctx)
		defer prober.Stop()
	}
	attacks := slices.Concat([]attack{peace()}, onWebhooks(), byAuthors(), onServer(), onHistory(), byOthers())
	for i := range attacks {
		t.Run(attacks[i].name, func(t *testing.T) {
			rows = append(rows, w.endure(t, &attacks[i], load))
		})
		if slices.ContainsFunc(w.programs(), (*program.Process).HasEnded) {
			t.Fatal("a program has ended")
		}
	}
}

// programs returns those that are attacked.
func (w *world) programs() []*program.Process {
	return []*program.Process{w.webhooks, w.operator, w.server, w.history}
}

// peace is no attack: the baseline for the other rows.
func peace() attack {
	return attack{name: "without an attack everything is served", step: func(ctx context.Context, _ *world, _ int) string {
		<-ctx.Done()
		return "nothing"
	}}
}

// others are the regular clients: coordinators, and readers and writers at the version that is not
// stored, whose calls are converted and admitted.
func (w *world) others() []*pace.Prober {
	return []*pace.Prober{
		{Name: "GET at v1alpha1", Every: 100 * time.Millisecond, Call: func(ctx context.Context, number int) error {
			job := atV1(bystanders, fmt.Sprintf("job-%d", number%bystanderJobs))
			return w.API.Get(ctx, client.ObjectKeyFromObject(job), job)
		}},
		{Name: "dry run at v1alpha1", Every: time.Second, Call: func(ctx context.Context, number int) error {
			job := atV1(bystanders, fmt.Sprintf("unstored-%d", number))
			job.Object["spec"] = map[string]any{"coordinator": map[string]any{"template": map[string]any{
				"spec": map[string]any{"containers": []any{map[string]any{"name": "di-container", "image": "i"}}},
			}}}
			return w.API.Create(ctx, job, &client.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		}},
		{Name: "GET of di-server", Every: 50 * time.Millisecond, Call: func(ctx context.Context, number int) error {
			caller := &w.callers[number%len(w.callers)]
			urls, err := coordinator.NewLine(w.server.Address, caller, false).List(ctx)
			if err == nil && len(urls) != collectors {
				return fmt.Errorf("%s got %d URLs, not %d", caller.Pod, len(urls), collectors)
			}
			return err
		}},
		{Name: "GET of the history", Every: 100 * time.Millisecond, Call: w.readHistory},
	}
}

// endure runs an attack and checks its requirements.
func (w *world) endure(t *testing.T, a *attack, load []*pace.Prober) row {
	t.Helper()
	ctx := t.Context()
	before, err := w.belongings(ctx)
	expect.NoError(t, err)
	for _, process := range w.programs() {
		expect.NoError(t, process.ResetPeak())
	}
	for _, prober := range load {
		prober.Take()
	}
	result := row{name: a.name, outcomes: w.run(ctx, a)}
	for _, prober := range load {
		result.calls = append(result.calls, prober.Take())
	}
	w.checkPrograms(t, &result)
	checkOthers(t, load, result.calls)
	for outcome, count := range result.outcomes {
		if a.gets != nil && !slices.Contains(a.gets, outcome) {
			t.Errorf("an intruder got %q %d times, where only %v are right", outcome, count, a.gets)
		}
	}
	after, err := w.belongings(ctx)
	expect.NoError(t, err)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what the bystanders have has changed (-before +after):\n%s", diff)
	}
	if a.holds != nil {
		if err := a.holds(ctx, w); err != nil {
			t.Error(err)
		}
	}
	return result
}

// run lets all attackers repeat an attack, and returns how often each outcome occurred.
func (w *world) run(ctx context.Context, a *attack) map[string]int {
	attacking, cancel := context.WithTimeout(ctx, *duration)
	defer cancel()
	outcomes := map[string]int{}
	if a.once {
		// A single step has no time limit.
		outcomes[a.step(ctx, w, 0)]++
		<-attacking.Done()
		return outcomes
	}
	var mutex sync.Mutex
	var group sync.WaitGroup
	for attacker := range *attackers {
		group.Go(func() {
			for attacking.Err() == nil {
				outcome := a.step(attacking, w, attacker)
				mutex.Lock()
				outcomes[outcome]++
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	delete(outcomes, outOfTime)
	return outcomes
}

// outOfTime is the outcome of a step that was interrupted by the end of the attack.
const outOfTime = "out of time"

func (w *world) checkPrograms(t *testing.T, result *row) {
	t.Helper()
	for name, of := range map[string]struct {
		process *program.Process
		usage   *program.Usage
		limit   int64
	}{
		"webhook": {w.webhooks, &result.webhooks, webhooksMemory}, "operator": {w.operator, &result.operator, operatorMemory},
		"di-server": {w.server, &result.server, serverMemory}, "history": {w.history, &result.history, historyMemory},
	} {
		if of.process.HasEnded() {
			t.Errorf("%s has ended", name)
			continue
		}
		usage, err := of.process.Usage()
		expect.NoError(t, err)
		*of.usage = usage
		if usage.PeakBytes > of.limit {
			t.Errorf("%s took %s of memory, and would be killed at %s", name, figures.Mebibytes(usage.PeakBytes), figures.Mebibytes(of.limit))
		}
	}
}

func checkOthers(t *testing.T, load []*pace.Prober, calls []pace.Tally) {
	t.Helper()
	for i, prober := range load {
		tally := &calls[i]
		if tally.Failed > 0 {
			t.Errorf("%s: %d of %d calls failed: %s", prober.Name, tally.Failed, tally.Calls(), strings.Join(tally.Failures, "; "))
		}
		if *limit > 0 && tally.P99() > *limit {
			t.Errorf("%s: p99 is %s, the limit %s", prober.Name, figures.Millis(tally.P99()), *limit)
		}
	}
}

// printRows prints the result of each attack.
func printRows(rows []row) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "attack\tintruders got\tconverted GETs\tp99\tdi-server GETs\tp99\thistory GETs\tp99\tfailed\twebhooks\toperator\tdi-server\thistory")
	for i := range rows {
		r := &rows[i]
		if len(r.calls) == 0 {
			continue
		}
		failed := 0
		for _, tally := range r.calls {
			failed += tally.Failed
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\n", r.name, shown(r.outcomes),
			r.calls[0].Calls(), figures.Millis(r.calls[0].P99()), r.calls[2].Calls(), figures.Millis(r.calls[2].P99()),
			r.calls[3].Calls(), figures.Millis(r.calls[3].P99()), failed, figures.Mebibytes(r.webhooks.PeakBytes),
			figures.Mebibytes(r.operator.PeakBytes), figures.Mebibytes(r.server.PeakBytes), figures.Mebibytes(r.history.PeakBytes))
	}
	_ = table.Flush()
}

func shown(outcomes map[string]int) string {
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		parts = append(parts, fmt.Sprintf("%d x %s", outcomes[outcome], outcome))
	}
	return strings.Join(parts, ", ")
}
