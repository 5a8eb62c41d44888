// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/internal/telemetry"
)

// patience is how long the takeover may make no progress before an Event reports it.
// No pods are created from StopOperator to Probe.
const patience = time.Minute

// progress measures how long the takeover is stalled. It makes progress when fewer steps
// are left than ever before: a tool that undoes a step again and again, such as one that
// scales a Deployment up, does not reset it.
type progress struct {
	begun bool
	// left are how many steps were left at best, and since when.
	left  int
	since time.Time
	// due is after how long the next Event is recorded.
	due time.Duration
}

// observe notes how many steps are left, and returns for how long there were no fewer.
func (p *progress) observe(left int, now time.Time) time.Duration {
	if !p.begun || left < p.left {
		*p = progress{begun: true, left: left, since: now, due: patience}
	}
	return now.Sub(p.since)
}

// overdue reports whether an Event is due: after a minute, and after twice as long each
// time, because Events expire.
func (p *progress) overdue(waiting time.Duration) bool {
	if waiting < p.due {
		return false
	}
	for p.due <= waiting {
		p.due *= 2
	}
	return true
}

// stallMessage says what a step waits for, for how long, what failed last, and what
// may help.
func stallMessage(step Step, observed *Observed, waiting time.Duration, failed string) string {
	line := fmt.Sprintf("%s: no progress for %s; %s", step, waiting.Truncate(time.Second), explain(step, observed))
	if failed != "" {
		line += "; " + failed
	}
	return line + "; " + advice(step)
}

// advice says what may help where a step is stalled.
func advice(step Step) string {
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

// waitingSteps are those that may take a while.
func waitingSteps() []string {
	return []string{
		string(StepDeleteWebhooks), string(StepStopOperator), string(StepAwaitOperator), string(StepAwaitServer),
		string(StepDrainServer), string(StepAwaitDrain), string(StepStopServer), string(StepAwaitServerEnd), string(StepRestoreServices), string(StepProbe),
	}
}

// observe sets how long the takeover has been at a step, and at no other.
func (m *Metrics) observe(step Step, waiting time.Duration) {
	m.waiting.Reset()
	m.waiting.WithLabelValues(string(step)).Set(waiting.Seconds())
}

// reset says that nothing is waited for.
func (m *Metrics) reset() { m.waiting.Reset() }
