// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestALabelTakesNoValueThatIsNotAmongItsOwn(t *testing.T) {
	t.Parallel()
	var set Set
	counted := set.Counter(Metric{Name: "things_total", Help: "Things.", Unit: "things", Labels: []Label{{Name: "kind", Values: []string{"good"}}}})
	set.Read(Metric{Name: "things", Help: "Things that are there.", Unit: "things", Labels: []Label{{Name: "kind", Values: []string{"good"}}}},
		func(tell Tell) error {
			tell(3, "strange")
			return nil
		})
	counted.WithLabelValues("good").Inc()
	counted.WithLabelValues("job-1").Inc()
	counted.WithLabelValues("job-2").Inc()
	check(t, &set, `
# HELP things Things that are there.
# TYPE things gauge
things{kind="other"} 3
# HELP things_total Things.
# TYPE things_total counter
things_total{kind="good"} 1
things_total{kind="other"} 2
`)
}

func check(t *testing.T, set *Set, want string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	expect.NoError(t, registry.Register(set))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestACounterFromZeroHasAllItsSeriesBeforeItCounts(t *testing.T) {
	t.Parallel()
	var set Set
	set.CounterFromZero(Metric{Name: "rounds_total", Help: "Rounds.", Unit: "rounds", Labels: []Label{
		{Name: "of", Values: []string{"a", "b"}}, {Name: "result", Values: []string{"done", "failed"}},
	}})
	set.Counter(Metric{Name: "plain_total", Help: "Plain.", Unit: "things"})
	check(t, &set, `
# HELP plain_total Plain.
# TYPE plain_total counter
plain_total 0
# HELP rounds_total Rounds.
# TYPE rounds_total counter
rounds_total{of="a",result="done"} 0
rounds_total{of="a",result="failed"} 0
rounds_total{of="b",result="done"} 0
rounds_total{of="b",result="failed"} 0
`)
}

func TestAValueThatCannotBeReadFailsTheScrape(t *testing.T) {
	t.Parallel()
	var set Set
	set.Read(Metric{Name: "things", Help: "Things.", Unit: "things"}, func(Tell) error { return errors.New("no cache") })
	registry := prometheus.NewRegistry()
	registry.MustRegister(&set)
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "no cache") {
		t.Errorf("got %v, want why it cannot be read", err)
	}
}

func TestASetKnowsWhatItsMetricsAre(t *testing.T) {
	t.Parallel()
	var set Set
	labels := []Label{{Name: "result", Values: []string{"done"}}}
	set.Counter(Metric{Name: "a_total", Help: "A.", Unit: "things", Labels: labels})
	set.Gauge(Metric{Name: "b", Help: "B.", Unit: "bytes"})
	set.Histogram(Metric{Name: "c_seconds", Help: "C.", Unit: "seconds"}, 1, 2)
	var told []string
	for _, metric := range set.Metrics() {
		told = append(told, metric.Name+" "+string(metric.Type)+" "+metric.Unit)
	}
	if got, want := strings.Join(told, ", "), "a_total counter things, b gauge bytes, c_seconds histogram seconds"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
