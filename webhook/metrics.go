// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"opendilab.org/di-orchestrator/conversion"
)

// conversionMetrics tell Prometheus what the conversion endpoint does, and the
// log where the mapping panicked.
type conversionMetrics struct {
	log       logr.Logger
	converted *prometheus.CounterVec
	panics    prometheus.Counter
	objects   prometheus.Histogram
	bytes     prometheus.Gauge
	duration  *prometheus.HistogramVec
}

// newConversionMetrics registers the metrics, unless there is no registerer.
func newConversionMetrics(registerer prometheus.Registerer, log logr.Logger) (*conversionMetrics, error) {
	created := &conversionMetrics{
		log: log,
		converted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "di_orchestrator_conversions_total",
			Help: "Objects that conversion reviews asked for, by their version, the wanted one, and the result: converted, unchanged or failed.",
		}, []string{"from", "to", "result"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "di_orchestrator_conversion_panics_total",
			Help: "Objects at which the conversion panicked; each is a fault of this program, which its log shows.",
		}),
		objects: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "di_orchestrator_conversion_review_objects", Help: "Objects in a conversion review.",
			Buckets: []float64{0, 1, 10, 50, 100, 500, 1000, 2000, 5000, 10_000, 50_000},
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "di_orchestrator_conversion_bytes_in_flight", Help: "Bytes of the bodies of the conversion reviews in hand.",
		}),
		// The bounds 0.05, 1 and 6 are those of the service level for conversion
		// webhooks: one object, a namespace's list, a cluster's list.
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "di_orchestrator_conversion_review_duration_seconds",
			Help:    "Time to answer a conversion review, waiting, reading and writing included, by HTTP status.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 6, 10, 30},
		}, []string{"code"}),
	}
	if registerer == nil {
		return created, nil
	}
	for _, collector := range []prometheus.Collector{
		created.converted, created.panics, created.objects, created.bytes, created.duration,
	} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the webhooks' metrics: %w", err)
		}
	}
	return created, nil
}

// timed measures how long the endpoint takes.
func (m *conversionMetrics) timed(endpoint http.Handler) http.Handler {
	return promhttp.InstrumentHandlerDuration(m.duration, endpoint)
}

// Holding implements conversion.Observer.
func (m *conversionMetrics) Holding(bytes int64) {
	m.bytes.Add(float64(bytes))
}

// Reviewed implements conversion.Observer.
func (m *conversionMetrics) Reviewed(outcome conversion.Outcome) {
	m.objects.Observe(float64(outcome.Objects))
	m.panics.Add(float64(outcome.Panics))
	for of, count := range outcome.Conversions {
		m.converted.WithLabelValues(of.From, of.To, string(of.Result)).Add(float64(count))
	}
	for _, panicked := range outcome.Panicked {
		m.log.Error(errors.New(panicked.Cause), "converting an object panicked", "object", panicked.Object, "stack", panicked.Stack)
	}
}
