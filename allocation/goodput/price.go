// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import "math"

// Point is how fast a job runs with some replicas.
type Point struct {
	Replicas int
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
)

// unitCost returns what a unit of a job's work costs at a price: the least of
// (1 + price*cost)/speed, and the point that has it. Every second costs the job's
// own waiting, 1, and the capacity that it keeps from others. It is the Whittle index of malleable
// jobs (WHAM; Li, Harchol-Balter and Berg, arXiv 2602.01411).
func unitCost(points []Point, price float64) (float64, *Point) {
	least, best := math.Inf(1), (*Point)(nil)
	for i := range points {
		if points[i].Speed <= 0 {
			continue
		}
		if value := (1 + price*float64(points[i].Cost)) / points[i].Speed; value < least {
			least, best = value, &points[i]
		}
	}
	return least, best
}

// clearingPrice returns the least price at which the jobs ask for at most the
// capacity.
func clearingPrice(jobs [][]Point, capacity int) float64 {
	low, high := math.Log(leastPrice), math.Log(mostPrice)
	for range bisections {
		middle := (low + high) / 2
		if demand(jobs, math.Exp(middle)) > capacity {
			low = middle
		} else {
			high = middle
		}
	}
	return math.Exp(high)
}

// demand returns the capacity that the jobs ask for at a price.
func demand(jobs [][]Point, price float64) int {
	sum := 0
	for _, points := range jobs {
		if _, best := unitCost(points, price); best != nil {
			sum += best.Cost
		}
	}
	return sum
}
