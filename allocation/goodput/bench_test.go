// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"math"
	"slices"
	"syscall"
	"testing"

	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func BenchmarkRound160(b *testing.B)  { benchmarkRound(b, 160, 16, 4, 64, 0, nil) }
func BenchmarkRound1000(b *testing.B) { benchmarkRound(b, 1000, 512, 8, 256, 0, nil) }

func BenchmarkRoundOfTenants160(b *testing.B)  { benchmarkRound(b, 160, 16, 4, 64, 0, threeToOne()) }
func BenchmarkRoundOfTenants1000(b *testing.B) { benchmarkRound(b, 1000, 512, 8, 256, 0, threeToOne()) }

func BenchmarkRoundOfRacks160(b *testing.B)  { benchmarkRound(b, 160, 16, 4, 64, 4, nil) }
func BenchmarkRoundOfRacks1000(b *testing.B) { benchmarkRound(b, 1000, 512, 8, 256, 16, nil) }

// measureAgain changes what jobs report of their last step. Jobs report once a minute, and
// rounds are 10 s apart.
func (c *cluster) measureAgain() {
	for _, one := range c.jobs {
		if len(one.placed) > 0 && c.random.IntN(6) == 0 {
			one.steps[len(one.steps)-1].Seconds *= 0.98 + 0.04*c.random.Float64()
		}
	}
}

// benchmarkRound measures rounds in which jobs report new steps and noise, with so many nodes of a rack; 0 is without racks.
func benchmarkRound(b *testing.B, jobs, nodes, gpusEach int, most int32, racked int, tenants *shares.Tenants) {
	b.Helper()
	c, policy := newCluster(1), goodput.New(goodput.DefaultSettings())
	c.addNodes(nodes, gpusEach, nil)
	if racked > 0 {
		c.rack(racked)
	}
	c.tenants = tenants
	pod := podOf(1, 1)
	for i := range jobs {
		one := c.add(most)
		one.team = []string{"a", "b"}[i%2]
		// The processor time of a round has that of the garbage collector, which must not clean up after the benchmark.
		one.elastic = pod
		one.total = math.Inf(1)
		for range c.random.IntN(12) {
			one.placed = slices.Repeat([]string{"x"}, 1<<c.random.IntN(6))
			one.train(60, "")
		}
		one.placed = nil
	}
	for range 10 {
		c.apply(policy.Optimize(c.round()))
		c.train(10)
	}
	var rounds []float64
	for b.Loop() {
		b.StopTimer()
		c.train(10)
		c.measureAgain()
		round := c.round()
		b.StartTimer()
		began := processorMS(b)
		answer := policy.Optimize(round)
		rounds = append(rounds, processorMS(b)-began)
		b.StopTimer()
		c.apply(answer)
		b.StartTimer()
	}
	slices.Sort(rounds)
	b.ReportMetric(rounds[len(rounds)/2], "p50-cpu-ms")
	b.ReportMetric(rounds[len(rounds)*99/100], "p99-cpu-ms")
}

// processorMS returns the processor time of this process, so that other processes do not
// count.
func processorMS(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	expect.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e6
}
