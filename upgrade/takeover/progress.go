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

// progress measures how long the takeover is stalled. The takeover makes progress when fewer steps
// are left than at any earlier time. A tool that undoes a step repeatedly, such as one that scales
// a Deployment up, does not reset the measurement.
type progress struct {
	begun bool
	// left is the smallest number of steps that were left, and since is when it was reached.
	left  int
	since time.Time
	// due is the delay until the next Event is recorded.
	due time.Duration
}

// observe records how many steps are left, and returns how long their number has not decreased.
func (p *progress) observe(left int, now time.Time) time.Duration {
	if !p.begun || left < p.left {
		*p = progress{begun: true, left: left, since: now, due: patience}
	}
	return now.Sub(p.since)
}

// overdue reports whether an Event is due: after a minute, and then at twice the previous delay,
// because Events expire.
func (p *progress) overdue(waiting time.Duration) bool {
	if waiting < p.due {
		return false
	}
	for p.due <= waiting {
		p.due *= 2
	}
	return true
}

// stallMessage describes what a step waits for, for how long, the last error, and what may help.
func stallMessage(step Step, observed *Observed, waiting time.Duration, failed string) string {
	line := fmt.Sprintf("%s: no progress for %s; %s", step, waiting.Truncate(time.Second), explain(step, observed))
	if failed != "" {
		line += "; " + failed
	}
	return line + "; " + advice(step)
}

// advice returns what may help if a step is stalled.
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

// Metrics are the metrics of takeovers.
type Metrics struct {
	telemetry.Set
	waiting *prometheus.GaugeVec
}

// NewMetrics returns registered metrics.
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

// waitingSteps returns the steps that may take a while.
func waitingSteps() []string {
	return []string{
		string(StepDeleteWebhooks), string(StepStopOperator), string(StepDeleteBridges), string(StepAwaitOperator), string(StepAwaitServer),
		string(StepDrainServer), string(StepAwaitDrain), string(StepStopServer), string(StepAwaitServerEnd), string(StepRestoreServices), string(StepProbe),
	}
}

// observe sets how long the takeover has been at a step, and removes all other steps.
func (m *Metrics) observe(step Step, waiting time.Duration) {
	m.waiting.Reset()
	m.waiting.WithLabelValues(string(step)).Set(waiting.Seconds())
}

// reset removes all steps, because the takeover waits for nothing.
func (m *Metrics) reset() { m.waiting.Reset() }
