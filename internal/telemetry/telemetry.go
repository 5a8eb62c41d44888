// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package telemetry creates Prometheus metrics with complete descriptions: meaning, unit, and
// labels with all their values. A label has no other values, so that the number of series does not
// grow with the number of jobs or with the requests of clients.
package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Other replaces each value of a label that is not one of its Values.
const Other = "other"

// Label is a label of a metric.
type Label struct {
	// Name is the label's name.
	Name string
	// Values are all values of the label; each other value becomes Other.
	Values []string
	// About documents the value of a label that has one value in each process. Documentation then
	// omits Values.
	About string
	// Bound replaces values beyond a bounded number of them by Other, for a label without Values.
	Bound func(value string) string
}

// constrained returns the Prometheus definition of the label.
func (l *Label) constrained() prometheus.ConstrainedLabel {
	if l.Bound != nil {
		return prometheus.ConstrainedLabel{Name: l.Name, Constraint: l.Bound}
	}
	return prometheus.ConstrainedLabel{Name: l.Name, Constraint: func(value string) string {
		if slices.Contains(l.Values, value) {
			return value
		}
		return Other
	}}
}

// Type is the type of a metric.
type Type string

// The types of metrics.
const (
	TypeCounter   Type = "counter"
	TypeGauge     Type = "gauge"
	TypeHistogram Type = "histogram"
)

// Metric describes a metric.
type Metric struct {
	// Name is the full name.
	Name string
	// Help describes in one sentence what it counts or measures.
	Help string
	// Unit is the unit, such as seconds or jobs.
	Unit string
	// Labels are its labels.
	Labels []Label
	// Type is set by the Set that creates it.
	Type Type
}

func (m *Metric) constrained() prometheus.ConstrainedLabels {
	labels := make(prometheus.ConstrainedLabels, len(m.Labels))
	for i := range m.Labels {
		labels[i] = m.Labels[i].constrained()
	}
	return labels
}

// Set creates the metrics of one part of a program, and is their collector. Register it once.
type Set struct {
	metrics    []Metric
	collectors []prometheus.Collector
}

var _ prometheus.Collector = &Set{}

// Metrics describes the metrics of the set, in the order of their creation.
func (s *Set) Metrics() []Metric {
	return slices.Clone(s.metrics)
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(descriptions chan<- *prometheus.Desc) {
	for _, collector := range s.collectors {
		collector.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(metrics chan<- prometheus.Metric) {
	for _, collector := range s.collectors {
		collector.Collect(metrics)
	}
}

func (s *Set) add(metric Metric, kind Type, collector prometheus.Collector) {
	metric.Type = kind
	s.metrics = append(s.metrics, metric)
	s.collectors = append(s.collectors, collector)
}

// Counter creates a counter. Without labels it starts at 0.
func (s *Set) Counter(metric Metric) *prometheus.CounterVec {
	made := prometheus.V2.NewCounterVec(prometheus.CounterVecOpts{
		CounterOpts:    prometheus.CounterOpts{Name: metric.Name, Help: metric.Help},
		VariableLabels: metric.constrained(),
	})
	if len(metric.Labels) == 0 {
		made.WithLabelValues()
	}
	s.add(metric, TypeCounter, made)
	return made
}

// CounterFromZero creates a counter whose combinations of label values all start at 0, so that
// increase() includes the first event. Use it for labels with few values.
func (s *Set) CounterFromZero(metric Metric) *prometheus.CounterVec {
	made := s.Counter(metric)
	for _, values := range combinations(metric.Labels) {
		made.WithLabelValues(values...)
	}
	return made
}

// combinations returns all combinations of the labels' values.
func combinations(labels []Label) [][]string {
	all := [][]string{nil}
	for i := range labels {
		var longer [][]string
		for _, values := range all {
			for _, value := range labels[i].Values {
				longer = append(longer, append(slices.Clone(values), value))
			}
		}
		all = longer
	}
	return all
}

// Gauge creates a gauge. Without labels it starts at 0.
func (s *Set) Gauge(metric Metric) *prometheus.GaugeVec {
	made := prometheus.V2.NewGaugeVec(prometheus.GaugeVecOpts{
		GaugeOpts:      prometheus.GaugeOpts{Name: metric.Name, Help: metric.Help},
		VariableLabels: metric.constrained(),
	})
	if len(metric.Labels) == 0 {
		made.WithLabelValues()
	}
	s.add(metric, TypeGauge, made)
	return made
}

// Histogram creates a histogram with the upper bounds of its buckets.
func (s *Set) Histogram(metric Metric, buckets ...float64) *prometheus.HistogramVec {
	made := prometheus.V2.NewHistogramVec(prometheus.HistogramVecOpts{
		HistogramOpts:  prometheus.HistogramOpts{Name: metric.Name, Help: metric.Help, Buckets: buckets},
		VariableLabels: metric.constrained(),
	})
	if len(metric.Labels) == 0 {
		made.WithLabelValues()
	}
	s.add(metric, TypeHistogram, made)
	return made
}

// Tell reports a value of a metric with the values of its labels.
type Tell func(value float64, labels ...string)

// Read creates a gauge whose values are read at each scrape. An error fails the scrape with that
// error. For a temporary failure, report no value instead.
func (s *Set) Read(metric Metric, read func(tell Tell) error) {
	s.add(metric, TypeGauge, &reader{
		desc: prometheus.V2.NewDesc(metric.Name, metric.Help, metric.constrained(), nil), read: read, labels: metric.Labels,
	})
}

// reader is a gauge whose values are read at each scrape.
type reader struct {
	desc   *prometheus.Desc
	labels []Label
	read   func(tell Tell) error
}

// Describe implements prometheus.Collector.
func (r *reader) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- r.desc
}

// Collect implements prometheus.Collector.
func (r *reader) Collect(metrics chan<- prometheus.Metric) {
	err := r.read(func(value float64, labels ...string) {
		for i := range labels {
			labels[i] = r.labels[i].constrained().Constraint(labels[i])
		}
		metrics <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, value, labels...)
	})
	if err != nil {
		metrics <- prometheus.NewInvalidMetric(r.desc, err)
	}
}
