// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/testkit/jobs"
)

const (
	// requiredRatio is how many times as many objects as controller-runtime's
	// endpoint ours must convert in the same time of a processor, in every row.
	requiredRatio = 3
	// rowTime is how long each endpoint is measured in a row, and minRequests how
	// often at least.
	rowTime     = 900 * time.Millisecond
	minRequests = 3
	// operatorHeap is about what an operator has in its heap without any
	// conversion. With less, collecting is what a small review costs most.
	operatorHeap = 32 << 20
	// roundTime is how long an endpoint's turn is.
	roundTime = 200 * time.Millisecond
)

// The lines of the table are written one by one, as it takes minutes.
const (
	rowFormat     = "%8s %7v %3v |%s |%s |%10s%6s%6s%10s  %s\n"
	columnsFormat = "%10s%10s%10s%9s%8s"
)

const reviewsPreface = `Whole reviews over TLS, one after another, by our endpoint and by controller-runtime's with typed
conversion functions, each in a process of its own with 32 MiB in its heap besides, as an operator has, in turns.
us is processor time of that process for an object, which other load disturbs less than the clock does;
transport is what answering with the same bytes costs. ratio is controller-runtime's us over ours; net is the same less
transport, and is what counts for single objects, which are mostly transport. Required: %d, and p99 within the limit.

`

// reviewRow is a shape of review.
type reviewRow struct {
	from, to string
	objects  int
	kilobyte int
	// limit is what the 99th of 100 may take by the service level objective for
	// conversion webhooks (KEP-95); 0 where it says nothing.
	limit time.Duration
}

// reviewRows are the shapes that are measured.
func reviewRows() []reviewRow {
	v1, v2 := v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String()
	var rows []reviewRow
	for _, direction := range [][2]string{{v1, v2}, {v2, v1}} {
		for _, objects := range []int{1, 50, 500, 2000} {
			for _, kilobytes := range []int{2, 10, 50} {
				row := reviewRow{from: direction[0], to: direction[1], objects: objects, kilobyte: kilobytes}
				switch {
				case objects == 1:
					row.limit = 50 * time.Millisecond
				case objects == 2000 && kilobytes == 50:
					row.limit = 6 * time.Second
				}
				rows = append(rows, row)
			}
		}
	}
	return append(rows,
		reviewRow{v1, v2, 1500, 10, time.Second},
		largestReview(),
	)
}

// largestReview is the largest list that the service level objective names.
func largestReview() reviewRow {
	return reviewRow{v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String(), 10_000, 10, 6 * time.Second}
}

// body returns the review of the row as an API server sends it.
func (r reviewRow) body() ([]byte, error) {
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"%s","desiredAPIVersion":%q,"objects":[`,
		"705ab4f5-6393-11e8-b7cc-42010a800002", r.to)
	for i := range r.objects {
		job, err := jobs.Of("bench", fmt.Sprintf("job-%05d", i), r.kilobyte*1000)
		if err == nil && r.from != v1alpha1.GroupVersion.String() {
			job, err = conversion.Convert(job, r.from)
		}
		if err != nil {
			return nil, err
		}
		if i > 0 {
			body.WriteByte(',')
		}
		body.Write(job)
	}
	body.WriteString("]}}")
	return body.Bytes(), nil
}

// measured is what an endpoint took in a row.
type measured struct {
	endpoint *served
	times    []time.Duration
	total    time.Duration
	// bytes and cpu are what the endpoint allocated and how long it computed.
	bytes uint64
	cpu   float64
}

// reviews measures whole reviews, and the memory that the largest takes.
func reviews(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, reviewsPreface, requiredRatio)
	// The memory is worth knowing also where a row is not as required.
	return errors.Join(measureRows(ctx, out), measureMemory(ctx, out))
}

// measureRows writes a line for each row. It fails, at its end, if one is not
// as required.
func measureRows(ctx context.Context, out io.Writer) error {
	var endpoints []*served
	var failed error
	for _, name := range []string{endpointOurs, endpointReference, endpointTransport} {
		endpoint, err := start(ctx, name, operatorHeap)
		if err != nil {
			failed = err
			break
		}
		endpoints = append(endpoints, endpoint)
	}
	fmt.Fprintf(out, rowFormat, "", "", "", fmt.Sprintf("%47s", endpointOurs), fmt.Sprintf("%47s", endpointReference), "transport", "", "", "", "")
	each := fmt.Sprintf(columnsFormat, "p50 ms", "p99 ms", "objects/s", "B/object", "us")
	fmt.Fprintf(out, rowFormat, "to", "objects", "kB", each, each, "us", "ratio", "net", "p99 limit", "verdict")
	for _, row := range reviewRows() {
		if len(endpoints) < 3 {
			break
		}
		all, err := row.measure(ctx, endpoints...)
		if err != nil {
			failed = errors.Join(failed, err)
			break
		}
		failed = errors.Join(failed, row.print(out, all[0], all[1], all[2]))
	}
	for _, endpoint := range endpoints {
		failed = errors.Join(failed, endpoint.stop())
	}
	return failed
}

// measure sends the row's review to the endpoints, in turns, until both have
// had their time.
func (r reviewRow) measure(ctx context.Context, endpoints ...*served) ([]*measured, error) {
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	var all []*measured
	for _, endpoint := range endpoints {
		one := &measured{endpoint: endpoint}
		// The first review pays for connection and growth.
		if err := one.ask(ctx, body); err != nil {
			return nil, err
		}
		one.times, one.total = nil, 0
		all = append(all, one)
	}
	for done := false; !done; {
		done = true
		for _, one := range all {
			if one.total >= rowTime && len(one.times) >= minRequests {
				continue
			}
			done = false
			if err := one.round(ctx, body); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// round measures one endpoint's turn.
func (m *measured) round(ctx context.Context, body []byte) error {
	before, err := m.endpoint.cost(ctx)
	if err != nil {
		return err
	}
	for end := m.total + roundTime; m.total < end; {
		if err := m.ask(ctx, body); err != nil {
			return err
		}
	}
	after, err := m.endpoint.cost(ctx)
	if err != nil {
		return err
	}
	m.bytes += after.Allocated - before.Allocated
	m.cpu += after.CPUSeconds - before.CPUSeconds
	return nil
}

// ask sends one review and times its answer.
func (m *measured) ask(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.endpoint.Address+"/convert", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking for a conversion: %w", err)
	}
	began := time.Now()
	response, err := m.endpoint.client.Do(request)
	if err != nil {
		return fmt.Errorf("asking for a conversion: %w", err)
	}
	answer, err := io.ReadAll(response.Body)
	took := time.Since(began)
	err = errors.Join(err, response.Body.Close())
	switch {
	case err != nil:
		return fmt.Errorf("asking for a conversion: %w", err)
	case response.StatusCode != http.StatusOK || m.endpoint.converts && !bytes.Contains(answer, []byte(`"status":"Success"`)):
		return fmt.Errorf("asking for a conversion: %s: %.500s", response.Status, answer)
	}
	m.times = append(m.times, took)
	m.total += took
	return nil
}

// percentile returns the time below which so many of 100 were.
func (m *measured) percentile(percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(m.times))
	return sorted[(len(sorted)-1)*percent/100]
}

// microseconds is how long the endpoint computed for an object.
func (m *measured) microseconds(objects int) float64 {
	return m.cpu * 1e6 / float64(len(m.times)*objects)
}

// columns are the figures of an endpoint.
func (m *measured) columns(objects int) string {
	count := float64(len(m.times) * objects)
	return fmt.Sprintf(columnsFormat, shown(m.percentile(50)), shown(m.percentile(99)),
		fmt.Sprintf("%.0f", count/m.total.Seconds()), fmt.Sprintf("%.0f", float64(m.bytes)/count), tenths(m.microseconds(objects)))
}

// print writes the row, and fails if it is not as required.
func (r reviewRow) print(out io.Writer, ours, reference, transport *measured) error {
	floor := transport.microseconds(r.objects)
	ratio := reference.microseconds(r.objects) / ours.microseconds(r.objects)
	net := (reference.microseconds(r.objects) - floor) / (ours.microseconds(r.objects) - floor)
	counts, limit := ratio, "-"
	if r.objects == 1 {
		counts = net
	}
	// Less than nothing beside transport is not to be told from it.
	good := counts >= requiredRatio || ours.microseconds(r.objects) <= floor
	if r.limit > 0 {
		limit = r.limit.String()
		good = good && ours.percentile(99) <= r.limit
	}
	verdict := "PASS"
	if !good {
		verdict = "FAIL"
	}
	to := strings.TrimPrefix(r.to, v2alpha1.GroupName+"/")
	fmt.Fprintf(out, rowFormat, to, r.objects, r.kilobyte,
		ours.columns(r.objects), reference.columns(r.objects), tenths(floor), tenths(ratio), tenths(net), limit, verdict)
	if !good {
		return fmt.Errorf("%d objects of %d kB to %s: ratio %.1f, net %.1f, p99 %s ms", r.objects, r.kilobyte, to, ratio, net, shown(ours.percentile(99)))
	}
	return nil
}

// shown is a time in milliseconds.
func shown(took time.Duration) string {
	return fmt.Sprintf("%.2f", float64(took)/float64(time.Millisecond))
}

func tenths(value float64) string { return fmt.Sprintf("%.1f", value) }
