// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

const (
	// DefaultInterval is the default interval of probes.
	DefaultInterval = 30 * time.Second
	// probeTimeout bounds one probe: the API server waits up to ten seconds for a
	// webhook.
	probeTimeout = 15 * time.Second
	// failuresToReport is how many probes in a row must fail before an Event reports
	// it. A single failure is only in the metrics.
	failuresToReport = 2
)

// The results of a probe.
const (
	probeOK          = "ok"
	probeWebhook     = "webhook"
	probeConversion  = "conversion"
	probeTimedOut    = "timeout"
	probeForbidden   = "forbidden"
	probeRefused     = "refused"
	probeNotServed   = "not-served"
	probeUnreachable = "unreachable"
)

// Prober dry-run-creates a job in the version that is not stored, periodically. Every operator does
// so, leader or standby: an unreachable webhook may be the reason that no leader is elected, and a
// probe costs one call. Only the leader records Events, so that each is recorded once.
type Prober struct {
	// API is the client that creates jobs. Required.
	API client.Client
	// Reader reads without a cache. Required.
	Reader client.Reader
	// Namespace is the namespace of the jobs, which are never stored. Required.
	Namespace string
	// Interval is the interval between probes. Required.
	Interval time.Duration
	// Clock triggers the probes. Required.
	Clock clock.WithTicker
	// Recorder records the Events about the CustomResourceDefinition of DIJobs. Required.
	Recorder events.EventRecorder
	// IsElected reports whether this operator is the leader. Required.
	IsElected func() bool
	// Log logs the first failure, and the recovery.
	Log logr.Logger

	metrics *probeMetrics
	// failures is the number of failed probes since the last success.
	failures int
	// reported is whether an Event has reported the failure.
	reported bool
}

type probeMetrics struct {
	telemetry.Set
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	ok       *prometheus.GaugeVec
}

// Register registers the metrics of the probes. Call it before Start.
func (p *Prober) Register(registerer prometheus.Registerer) error {
	m := &probeMetrics{}
	m.total = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_probes_total", Unit: "probes",
		Help: "Admission probes, dry-run creates of a job at the version that is not stored, by result: " +
			"ok, or the failure: admission webhook, conversion webhook, timeout, forbidden, refused, version not served, API server unreachable, or other.",
		Labels: []telemetry.Label{{Name: "result", Values: []string{
			probeOK, probeWebhook, probeConversion, probeTimedOut, probeForbidden, probeRefused, probeNotServed, probeUnreachable, telemetry.Other,
		}}},
	})
	m.duration = m.Histogram(telemetry.Metric{
		Name: "di_orchestrator_probe_duration_seconds", Help: "Duration of an admission probe, with any result.", Unit: "seconds",
	}, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15)
	m.ok = m.Gauge(telemetry.Metric{
		Name: "di_orchestrator_probe_ok", Unit: "none",
		Help: "Whether this operator's last admission probe succeeded: 1 for yes, 0 for no or none yet.",
	})
	if err := registerer.Register(m); err != nil {
		return fmt.Errorf("registering the metrics of probes: %w", err)
	}
	p.metrics = m
	return nil
}

// NeedLeaderElection makes all operators probe.
func (*Prober) NeedLeaderElection() bool { return false }

// Start probes until the context ends.
func (p *Prober) Start(ctx context.Context) error {
	ticker := p.Clock.NewTicker(p.Interval)
	defer ticker.Stop()
	for {
		p.probe(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (p *Prober) probe(ctx context.Context) {
	began := p.Clock.Now()
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := Probe(bounded, p.API, p.Namespace)
	if ctx.Err() != nil {
		// The operator stops; the result of a cancelled probe has no meaning.
		return
	}
	result := Classify(err)
	p.metrics.total.WithLabelValues(result).Inc()
	p.metrics.duration.WithLabelValues().Observe(p.Clock.Since(began).Seconds())
	if err == nil {
		p.metrics.ok.WithLabelValues().Set(1)
		p.recordRecovery(ctx)
		return
	}
	p.metrics.ok.WithLabelValues().Set(0)
	p.recordFailure(ctx, result, err)
}

func (p *Prober) recordFailure(ctx context.Context, result string, err error) {
	if p.failures++; p.failures == 1 {
		p.Log.Error(err, "Admission probe failed", "result", result)
	}
	if p.failures >= failuresToReport && !p.reported && p.IsElected() {
		p.reported = p.recordEvent(ctx, corev1.EventTypeWarning, v2alpha1.ReasonAdmissionProbeFailed, err.Error())
	}
}

func (p *Prober) recordRecovery(ctx context.Context) {
	if p.failures > 0 {
		p.Log.Info("Admission probe succeeded again", "probesFailed", p.failures)
	}
	p.failures = 0
	if p.reported {
		p.reported = !p.recordEvent(ctx, corev1.EventTypeNormal, v2alpha1.ReasonAdmissionProbeSucceeded, "jobs are admitted, defaulted and converted again")
	}
}

// recordEvent records an Event about the CustomResourceDefinition. kubectl describe finds Events by
// the UID. It reports whether it succeeded; if not, the next probe tries again.
func (p *Prober) recordEvent(ctx context.Context, kind, reason, message string) bool {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := p.Reader.Get(ctx, client.ObjectKey{Name: names.DIJobDefinition}, crd); err != nil {
		p.Log.Error(err, "Cannot record the admission probe's Event yet", "reason", reason)
		return false
	}
	p.Recorder.Eventf(crd, nil, kind, reason, "Probe", "%s", recorder.Note(message))
	return true
}

// Classify returns the result of a probe as the value of a metric's label. The API server reports
// an unreachable webhook only in its message.
func Classify(err error) string {
	var network net.Error
	switch {
	case err == nil:
		return probeOK
	case strings.Contains(err.Error(), "conversion webhook for"):
		return probeConversion
	case strings.Contains(err.Error(), "failed calling webhook"):
		return probeWebhook
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return probeTimedOut
	case apierrors.IsForbidden(err):
		return probeForbidden
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return probeNotServed
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return probeRefused
	case errors.As(err, &network):
		return probeUnreachable
	}
	return telemetry.Other
}
