// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package start

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
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

// profile plays one more round of the operator. It writes the processor profiles of the operator and of
// the API server for go tool pprof, and each request with its time to requests.csv.
func (w *world) profile(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() error {
		raw, err := program.Read(reading, "http://"+w.pprof+"/debug/pprof/profile?seconds=10")
		return errors.Join(err, os.WriteFile(filepath.Join(folder, "operator.pprof"), raw, 0o600))
	})
	played, err := w.play(ctx, "operator, with profiles", w.submitJobs)
	if err = errors.Join(err, group.Wait()); err != nil {
		return err
	}
	return w.writeRequests(filepath.Join(folder, "requests.csv"), played)
}

// writeRequests writes the requests since a round began: seconds, user and request.
func (w *world) writeRequests(path string, of *round) (err error) {
	file, err := os.Create(filepath.Clean(path))
	if err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	defer harness.Close(&err, file.Close)
	out := csv.NewWriter(file)
	defer out.Flush()
	if err := out.Write([]string{"seconds", "user", "request", "code"}); err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	return w.Events(of.mark, func(event *controlplane.Event) error {
		after := strconv.FormatFloat(event.Received.Sub(of.began).Seconds(), 'f', 3, 64)
		return out.Write([]string{after, event.User.Username, event.What(), strconv.Itoa(event.ResponseStatus.Code)})
	})
}
