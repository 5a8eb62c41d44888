// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"math"
	"slices"
)

// Point is how fast a job runs with some replicas.
type Point struct {
	Replicas int
	// Kind is the type of devices that they run on, an index of the capacities.
	Kind int
	// Cost is what the replicas take of the capacity.
	Cost int
	// Speed is goodput relative to one replica's.
	Speed float64
}

// The range of prices: what a unit of capacity is worth per second, in jobs.
const (
	leastPrice = 1e-4
	mostPrice  = 50
	bisections = 40
	// sweeps is how often the prices of several types are cleared in turn.
	sweeps = 6
)

// unitCost returns what a unit of a job's work costs at the prices, each multiplied by a factor: the least of
// (1 + price*cost)/speed, and the point that has it. Every second costs the job's
// own waiting, 1, and the capacity that it keeps from others. It is the Whittle index of malleable
// jobs (WHAM; Li, Harchol-Balter and Berg, arXiv 2602.01411).
func unitCost(points []Point, prices []float64, factor float64) (float64, *Point) {
	least, best := math.Inf(1), (*Point)(nil)
	for i := range points {
		if points[i].Speed <= 0 {
			continue
		}
		if value := (1 + factor*prices[points[i].Kind]*float64(points[i].Cost)) / points[i].Speed; value < least {
			least, best = value, &points[i]
		}
	}
	return least, best
}

// clearingPrices returns a price of each type of devices: the least at which the jobs ask for at most its capacity.
// To a job one type replaces another, so a price that rises raises the others, and sweeps from below find them.
func clearingPrices(jobs [][]Point, capacities []int) []float64 {
	prices := slices.Repeat([]float64{leastPrice}, len(capacities))
	turns := sweeps
	if len(capacities) == 1 {
		turns = 1
	}
	for range turns {
		for kind := range capacities {
			settle(jobs, prices, kind, capacities[kind])
		}
	}
	return prices
}

// settle sets the price of one type, beside the prices of the others.
func settle(jobs [][]Point, prices []float64, kind, capacity int) {
	low, high := math.Log(leastPrice), math.Log(mostPrice)
	for range bisections {
		middle := (low + high) / 2
		prices[kind] = math.Exp(middle)
		if demand(jobs, prices, kind) > capacity {
			low = middle
		} else {
			high = middle
		}
	}
	prices[kind] = math.Exp(high)
}

// demand returns what the jobs ask for of a type at the prices.
func demand(jobs [][]Point, prices []float64, kind int) int {
	sum := 0
	for _, points := range jobs {
		if _, best := unitCost(points, prices, 1); best != nil && best.Kind == kind {
			sum += best.Cost
		}
	}
	return sum
}
