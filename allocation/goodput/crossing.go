// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"math"

	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/topology"
)

// spanOn returns the span of nodes: one more than the levels that they cross, 0 without a topology.
func spanOn(tree *topology.Tree, placeOf map[string]int, nodes []string) int {
	if tree == nil {
		return 0
	}
	var places []int
	for _, node := range nodes {
		if place, exists := placeOf[node]; exists {
			places = append(places, place)
		}
	}
	return tree.Crossed(places) + 1
}

// mostGuessed bounds by how much longer the network of a job is expected to take because that of others does: it is tried, and
// then known.
const mostGuessed = 10

// pair is a span and a wider one.
type pair [model.MaxSpan + 1][model.MaxSpan + 1]float64

// guessCrossings fills in how much longer the network takes at spans that jobs have not measured: by the mean ratio among the jobs
// that have measured both, else as at the next narrower span. A wider span is not faster.
func guessCrossings(views []*view) {
	var sums, counts pair
	for _, v := range views {
		for kind := range v.curves {
			sums.add(&counts, &v.curves[kind].crossings)
		}
	}
	for _, v := range views {
		for kind := range v.curves {
			c := &v.curves[kind]
			c.crossings = complete(c.crossings, &sums, &counts)
		}
		v.curve = v.curves[v.kind]
	}
}

// add adds the ratios that one job has measured.
func (p *pair) add(counts *pair, known *model.Crossings) {
	for narrow := 1; narrow <= model.MaxSpan; narrow++ {
		for wide := narrow + 1; wide <= model.MaxSpan; wide++ {
			if known[narrow] > 0 && known[wide] > 0 {
				p[narrow][wide] += math.Log(math.Min(known[wide]/known[narrow], mostGuessed))
				counts[narrow][wide]++
			}
		}
	}
}

// complete returns the factors of all spans. They change in steps of five percent, so that the speeds of jobs do not change with
// each report of another one. A job whose spans are not known is judged as one that has measured the least.
func complete(known model.Crossings, sums, counts *pair) model.Crossings {
	full, base := known, 0
	for span := model.MaxSpan; span > 0; span-- {
		if known[span] > 0 {
			base = span
		}
	}
	if base == 0 {
		full[1], base = 1, 1
	}
	ratio := func(narrow, wide int) float64 {
		if counts[narrow][wide] == 0 {
			return 1
		}
		return math.Exp(math.Max(math.Round(20*sums[narrow][wide]/counts[narrow][wide])/20, 0))
	}
	for span := base - 1; span > 0; span-- {
		full[span] = full[base] / ratio(span, base)
	}
	for span := 2; span <= model.MaxSpan; span++ {
		for narrow := span - 1; narrow > 0 && full[span] == 0; narrow-- {
			if counts[narrow][span] > 0 {
				full[span] = full[narrow] * ratio(narrow, span)
			}
		}
		full[span] = math.Max(full[span], full[span-1])
	}
	return full
}
