// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

const (
	// writesBytes is the size of the job that is written.
	writesBytes = 10_000
	oldManager  = client.FieldOwner("old-client")
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

// BenchmarkWrites writes a job of 10 kB, spec and status in turn, stored as v2alpha1, and counts all conversions that the API
// server asks for, those for the watch cache of v1alpha1 included. It fails if they are others than expected. The
// reference is the last row, which converts nothing.
func BenchmarkWrites(b *testing.B) {
	p, err := startRestartable()
	expect.NoError(b, err)
	b.Cleanup(func() {
		if err := p.stop(); err != nil {
			b.Error(err)
		}
	})
	counting := startConverter(conversion.NewHandler(conversion.Options{}))
	b.Cleanup(counting.server.Close)
	expect.NoError(b, p.convertBy(b.Context(), counting))
	for i, row := range writesRows() {
		b.Run(row.String(), func(b *testing.B) { p.measure(b, counting, row, fmt.Sprint("written-", i)) })
	}
}

// holds reports whether so many conversions for a write are expected. A write that does not wait for the watch
// cache is retried if the cached job is stale.
func (r writesRow) holds(conversions float64) bool {
	if r.hasty {
		return conversions >= r.expected
	}
	return math.Abs(conversions-r.expected) < 0.005
}

// String is the name of the benchmark.
func (r writesRow) String() string {
	how := "update"
	switch {
	case r.apply:
		how = "apply"
	case r.hasty:
		how = "update-back-to-back"
	}
	served := v1 + "-served"
	if !r.served {
		served = v1 + "-not-served"
	}
	return strings.Join([]string{served, how, r.version, "managedFields", strings.Join(r.named, "+")}, "/")
}

// measure writes a new job as the row says, and counts the conversions of each write.
func (p *restartable) measure(b *testing.B, counting *converter, row writesRow, name string) {
	b.Helper()
	ctx := b.Context()
	must := func(err error) {
		b.Helper()
		expect.NoError(b, err)
	}
	must(p.serve(ctx, true))
	must(p.makeWritten(ctx, row, name))
	if !row.served {
		must(p.serve(ctx, false))
		must(p.restart(ctx))
	}
	job, err := p.warmUp(ctx, row, name)
	must(err)
	counting.taken()
	writes := 0
	for b.Loop() {
		job, err = p.write(ctx, row, name, writes, job)
		must(err)
		writes++
		if !row.hasty {
			must(p.settle(ctx, row, job))
		}
	}
	must(p.settle(ctx, row, job))
	must(checkNamed(job, row.named))
	reviews, objects := counting.taken()
	conversions := float64(objects) / float64(writes)
	b.ReportMetric(conversions, "conversions/op")
	b.ReportMetric(float64(objects)/max(float64(reviews), 1), "objects/review")
	if !row.holds(conversions) {
		b.Errorf("%.2f conversions for a write, expected %.0f: %s", conversions, row.expected, row.why)
	}
}

// warmUp writes spec and status once, after which managedFields remain the same.
func (p *restartable) warmUp(ctx context.Context, row writesRow, name string) (*unstructured.Unstructured, error) {
	var job *unstructured.Unstructured
	var err error
	for i := range 2 {
		if job, err = p.write(ctx, row, name, i-2, job); err != nil {
			return nil, err
		}
	}
	return job, p.settle(ctx, row, job)
}

// makeWritten creates the job so that its managedFields have the versions of the row.
func (p *restartable) makeWritten(ctx context.Context, row writesRow, name string) error {
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
	label := jobOf(v1alpha1.Version, name)
	label.SetLabels(map[string]string{"old": "client"})
	if err := p.api.Apply(ctx, client.ApplyConfigurationFromUnstructured(label), oldManager); err != nil {
		return fmt.Errorf("applying a label: %w", err)
	}
	return nil
}

// storedJob returns a job of v2alpha1 of about the given size in bytes.
func storedJob(name string, bytes int) (*unstructured.Unstructured, error) {
	raw, err := jobs.Of(metav1.NamespaceDefault, name, bytes)
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

func jobOf(version, name string) *unstructured.Unstructured {
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(kind(version, "DIJob"))
	job.SetNamespace(metav1.NamespaceDefault)
	job.SetName(name)
	return job
}

// write writes the spec or the status of the job and returns the stored job. It reads the job first
// if none is given.
func (p *restartable) write(ctx context.Context, row writesRow, name string, i int, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if row.apply {
		return p.applyOnce(ctx, row.version, name, i)
	}
	if job == nil {
		job = jobOf(row.version, name)
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

func (p *restartable) applyOnce(ctx context.Context, version, name string, i int) (*unstructured.Unstructured, error) {
	job := jobOf(version, name)
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
func (p *restartable) settle(ctx context.Context, row writesRow, job *unstructured.Unstructured) error {
	options := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: job.GetResourceVersion()}}
	for _, version := range []string{v1alpha1.Version, v2alpha1.Version} {
		if version == v1alpha1.Version && !row.served {
			continue
		}
		seen := jobOf(version, job.GetName())
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

// restartable is an API server that can be restarted while its etcd keeps running.
type restartable struct {
	environment *envtest.Environment
	api         client.WithWatch
}

// startRestartable starts an API server with the CRDs and without webhooks. The
// caller stops it.
func startRestartable() (*restartable, error) {
	// The policies of the installation forbid that nothing is converted, which is measured, too.
	environment := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join(testkit.Root(), "config", "crd", "bases")}, ErrorIfCRDPathMissing: true,
	}
	if err := testkit.Start(environment); err != nil {
		return nil, err
	}
	p := &restartable{environment: environment}
	if err := p.connect(environment.Config); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *restartable) stop() error {
	return p.environment.Stop()
}

// connect creates the client, without a rate limit.
func (p *restartable) connect(config *rest.Config) (err error) {
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if p.api, err = client.NewWithWatch(config, client.Options{}); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

// restart restarts the API server, which loses its users, and returns when it is ready.
func (p *restartable) restart(ctx context.Context) error {
	server := p.environment.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		return fmt.Errorf("stopping the API server: %w", err)
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	admin, err := p.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return fmt.Errorf("adding a user: %w", err)
	}
	p.environment.Config = admin.Config()
	if err := p.connect(admin.Config()); err != nil {
		return err
	}
	api, err := discovery.NewDiscoveryClientForConfig(admin.Config())
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = api.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil, nil
	})
	return errors.Join(err, last)
}

// convertBy configures the converter in the CRD.
func (p *restartable) convertBy(ctx context.Context, by *converter) error {
	stanza := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig":             map[string]any{"url": by.server.URL, "caBundle": by.bundle()},
	}}
	return p.editCRD(ctx, func(crd map[string]any) error {
		return unstructured.SetNestedMap(crd, stanza, "spec", "conversion")
	})
}

// serve sets whether v1alpha1 is served.
func (p *restartable) serve(ctx context.Context, served bool) error {
	return p.editCRD(ctx, func(crd map[string]any) error {
		versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
		if err != nil {
			return err
		}
		for _, version := range versions {
			if version, ok := version.(map[string]any); ok && version["name"] == v1alpha1.Version {
				version["served"] = served
			}
		}
		return unstructured.SetNestedSlice(crd, versions, "spec", "versions")
	})
}

func (p *restartable) editCRD(ctx context.Context, edit func(map[string]any) error) error {
	return controlplane.EditCRD(ctx, p.api, "dijobs."+group, edit)
}

// converter is a conversion webhook that counts its reviews and objects.
type converter struct {
	server           *httptest.Server
	reviews, objects atomic.Int64
}

// startConverter serves a conversion webhook. It counts the objects of a review in the answer. The
// caller closes the server.
func startConverter(handler http.Handler) *converter {
	c := &converter{}
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.reviews.Add(1)
		handler.ServeHTTP(&objectCounter{ResponseWriter: w, objects: &c.objects}, r)
	}))
	c.server.StartTLS()
	return c
}

func (c *converter) bundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw}))
}

// taken returns the counts since its last call.
func (c *converter) taken() (reviews, objects int64) {
	return c.reviews.Swap(0), c.objects.Swap(0)
}

// objectCounter counts the objects in an answer.
type objectCounter struct {
	http.ResponseWriter
	objects *atomic.Int64
}

// aJob matches once for each job in an answer.
var aJob = regexp.MustCompile(`"kind":"DIJob"`)

// Write implements io.Writer.
func (c *objectCounter) Write(answer []byte) (int, error) {
	c.objects.Add(int64(len(aJob.FindAllIndex(answer, -1))))
	return c.ResponseWriter.Write(answer)
}
