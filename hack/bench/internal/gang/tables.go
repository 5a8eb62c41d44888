// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

const waitNotes = `
Waited: from a job's submission until as many of its pods were bound as it has. Spread: from the first of these to the last.
Early: how long pods of a job ran while fewer were bound, of the jobs where any did. Overtaken: by how many jobs that were
submitted later and placed earlier. Pods end by themselves, so that jobs end without gangs, too; real ones would wait for
each other.
`

const requestNotes = `
Requests per job, from its submission until it has ended and everybody rests; Leases apart. The controllers are the one that
lets go of PodGroups whose pods have ended.
`

// printAll prints the tables.
func printAll(out io.Writer, o *options, gangs, plain *outcome) error {
	fmt.Fprint(out, "\n## waiting\n\n")
	if err := printWaiting(out, gangs, plain); err != nil {
		return err
	}
	fmt.Fprint(out, waitNotes)
	fmt.Fprint(out, "\n## requests\n\n")
	if err := printRequests(out, o, gangs, plain); err != nil {
		return err
	}
	fmt.Fprint(out, requestNotes, "\n## what must hold\n\n")
	return nil
}

func printWaiting(out io.Writer, gangs, plain *outcome) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs\twhat\tmin\tmedian\tp99\tmax\t")
	for _, row := range []struct {
		name string
		of   *outcome
	}{{"with gangs", gangs}, {"without", plain}} {
		var waited, spread, early []time.Duration
		for _, p := range row.of.placings {
			waited, spread = append(waited, p.waited), append(spread, p.spread)
			if p.early > 0 {
				early = append(early, p.early)
			}
		}
		fmt.Fprintf(table, "%s\twaited\t%s\t\n", row.name, quartet(waited))
		fmt.Fprintf(table, "%s\tspread\t%s\t\n", row.name, quartet(spread))
		fmt.Fprintf(table, "%s\tearly (%d)\t%s\t\n", row.name, len(early), quartet(early))
		over := slices.Sorted(slices.Values(overtaken(row.of.placings)))
		fmt.Fprintf(table, "%s\tovertaken\t%d\t%d\t%d\t%d\t\n", row.name, over[0], over[len(over)/2], over[len(over)*99/100], over[len(over)-1])
		fmt.Fprintf(table, "%s\tall took\t\t\t\t%s\t\n", row.name, figures.Seconds(row.of.took))
		fmt.Fprintf(table, "%s\tpods at a time\t\t\t\t%d\t\n", row.name, row.of.most)
	}
	return table.Flush()
}

// quartet formats the minimum, the median, the 99th percentile and the maximum.
func quartet(times []time.Duration) string {
	if len(times) == 0 {
		return "-\t-\t-\t-"
	}
	shown := make([]string, 0, 4)
	for _, percent := range []float64{0, 50, 99, 100} {
		shown = append(shown, figures.Seconds(figures.Percentile(times, percent)))
	}
	return strings.Join(shown, "\t")
}

func printRequests(out io.Writer, o *options, gangs, plain *outcome) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "who\trequest\twith gangs\twithout")
	for _, who := range []struct{ name, user string }{{"operator", harness.UserOperator}, {"scheduler", userScheduler}, {"controllers", userControllers}} {
		ours, theirs := gangs.asked[who.user].Without("leases"), plain.asked[who.user].Without("leases")
		both := maps.Clone(ours)
		maps.Copy(both, theirs)
		kinds := slices.SortedFunc(maps.Keys(both), func(a, b string) int {
			return cmp.Or(cmp.Compare(ours[b], ours[a]), cmp.Compare(theirs[b], theirs[a]), cmp.Compare(a, b))
		})
		for _, kind := range kinds {
			fmt.Fprintf(table, "%s\t%s\t%.2f\t%.2f\n", who.name, kind, per(ours[kind], o.gangs), per(theirs[kind], o.gangs))
		}
		fmt.Fprintf(table, "%s\tall\t%.2f\t%.2f\n", who.name, per(ours.All(), o.gangs), per(theirs.All(), o.gangs))
	}
	return table.Flush()
}

func per(count, jobs int) float64 { return float64(count) / float64(jobs) }

// requirement is a requirement and whether it holds.
type requirement struct {
	holds bool
	text  string
}

// otherRequests is the maximum number of additional requests of the operator for a gang, compared
// with a job without one and without Events. The operator creates and deletes its PodGroup, and
// writes that the job waits and that it is placed.
const otherRequests = 4

// requirements returns the requirements of a run.
func requirements(o *options, gangs, plain *outcome) []requirement {
	var partial int
	var longest time.Duration
	for _, p := range gangs.placings {
		longest = max(longest, p.early)
		if p.early > o.settle {
			partial++
		}
	}
	require := func(holds bool, format string, arguments ...any) requirement {
		return requirement{holds, fmt.Sprintf(format, arguments...)}
	}
	of := func(from *outcome) float64 {
		return per(from.asked[harness.UserOperator].Without("leases").Without("events").All(), o.gangs)
	}
	bound := gangs.asked[userScheduler]["create pods/binding"]
	read := readsOfJobs(gangs)
	return []requirement{
		require(partial == 0, "no gang starts in part: %d of %d had pods that ran for more than %s while fewer than %d were bound; the longest for %s",
			partial, o.gangs, o.settle, o.size, figures.Seconds(longest)),
		require(gangs.succeeded == o.gangs, "all gangs end: %d of %d jobs succeeded", gangs.succeeded, o.gangs),
		require(gangs.restarted == 0, "none is placed again: %d jobs restarted or were rescheduled", gangs.restarted),
		require(gangs.most <= o.room*o.size, "none is placed where there is no room: at most %d pods at a time, room is for %d", gangs.most, o.room*o.size),
		require(bound == o.gangs*o.size, "each pod is bound once: %d bindings of %d pods", bound, o.gangs*o.size),
		require(read == 0, "the operator reads jobs, and what they consist of, from its caches: %d GETs and LISTs", read),
		require(of(gangs) <= of(plain)+otherRequests, "a gang takes at most %d requests of the operator more than a job without, Events apart: %.2f and %.2f",
			otherRequests, of(gangs), of(plain)),
	}
}

// readsOfJobs counts the operator's GETs and LISTs of jobs and their objects. It excludes the
// periodic reads of certificates and of the schedulers' APIs.
func readsOfJobs(of *outcome) int {
	count := 0
	for _, resource := range []string{"dijobs", "pods", "services", "podgroups", "nodes", "memberships"} {
		for _, verb := range []string{"get", "list"} {
			count += of.asked[harness.UserOperator][verb+" "+resource]
		}
	}
	return count
}

// judge prints the requirements and returns an error if one does not hold.
func judge(out io.Writer, all []requirement) error {
	var missed error
	for _, each := range all {
		word := "holds"
		if !each.holds {
			word, missed = "MISSED", errors.Join(missed, fmt.Errorf("missed: %s", each.text))
		}
		fmt.Fprintf(out, "%s: %s\n", word, each.text)
	}
	return missed
}
