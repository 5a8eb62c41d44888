// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/internal/limits"
)

// Format formats ranks as ranges, "0-3,7".
func Format(ranks map[int32]bool) string {
	sorted := make([]int32, 0, len(ranks))
	for rank := range ranks {
		sorted = append(sorted, rank)
	}
	slices.Sort(sorted)
	return FormatRun(sorted)
}

// Set is a set of ranks as ranges, sorted and disjoint.
type Set struct {
	ranges []rankRange
}

type rankRange struct{ first, last int32 }

// parseRange parses a rank or a range of ranks, such as 3 or 5-7.
func parseRange(text string) (first, last int64, isRange bool) {
	from, to, found := strings.Cut(text, "-")
	if !found {
		to = from
	}
	first, errFirst := strconv.ParseInt(from, 10, 32)
	last, errLast := strconv.ParseInt(to, 10, 32)
	return first, last, errFirst == nil && errLast == nil && first <= last
}

// Read parses the text that Format returns. Any other text contributes no rank, nor does a number
// beyond all valid ranks.
func Read(text string) Set {
	var set Set
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := parseRange(part)
		if isRange && from < limits.Replicas {
			set.ranges = append(set.ranges, rankRange{int32(from), int32(min(to, limits.Replicas-1))})
		}
	}
	set.ranges = mergeRanges(set.ranges)
	return set
}

// mergeRanges sorts ranges and merges overlapping ones, which other writers than the operator may
// have written.
func mergeRanges(ranges []rankRange) []rankRange {
	slices.SortFunc(ranges, func(a, b rankRange) int { return cmp.Compare(a.first, b.first) })
	merged := ranges[:0]
	for _, next := range ranges {
		if end := len(merged) - 1; end >= 0 && next.first <= merged[end].last {
			merged[end].last = max(merged[end].last, next.last)
			continue
		}
		merged = append(merged, next)
	}
	return merged
}

// IsEmpty reports whether no rank is in the set.
func (s *Set) IsEmpty() bool {
	return len(s.ranges) == 0
}

// Count counts the ranks in the set.
func (s *Set) Count() int32 {
	var count int32
	for _, each := range s.ranges {
		count += each.last - each.first + 1
	}
	return count
}

// Has reports whether a rank is in the set.
func (s *Set) Has(rank int32) bool {
	_, found := slices.BinarySearchFunc(s.ranges, rank, func(each rankRange, rank int32) int {
		switch {
		case each.last < rank:
			return -1
		case each.first > rank:
			return 1
		}
		return 0
	})
	return found
}

// FormatRun formats ranks in the given order, with ascending runs as ranges, "1-2,4,3".
func FormatRun(ranks []int32) string {
	var ranges []string
	for i := 0; i < len(ranks); {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		ranges = append(ranges, formatRange(ranks[i], ranks[end]))
		i = end + 1
	}
	return strings.Join(ranges, ",")
}

func formatRange(first, last int32) string {
	if first == last {
		return strconv.Itoa(int(first))
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// ReadRun parses the text that FormatRun returns. It returns nothing for any other text.
func ReadRun(text string) []int32 {
	if text == "" {
		return nil
	}
	var ranks []int32
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := parseRange(part)
		if !isRange || from < 0 || to >= limits.Replicas ||
			int64(len(ranks))+to-from >= limits.Replicas {
			return nil
		}
		for rank := from; rank <= to; rank++ {
			ranks = append(ranks, int32(rank))
		}
	}
	return ranks
}
