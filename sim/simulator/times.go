// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// point is the measured step and synchronization time of a pass with some samples.
type point struct{ atomic, step, sync float64 }

// curve is ascending by the samples of a pass.
type curve []point

type timeKey struct {
	placement string
	atomic    int
}

// loadTimes reads the step times of measured placements, and the grid for all others.
func (a *Application) loadTimes(placements, grid string) error {
	rows, err := readTable(placements, "placement", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return err
	}
	a.Bounds.MinAtomic = math.MaxInt
	for _, row := range rows {
		id := strconv.Itoa(int(row[0]))
		a.placements[id] = append(a.placements[id], point{row[1], row[2], row[3]})
		a.Bounds.MinAtomic, a.Bounds.MaxAtomic = min(a.Bounds.MinAtomic, int(row[1])), max(a.Bounds.MaxAtomic, int(row[1]))
	}
	if a.Bounds.MaxAtomic == 0 {
		return fmt.Errorf("%s has no row with a local_bsz of 1 or more", placements)
	}
	rows, err = readTable(grid, "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return err
	}
	for _, row := range rows {
		key := [2]int{int(row[0]), int(row[1])}
		a.grid[key] = append(a.grid[key], point{row[2], row[3], row[4]})
		a.widest = max(a.widest, key[0])
	}
	for _, c := range a.placements {
		c.sort()
	}
	for _, c := range a.grid {
		c.sort()
	}
	return nil
}

func (c curve) sort() {
	slices.SortStableFunc(c, func(a, b point) int { return cmp.Compare(a.atomic, b.atomic) })
}

// Times returns the true step and synchronization time of a placement, the replicas
// by node. They are NaN where neither the placement nor its shape was measured.
func (a *Application) Times(placement []int, atomic int) (step, sync float64) {
	id := rotation(placement)
	key := timeKey{id, atomic}
	if known, ok := a.times[key]; ok {
		return known[0], known[1]
	}
	found, exact := a.placements[id]
	if !exact {
		replicas := 0
		for _, count := range placement {
			replicas += count
		}
		found = a.grid[[2]int{min(len(placement), a.widest), replicas}]
	}
	step, sync = found.at(float64(atomic))
	a.times[key] = [2]float64{step, sync}
	return step, sync
}

// at interpolates linearly between the points of a curve.
func (c curve) at(atomic float64) (step, sync float64) {
	switch len(c) {
	case 0:
		return math.NaN(), math.NaN()
	case 1:
		return c[0].step, c[0].sync
	}
	i, _ := slices.BinarySearchFunc(c, atomic, func(p point, x float64) int { return cmp.Compare(p.atomic, x) })
	i = min(max(i, 1), len(c)-1)
	low, high := c[i-1], c[i]
	width := high.atomic - low.atomic
	return (high.step-low.step)/width*(atomic-low.atomic) + low.step, (high.sync-low.sync)/width*(atomic-low.atomic) + low.sync
}

// rotation returns the digits of the lexicographically least rotation of a placement.
func rotation(placement []int) string {
	digits := make([]byte, 0, len(placement))
	for _, count := range placement {
		digits = append(digits, byte('0'+count))
	}
	least := string(digits)
	for i := 1; i < len(digits); i++ {
		least = min(least, string(digits[i:])+string(digits[:i]))
	}
	return least
}
