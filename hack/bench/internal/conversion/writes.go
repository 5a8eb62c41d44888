// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/testkit/jobs"
)

const (
	// writesPerRow is the number of writes, half of the spec and half of the status.
	writesPerRow = 1000
	writesBytes  = 10_000
	oldManager   = client.FieldOwner("old-client")
	namespace    = "default"
)

// writesRow is one way to write a job, with its expected cost.
type writesRow struct {
	// version is the version of the writes, by server-side apply or by an update.
	version string
	apply   bool
	// named are the versions in managedFields.
	named []string
	// served reports whether v1alpha1 is served.
	served bool
	// hasty writes do not wait for the watch caches.
	hasty bool
	// expected is the number of conversions per write. why lists their causes.
	expected float64
	why      string
}

// The API server converts a job for a write in these cases, in this order. Through v1alpha1 it
// encodes the cached job and the new one in the stored version and decodes the answer. While
// v1alpha1 is served, it updates the watch cache of v1alpha1. For managedFields of a version that
// is not the request's, it converts the job before and after the write to detect a change of the
// schema. An apply also checks, in both versions and back, whether another manager owns the fields
// that it no longer sets.
func writesRows() []writesRow {
	v1, v2 := v1alpha1.Version, v2alpha1.Version
	return []writesRow{
		{version: v2, named: []string{v2}, served: true, expected: 1, why: "watch cache"},
		{version: v2, named: []string{v1, v2}, served: true, expected: 4, why: "watch cache, 3 for managedFields"},
		{version: v1, named: []string{v1}, served: true, expected: 4, why: "watch cache, 2 to store, answer"},
		{version: v1, named: []string{v1, v2}, served: true, expected: 7, why: "the same, 3 for managedFields"},
		{version: v1, apply: true, named: []string{v1}, served: true, expected: 4, why: "watch cache, 2 to store, answer"},
		{version: v1, apply: true, named: []string{v1, v2}, served: true, expected: 10, why: "the same, 6 for managedFields"},
		{version: v1, hasty: true, named: []string{v1}, served: true, expected: 4, why: "more where the cached job was stale"},
		{version: v2, named: []string{v1, v2}, expected: 3, why: "managedFields, until they are cleaned"},
		{version: v2, named: []string{v2}, expected: 0, why: "the reference"},
	}
}

// writesResult is the measured cost of a row.
type writesResult struct {
	conversions, reviews float64
	mean, p99            time.Duration
}

// runWrites counts the API server's conversions for each write of a job.
func runWrites(ctx context.Context, out io.Writer) (err error) {
	p, err := startPlane()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	counting := startConverter(conversion.NewHandler(conversion.Options{}))
	defer counting.server.Close()
	if err := p.convertBy(ctx, counting); err != nil {
		return err
	}
	fmt.Fprintf(out, "One job of %d kB, written %d times, spec and status in turn; stored as v2alpha1.\n\n", writesBytes/1000, writesPerRow)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "v1alpha1\twritten by\tmanagedFields name\tconversions/write\texpected\tobjects/review\tmean\tp99\t\twhat for")
	var failed error
	for i, row := range writesRows() {
		result, err := p.measureWrites(ctx, counting, row, fmt.Sprint("written-", i))
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		verdict := "PASS"
		if !row.holds(result) {
			verdict = "FAIL"
			failed = errors.Join(failed, fmt.Errorf("row %d: %.2f conversions for a write, expected %.0f", i, result.conversions, row.expected))
		}
		fmt.Fprintf(table, "%s\t%s\t%v\t%.2f\t%.0f\t%.1f\t%s\t%s\t%s\t%s\n", row.servedText(), row.how(), row.named, result.conversions,
			row.expected, result.conversions/max(result.reviews, 1e-9), millis(result.mean), millis(result.p99), verdict, row.why)
	}
	failed = errors.Join(table.Flush(), failed)
	fmt.Fprint(out, writesNotes)
	return failed
}

// writesNotes explain the table.
const writesNotes = `
A row counts all conversions, those for the watch cache of v1alpha1 included. It waits after each write until the caches
have the job, except back to back. Through v1alpha1 the job that the write starts from is encoded as well, to see whether
anything changes. managedFields cost 3 conversions more where they name the version that is not the request's: once before
the merge, to follow changes of the schema, and the old and the new job to see what changed; 3 further ones for an apply.
They cost so also when that version is no longer served: only without entries of v1alpha1 a write converts nothing.
`

// holds reports whether the row has the expected cost. A write that does not wait for the watch
// cache is retried if the cached job is stale.
func (r writesRow) holds(result writesResult) bool {
	if r.hasty {
		return result.conversions >= r.expected
	}
	return math.Abs(result.conversions-r.expected) < 0.005
}

func (r writesRow) servedText() string {
	if r.served {
		return "served"
	}
	return "not served"
}

func (r writesRow) how() string {
	switch {
	case r.apply:
		return "apply " + r.version
	case r.hasty:
		return "update " + r.version + ", back to back"
	}
	return "update " + r.version
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// measureWrites writes a new job as the row specifies.
func (p *plane) measureWrites(ctx context.Context, counting *converter, row writesRow, name string) (writesResult, error) {
	if err := p.serve(ctx, true); err != nil {
		return writesResult{}, err
	}
	if err := p.makeWritten(ctx, row, name); err != nil {
		return writesResult{}, err
	}
	if !row.served {
		if err := errors.Join(p.serve(ctx, false), p.restart(ctx)); err != nil {
			return writesResult{}, err
		}
	}
	job, err := p.warmUp(ctx, row, name)
	if err != nil {
		return writesResult{}, err
	}
	counting.taken()
	took := make([]time.Duration, writesPerRow)
	for i := range took {
		began := time.Now()
		if job, err = p.write(ctx, row, name, i, job); err != nil {
			return writesResult{}, err
		}
		took[i] = time.Since(began)
		if row.hasty {
			continue
		}
		if err := p.settle(ctx, row, job); err != nil {
			return writesResult{}, err
		}
	}
	if err := p.settle(ctx, row, job); err != nil {
		return writesResult{}, err
	}
	reviews, objects := counting.taken()
	return resultOf(took, reviews, objects), checkNamed(job, row.named)
}

// warmUp writes spec and status once, after which managedFields remain the same.
func (p *plane) warmUp(ctx context.Context, row writesRow, name string) (*unstructured.Unstructured, error) {
	var job *unstructured.Unstructured
	var err error
	for i := range 2 {
		if job, err = p.write(ctx, row, name, i-2, job); err != nil {
			return nil, err
		}
	}
	return job, p.settle(ctx, row, job)
}

func resultOf(took []time.Duration, reviews, objects int64) writesResult {
	var total time.Duration
	for _, one := range took {
		total += one
	}
	slices.Sort(took)
	writes := float64(len(took))
	return writesResult{
		conversions: float64(objects) / writes, reviews: float64(reviews) / writes,
		mean: total / time.Duration(len(took)), p99: took[len(took)*99/100],
	}
}

// makeWritten creates the job so that its managedFields have the versions of the row.
func (p *plane) makeWritten(ctx context.Context, row writesRow, name string) error {
	job, err := storedJob(name, writesBytes)
	if err != nil {
		return err
	}
	if !slices.Contains(row.named, v2alpha1.Version) {
		if job, err = inVersion(job, v1alpha1.GroupVersion); err != nil {
			return err
		}
	}
	if err := p.api.Create(ctx, job); err != nil {
		return fmt.Errorf("creating the job: %w", err)
	}
	if !slices.Contains(row.named, v1alpha1.Version) {
		return nil
	}
	label := newJob(v1alpha1.Version, name)
	label.SetLabels(map[string]string{"old": "client"})
	if err := p.api.Apply(ctx, client.ApplyConfigurationFromUnstructured(label), oldManager); err != nil {
		return fmt.Errorf("applying a label: %w", err)
	}
	return nil
}

// storedJob returns a job of v2alpha1 of about the given size in bytes.
func storedJob(name string, bytes int) (*unstructured.Unstructured, error) {
	raw, err := jobs.Of(namespace, name, bytes)
	if err != nil {
		return nil, err
	}
	if raw, err = conversion.Convert(raw, v2alpha1.GroupVersion.String()); err != nil {
		return nil, fmt.Errorf("converting a job: %w", err)
	}
	job := &unstructured.Unstructured{}
	if err := job.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decoding a job: %w", err)
	}
	return job, nil
}

func inVersion(job *unstructured.Unstructured, version schema.GroupVersion) (*unstructured.Unstructured, error) {
	raw, err := job.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding a job: %w", err)
	}
	if raw, err = conversion.Convert(raw, version.String()); err != nil {
		return nil, fmt.Errorf("converting a job: %w", err)
	}
	converted := &unstructured.Unstructured{}
	return converted, converted.UnmarshalJSON(raw)
}

func newJob(version, name string) *unstructured.Unstructured {
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: version, Kind: "DIJob"})
	job.SetNamespace(namespace)
	job.SetName(name)
	return job
}

// write writes the spec or the status of the job and returns the stored job. It reads the job first
// if none is given.
func (p *plane) write(ctx context.Context, row writesRow, name string, i int, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if row.apply {
		return p.applyOnce(ctx, row.version, name, i)
	}
	if job == nil {
		job = newJob(row.version, name)
		if err := p.api.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return nil, fmt.Errorf("reading the job: %w", err)
		}
	}
	setWritten(job, i)
	if i%2 == 0 {
		return job, p.api.Update(ctx, job)
	}
	return job, p.api.Status().Update(ctx, job)
}

func (p *plane) applyOnce(ctx context.Context, version, name string, i int) (*unstructured.Unstructured, error) {
	job := newJob(version, name)
	if i%2 != 0 {
		setWritten(job, i)
		return job, p.api.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(job), oldManager, client.ForceOwnership)
	}
	setWritten(job, i)
	job.SetLabels(map[string]string{"old": "client"})
	return job, p.api.Apply(ctx, client.ApplyConfigurationFromUnstructured(job), oldManager, client.ForceOwnership)
}

// setWritten changes a value that both versions share: a field of the spec for an even number,
// otherwise of the status.
func setWritten(job *unstructured.Unstructured, i int) {
	if i%2 == 0 {
		spec, _ := job.Object["spec"].(map[string]any)
		if spec == nil {
			spec = map[string]any{}
			job.Object["spec"] = spec
		}
		spec["group"] = strconv.Itoa(i)
		return
	}
	status, _ := job.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		job.Object["status"] = status
	}
	status["conditions"] = []any{map[string]any{"type": "Running", "status": "True", "message": strconv.Itoa(i)}}
}

// settle returns when the watch caches of the served versions contain the last write. The caches
// convert after the write.
func (p *plane) settle(ctx context.Context, row writesRow, job *unstructured.Unstructured) error {
	options := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: job.GetResourceVersion()}}
	for _, version := range []string{v1alpha1.Version, v2alpha1.Version} {
		if version == v1alpha1.Version && !row.served {
			continue
		}
		seen := newJob(version, job.GetName())
		if err := p.api.Get(ctx, client.ObjectKeyFromObject(seen), seen, options); err != nil {
			return fmt.Errorf("waiting for the watch cache of %s: %w", version, err)
		}
	}
	return nil
}

// checkNamed returns an error unless managedFields have the wanted versions.
func checkNamed(job *unstructured.Unstructured, want []string) error {
	var named []string
	for _, entry := range job.GetManagedFields() {
		version, err := schema.ParseGroupVersion(entry.APIVersion)
		if err != nil {
			return fmt.Errorf("managedFields: %w", err)
		}
		named = append(named, version.Version)
	}
	slices.Sort(named)
	if named = slices.Compact(named); !slices.Equal(named, want) {
		return fmt.Errorf("managedFields name %v, expected %v", named, want)
	}
	return nil
}
