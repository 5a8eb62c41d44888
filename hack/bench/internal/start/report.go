// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package start

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
)

func created(r *round) time.Duration { return r.created }
func running(r *round) time.Duration { return r.running }

// timeOf returns the median of a time in seconds.
func timeOf(rounds []*round, of func(*round) time.Duration) float64 {
	all := make([]time.Duration, 0, len(rounds))
	for _, each := range rounds {
		all = append(all, of(each))
	}
	return median(all).Seconds()
}

// startOf returns the medians of a client's rounds.
func startOf(client string, rounds []*round) results.Start {
	return results.Start{Client: client, Created: timeOf(rounds, created), Running: timeOf(rounds, running)}
}

// requestsOf returns the median number of requests of all users, except for Leases.
func requestsOf(rounds []*round) float64 {
	all := make([]int, 0, len(rounds))
	for _, each := range rounds {
		count := 0
		for _, requests := range each.asked {
			count += requests.Without("leases").All()
		}
		all = append(all, count)
	}
	return float64(median(all))
}

func median[T cmp.Ordered](all []T) T {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// print prints the times and the requests.
func (o *Options) print(b *harness.Bench, plain, ours []*round) error {
	each := float64(o.jobs * o.pods)
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "\tplain client\toperator\tratio\t")
	row := func(name string, reference, operator float64) {
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f\t\n", name, reference, operator, operator/reference)
	}
	row("all pods created after, s", timeOf(plain, created), timeOf(ours, created))
	row("all pods running after, s", timeOf(plain, running), timeOf(ours, running))
	row("requests for a pod", requestsOf(plain)/each, requestsOf(ours)/each)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(b.Out, "\nProcessor time until all pods run, in seconds:")
	table = b.Table(0)
	fmt.Fprintln(table, "program\tplain client\toperator")
	for _, name := range slices.Sorted(maps.Keys(ours[0].processor)) {
		of := func(r *round) time.Duration { return r.processor[name] }
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\n", name, timeOf(plain, of), timeOf(ours, of))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(b.Out, "\nRequests for a pod in the last round, Leases apart:")
	table = b.Table(0)
	fmt.Fprintln(table, "who\trequest\tplain client\toperator")
	reference, operator := plain[len(plain)-1].asked, ours[len(ours)-1].asked
	for _, user := range slices.Sorted(maps.Keys(operator)) {
		both := maps.Clone(operator[user].Without("leases"))
		maps.Copy(both, reference[user].Without("leases"))
		for _, what := range slices.Sorted(maps.Keys(both)) {
			fmt.Fprintf(table, "%s\t%s\t%.3f\t%.3f\n", user, what, float64(reference[user][what])/each, float64(operator[user][what])/each)
		}
	}
	return table.Flush()
}
