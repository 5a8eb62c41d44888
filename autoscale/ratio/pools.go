// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"slices"
)

// requested returns how many producers are requested.
func (l *law) requested() int32 {
	var sum int32
	for _, size := range l.sizes {
		sum += size.Requested
	}
	return sum
}

// clamped returns the requested counts inside the bounds of their pools.
func (l *law) clamped() []int32 {
	counts := make([]int32, len(l.sizes))
	for i, size := range l.sizes {
		counts[i] = l.clamp(i, size.Requested)
	}
	return counts
}

// isGrouped reports whether a queue takes replicas of any pool back in groups.
func (l *law) isGrouped() bool {
	return slices.ContainsFunc(l.sizes, func(size PoolSize) bool { return size.IsGrouped })
}

func (l *law) clamp(pool int, count int32) int32 {
	bounds := l.Pools[pool]
	return max(min(max(count, bounds.Min), bounds.Max, maxReplicas), 0)
}

// spread returns counts for a total of working producers. Growth goes to the first pool that has
// room and nothing stuck, a shrink takes from the last. Stuck producers are not replaced by more of
// the same pool: those of a preferred pool stay requested, so that they take over when they can.
func (l *law) spread(goal int32) []int32 {
	counts := l.clamped()
	difference := (float64(goal) - float64(l.working())) * l.unit()
	if difference > 0 {
		l.add(counts, difference)
	} else {
		l.remove(counts, -difference)
		l.dropStuck(counts, goal)
	}
	for i := range counts {
		counts[i] = l.sizes[i].shrunk(counts[i])
	}
	return counts
}

// add grows counts by producers for a rate.
func (l *law) add(counts []int32, rate float64) {
	for i, size := range l.sizes {
		if size.Stuck > 0 {
			continue
		}
		more := min(math.Ceil(rate/size.Capacity-0.25), float64(l.clamp(i, maxReplicas)-counts[i]))
		if more > 0 {
			counts[i] += int32(more)
			rate -= more * size.Capacity
		}
	}
}

// remove shrinks counts by producers for a rate, from the last pool on.
func (l *law) remove(counts []int32, rate float64) {
	for i := len(counts) - 1; i >= 0; i-- {
		size := l.sizes[i]
		room := min(counts[i]-l.clamp(i, 0), size.Requested-size.Stuck)
		fewer := min(math.Floor(rate/size.Capacity+0.25), float64(room))
		if fewer > 0 {
			counts[i] -= int32(fewer)
			rate -= fewer * size.Capacity
		}
	}
}

// dropStuck gives up stuck producers that the total would not need if they started.
func (l *law) dropStuck(counts []int32, goal int32) {
	left := goal
	for i, size := range l.sizes {
		if size.Stuck > 0 {
			counts[i] = l.clamp(i, min(counts[i], max(counts[i]-size.Stuck, left)))
		}
		left = max(left-counts[i], 0)
	}
}
