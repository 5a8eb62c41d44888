// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import "math"

// fixed never changes the size.
type fixed int

func (f fixed) size(*plant) int { return int(f) }

// right always has the ideal size of the moment.
type right struct{}

func (right) size(p *plant) int { return max(int(math.Ceil(p.ideal())), minReplicas) }

// hpa models the HorizontalPodAutoscaler with its defaults: a decision every 15 s, a tolerance of
// 0.1, growth by at most 100 % or 4 replicas in 15 s, and a shrink to no less than the largest
// recommendation of the last 300 s.
type hpa struct {
	// recommend returns the replicas that a metric asks for, before tolerance and limits.
	recommend func(p *plant) float64
	// every is how often the metric is read, in seconds.
	every  int
	recent []advice
	wanted float64
}

type advice struct {
	second, replicas int
}

func (h *hpa) size(p *plant) int {
	n := len(p.producers)
	if p.second%h.every == 0 {
		h.wanted = h.recommend(p)
	}
	if p.second%15 != 0 {
		return n
	}
	want := n
	if math.Abs(h.wanted/float64(n)-1) > 0.1 {
		want = int(math.Ceil(h.wanted))
	}
	want = min(max(want, minReplicas), maxReplicas)
	h.recent = append(h.recent, advice{p.second, want})
	most := 0
	keep := h.recent[:0]
	for _, one := range h.recent {
		if one.second > p.second-300 {
			keep, most = append(keep, one), max(most, one.replicas)
		}
	}
	h.recent = keep
	if want < n {
		return min(n, most)
	}
	return min(want, max(2*n, n+4))
}

// newCPU returns an HPA on 80 % CPU. A producer uses its CPU while it is not blocked. The replicas
// that start count as idle when others ask for growth, as in Kubernetes.
func newCPU() *hpa {
	used := newMean(30)
	return &hpa{every: 1, recommend: func(p *plant) float64 {
		share := 1.0
		if p.possible > 0 {
			share = p.delivered / p.possible
		}
		n, running := float64(len(p.producers)), float64(p.running())
		share = used.add(share)
		if want := running * share / 0.8; want <= running || want > n {
			return want
		}
		return n
	}}
}

// newIdeal returns an HPA on an external metric that is the ideal ratio, by the operator's estimates.
func newIdeal(o *operator) *hpa {
	return &hpa{every: 15, recommend: func(p *plant) float64 {
		m := o.measure(p)
		if m.ProducerCapacity <= 0 || m.ConsumerCapacity <= 0 {
			return float64(len(p.producers))
		}
		return m.ConsumerCapacity / m.ProducerCapacity
	}}
}

// watched is an HPA whose metric comes from the reports.
type watched struct {
	*hpa
	operator *operator
}

func (w watched) size(p *plant) int {
	w.operator.report(p)
	return w.hpa.size(p)
}

// newQueue returns a rule as people write it for KEDA: replicas in proportion to the room in the
// queue, read every 30 s. At rest, with the queue at its target, the proportion is right.
func newQueue(options *Options) *hpa {
	capacity, target := options.capacity(), staleness*options.batch()/2
	perReplica := (capacity - target) / (baseConsumer / baseProducer)
	return &hpa{every: 30, recommend: func(p *plant) float64 { return (capacity - p.queue) / perReplica }}
}

// mean is an exponential mean over some seconds.
type mean struct{ weight, value float64 }

func newMean(seconds float64) *mean { return &mean{weight: 1 / seconds, value: 1} }

func (m *mean) add(x float64) float64 {
	m.value += m.weight * (x - m.value)
	return m.value
}
