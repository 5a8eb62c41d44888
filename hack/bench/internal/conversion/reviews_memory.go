// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
)

// memoryRow is a process whose memory is measured.
type memoryRow struct {
	endpoint    string
	environment []string
	// together is how many of the largest reviews are sent at once.
	together int
}

// measureMemory writes what memory an endpoint's process takes for the largest
// review.
func measureMemory(ctx context.Context, out io.Writer) error {
	row := largestReview()
	body, err := row.body()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nMemory of the endpoint's process, for reviews of %d objects of %d kB, %d MB\n\n", row.objects, row.kilobyte, len(body)/1_000_000)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "endpoint\tGOMEMLIMIT\treviews at once\tMiB before\tpeak MiB\tMiB after\t")
	for _, memory := range []memoryRow{
		{endpointOurs, []string{harness.OperatorMemoryLimit}, 1},
		{endpointOurs, []string{harness.OperatorMemoryLimit}, 4},
		{endpointOurs, []string{"GOMEMLIMIT=off"}, 1},
		{endpointReference, []string{"GOMEMLIMIT=off"}, 1},
	} {
		if err := memory.measure(ctx, table, body); err != nil {
			return errors.Join(err, table.Flush())
		}
	}
	return table.Flush()
}

// measure writes one process's memory.
func (m memoryRow) measure(ctx context.Context, out io.Writer, body []byte) error {
	endpoint, err := start(ctx, m.endpoint, 0, m.environment...)
	if err != nil {
		return err
	}
	before, err := endpoint.Usage()
	if err != nil {
		return errors.Join(err, endpoint.stop())
	}
	var group errgroup.Group
	for range m.together {
		group.Go(func() error { return (&measured{endpoint: endpoint}).ask(ctx, body) })
	}
	if err := group.Wait(); err != nil {
		return errors.Join(err, endpoint.stop())
	}
	after, err := endpoint.Usage()
	if err != nil {
		return errors.Join(err, endpoint.stop())
	}
	fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%d\t\n", m.endpoint, m.environment[0][len("GOMEMLIMIT="):], m.together,
		before.Resident>>20, after.PeakBytes>>20, after.Resident>>20)
	return endpoint.stop()
}
