// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/internal/telemetry"
)

// patience is how long the takeover may get on with nothing before somebody is
// told. No pods are made from StopOperator to Probe.
const patience = time.Minute

// progress tells how long the takeover has not got on. It gets on when fewer steps
// are left than ever before: who undoes one again and again, as a tool that scales
// a Deployment up, does not have it begin again.
type progress struct {
	begun bool
	// left are how many steps were left at best, and since when.
	left  int
	since time.Time
	// due is after how long somebody is told next.
	due time.Duration
}

// observe notes how many steps are left, and returns for how long there were no fewer.
func (p *progress) observe(left int, now time.Time) time.Duration {
	if !p.begun || left < p.left {
		*p = progress{begun: true, left: left, since: now, due: patience}
	}
	return now.Sub(p.since)
}

// overdue reports whether somebody is to be told now: after a minute, and after twice
// as long each time, as Events are forgotten.
func (p *progress) overdue(waiting time.Duration) bool {
	if waiting < p.due {
		return false
	}
	for p.due <= waiting {
		p.due *= 2
	}
	return true
}

// complaint says what a step waits for, for how long, what failed last, and what
// helps.
func complaint(step Step, observed *Observed, waiting time.Duration, failed string) string {
	line := fmt.Sprintf("%s: no progress for %s; %s", step, waiting.Truncate(time.Second), explain(step, observed))
	if failed != "" {
		line += "; " + failed
	}
	return line + "; " + advise(step)
}

// advise says what helps where a step is not got over.
func advise(step Step) string {
	switch step {
	case StepStopOperator, StepStopServer:
		return "remove them from whatever scales them up again"
	case StepAwaitOperator, StepAwaitServerEnd:
		return "if the node of such a pod is lost, force-delete the pod once you are sure that it no longer runs"
	case StepAwaitServer:
		return "the log of the new di-server says why it is not ready"
	case StepAwaitDrain:
		return "the control plane writes the EndpointSlices of Services: check that its controllers run"
	default:
		return "docs/takeover.md lists what each step may wait for"
	}
}

// Metrics are those of takeovers.
type Metrics struct {
	telemetry.Set
	waiting *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	m.waiting = m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_takeover_waiting_seconds", Unit: "seconds", Labels: []telemetry.Label{{Name: "step", Values: waitingSteps()}},
		Help: "How long the takeover of an earlier release has made no progress, by its step; absent without a takeover; only the leader reports it.",
	})
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of takeovers: %w", err)
	}
	return m, nil
}

// waitingSteps are those that may not be got over at once.
func waitingSteps() []string {
	return []string{
		string(StepDeleteWebhooks), string(StepStopOperator), string(StepAwaitOperator), string(StepAwaitServer),
		string(StepDrainServer), string(StepAwaitDrain), string(StepStopServer), string(StepAwaitServerEnd), string(StepRestoreServices), string(StepProbe),
	}
}

// tell says how long it has been at a step, and at no other.
func (m *Metrics) tell(step Step, waiting time.Duration) {
	m.waiting.Reset()
	m.waiting.WithLabelValues(string(step)).Set(waiting.Seconds())
}

// rest says that nothing is waited for.
func (m *Metrics) rest() { m.waiting.Reset() }
