// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/etcd"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/upgrade/crds"
	"opendilab.org/di-orchestrator/internal/upgrade/migration"
	"opendilab.org/di-orchestrator/webhook"
)

const (
	// recordKey is the key of the record of the migration of jobs.
	recordKey = "dijobs"
	// quiet is the time without requests after which the operators are idle.
	quiet = 3 * time.Second
	// touched is the number of jobs whose label other clients change.
	touched = 200
	// plainWrites is the number of jobs that the reference client writes.
	plainWrites = 500
	// migrationRequests is the maximum number of requests per object.
	migrationRequests = 2.5
)

const migrationNotes = `
Jobs that have finished, of %v bytes as sent, all stored as v1alpha1; that v2alpha1 is wanted is said by the annotation of the CRD, as by
kubectl di migrate. It is done when status.storedVersions is v2alpha1 alone. At a third and at two thirds of the objects an operator is
killed (SIGKILL), first one, then the other, and started again; calls that fail on the way of a killed one are shown, and no limit. GETs at
v1alpha1 have to be converted once jobs are stored as v2alpha1. Requests are those of the operators in the audit log, Leases apart, from
the annotation to the end. The plain client writes %d of the jobs (a label) one after the other.
`

// runMigration measures the migration of many stored jobs and its effects on other clients.
func (b *bench) runMigration(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newRunning(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	run := &migrationRun{world: w}
	if err := run.store(ctx); err != nil {
		return nil, err
	}
	calls := run.others()
	calls.start(ctx)
	defer calls.stop()
	phases, err := run.measure(ctx, calls)
	if err != nil {
		return nil, err
	}
	calls.stop()
	run.plain, err = run.writePlainly(ctx)
	if err != nil {
		return nil, err
	}
	b.Say("comparing all jobs")
	compared, err := run.compare(ctx)
	if err != nil {
		return nil, err
	}
	if missed, err = calls.print(b, phases); err != nil {
		return nil, err
	}
	return append(missed, run.report(&compared)...), nil
}

// migrationRun is a run of the section.
type migrationRun struct {
	*world
	// before are the jobs as originally stored, by key.
	before map[string][]byte
	// took is the duration of the migration. asked are the operators' requests during it.
	took  time.Duration
	asked controlplane.Requests
	plain time.Duration
	// storedVersions are those of the CRD at the end.
	storedVersions []string
}

// sizes returns the sizes of jobs in bytes. Each size has the same number of jobs.
func sizes() []int { return []int{5_000, 7_500, 10_000} }

// store stores jobs as v1alpha1 and returns when the operators are idle. It creates a few through
// the API server and the operator. These are the patterns of the others.
func (r *migrationRun) store(ctx context.Context) error {
	if err := r.storeAs(ctx, v1alpha1.Version); err != nil {
		return err
	}
	var copies []etcd.Value
	for i, size := range sizes() {
		pattern, err := r.pattern(ctx, i, size)
		if err != nil {
			return err
		}
		for j := i + len(sizes()); j < r.bench.objects; j += len(sizes()) {
			value := bytes.ReplaceAll(pattern.raw, []byte(jobName(i)), []byte(jobName(j)))
			value = bytes.ReplaceAll(value, []byte(pattern.uid), []byte(uuid.NewUUID()))
			copies = append(copies, etcd.Value{Key: []byte(etcd.Job(namespace, jobName(j))), Value: value})
		}
	}
	r.Say("storing %d jobs", r.bench.objects)
	if err := r.Etcd().Put(ctx, copies); err != nil {
		return err
	}
	if _, err := r.WaitQuiet(ctx, quiet); err != nil {
		return err
	}
	r.before = map[string][]byte{}
	return r.eachStored(ctx, func(key string, value []byte) error {
		r.before[key] = bytes.Clone(value)
		return nil
	})
}

func (r *migrationRun) eachStored(ctx context.Context, give func(key string, value []byte) error) error {
	return r.Etcd().Each(ctx, etcd.Job(namespace, ""), func(one etcd.Value) error { return give(string(one.Key), one.Value) })
}

// storeAs sets the storage version of jobs before there are any.
func (w *world) storeAs(ctx context.Context, version string) error {
	err := controlplane.EditCRD(ctx, w.API, webhook.CRD, func(crd map[string]any) error {
		versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
		if err != nil {
			return err
		}
		for _, item := range versions {
			if one, ok := item.(map[string]any); ok {
				one["storage"] = one["name"] == version
			}
		}
		return errors.Join(unstructured.SetNestedSlice(crd, versions, "spec", "versions"),
			unstructured.SetNestedField(crd, version, "metadata", "annotations", crds.AnnotationStorageVersion))
	})
	if err != nil {
		return err
	}
	crd, err := controlplane.CRD(ctx, w.API, webhook.CRD)
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedStringSlice(crd.Object, []string{version}, "status", "storedVersions"); err != nil {
		return fmt.Errorf("status of the CRD: %w", err)
	}
	if err := w.API.Status().Update(ctx, crd); err != nil {
		return fmt.Errorf("status of the CRD: %w", err)
	}
	return nil
}

// stored is a stored job.
type stored struct {
	uid string
	raw []byte
}

// pattern lets the operator run a job until it finishes.
func (r *migrationRun) pattern(ctx context.Context, i, size int) (*stored, error) {
	r.Say("running a job of %d bytes to its end", size)
	job, err := newJob(jobName(i), size)
	if err != nil {
		return nil, err
	}
	if err := r.API.Create(ctx, job); err != nil {
		return nil, fmt.Errorf("creating a job: %w", err)
	}
	if err := r.finish(ctx, jobName(i)); err != nil {
		return nil, err
	}
	if _, err := r.WaitQuiet(ctx, quiet); err != nil {
		return nil, err
	}
	value, err := r.Etcd().Get(ctx, etcd.Job(namespace, jobName(i)))
	if err == nil && !storedAs(value, v1alpha1.Version) {
		err = fmt.Errorf("the job is not stored as %s", v1alpha1.Version)
	}
	return &stored{uid: string(job.GetUID()), raw: value}, err
}

// finish marks a job's coordinator as succeeded, and returns when the operator has recorded it in
// the job and the pod is deleted.
func (r *migrationRun) finish(ctx context.Context, job string) error {
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: namespace, Name: names.CoordinatorPod(job)}
	return r.poll(ctx, "the end of job "+job, func(ctx context.Context) (bool, error) {
		if err := r.API.Get(ctx, key, pod); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		pod.Status.Phase = corev1.PodSucceeded
		if err := r.API.Status().Update(ctx, pod); err != nil {
			return false, ignoreConflict(err)
		}
		found := &v2alpha1.DIJob{}
		if err := r.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: job}, found); err != nil {
			return false, err
		}
		if found.Status.Phase != v2alpha1.JobSucceeded {
			return false, nil
		}
		return true, r.API.Delete(ctx, pod, client.GracePeriodSeconds(0))
	})
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// poll returns when the condition holds.
func (w *world) poll(ctx context.Context, what string, come func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, harness.Patience, true, come); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// askedSince counts the requests of a user, except those for Leases.
func (w *world) askedSince(mark controlplane.Mark, user string) (controlplane.Requests, error) {
	asked, err := w.Since(mark)
	if err != nil {
		return nil, err
	}
	return asked[user].Without("leases"), nil
}

// others returns the calls of other clients to the jobs.
func (r *migrationRun) others() load {
	any := func() string { return jobName(rand.IntN(r.bench.objects)) } // no result depends on it
	second := func(rate int) time.Duration { return time.Second / time.Duration(max(rate, 1)) }
	return load{
		{Name: "GET v1alpha1", Every: second(r.bench.rate / 2), Call: func(ctx context.Context, _ int) error {
			return r.world.others.get(ctx, v1alpha1.Version, any())
		}},
		{Name: "GET v2alpha1", Every: second(r.bench.rate / 4), Call: func(ctx context.Context, _ int) error {
			return r.world.others.get(ctx, v2alpha1.Version, any())
		}},
		{Name: "PATCH v2alpha1", Every: second(r.bench.rate / 5), Call: func(ctx context.Context, number int) error {
			return r.world.others.label(ctx, v2alpha1.Version, jobName(number%min(touched, r.bench.objects)), number)
		}},
		{Name: "LIST v1alpha1, 50", Every: second(r.bench.rate / 50), Call: func(ctx context.Context, _ int) error {
			return r.world.others.list(ctx, v1alpha1.Version, 50)
		}},
	}
}

// measure measures the calls of other clients before, during and after the migration.
func (r *migrationRun) measure(ctx context.Context, calls load) ([]phase, error) {
	before, err := r.atRest(ctx, calls, "before, stored as v1alpha1")
	if err != nil {
		return nil, err
	}
	mark, err := r.Mark()
	if err != nil {
		return nil, err
	}
	during, err := calls.during("migration", false, func() error { return r.migrate(ctx) })
	if err != nil {
		return nil, err
	}
	if r.asked, err = r.askedSince(mark, harness.UserOperator); err != nil {
		return nil, err
	}
	r.took = during.took
	after, err := r.atRest(ctx, calls, "after, stored as v2alpha1")
	return []phase{before, during, after}, err
}

// migrate migrates jobs to v2alpha1, kills operators meanwhile, and returns when the migration is
// done.
func (r *migrationRun) migrate(ctx context.Context) error {
	r.Say("migrating")
	err := controlplane.EditCRD(ctx, r.API, webhook.CRD, func(crd map[string]any) error {
		return unstructured.SetNestedField(crd, v2alpha1.GroupVersion.Version, "metadata", "annotations", crds.AnnotationStorageVersion)
	})
	if err != nil {
		return err
	}
	for i := range r.operators.replicas {
		if err := r.waitDone(ctx, r.bench.objects*(i+1)/(len(r.operators.replicas)+1)); err != nil {
			return err
		}
		r.Say("killing operator %d", i+1)
		if err := r.operators.replace(ctx, i, killed(ctx)); err != nil {
			return err
		}
	}
	return r.waitMigrated(ctx)
}

// waitDone returns when the given number of jobs, or all, have been rewritten.
func (r *migrationRun) waitDone(ctx context.Context, wanted int) error {
	said := time.Now()
	return r.poll(ctx, "the migration to get on", func(ctx context.Context) (bool, error) {
		if err := r.operators.revive(ctx); err != nil {
			return false, err
		}
		at, err := r.record(ctx)
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			r.Say("%d of %d jobs rewritten, %s", at.Done, r.bench.objects, at.Phase)
		}
		// Until the migration begins, the record has the previous target.
		begun := at.Target == v2alpha1.GroupVersion.Version
		return begun && (at.Done >= int64(wanted) || at.Phase == migration.PhaseFinished), err
	})
}

func (r *migrationRun) record(ctx context.Context) (migration.Record, error) {
	var at migration.Record
	kept := &corev1.ConfigMap{}
	err := r.API.Get(ctx, client.ObjectKey{Namespace: names.SystemNamespace, Name: migration.RecordName}, kept)
	if err != nil || kept.Data[recordKey] == "" {
		return at, client.IgnoreNotFound(err)
	}
	if err := json.Unmarshal([]byte(kept.Data[recordKey]), &at); err != nil {
		return at, fmt.Errorf("decoding the record of the migration: %w", err)
	}
	return at, nil
}

// waitMigrated returns when the CRD reports v2alpha1 as the only stored version of jobs.
func (r *migrationRun) waitMigrated(ctx context.Context) error {
	return r.poll(ctx, "the migration to end", func(ctx context.Context) (bool, error) {
		if err := r.operators.revive(ctx); err != nil {
			return false, err
		}
		crd, err := controlplane.CRD(ctx, r.API, webhook.CRD)
		if err != nil {
			return false, err
		}
		r.storedVersions, _, err = unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		return slices.Equal(r.storedVersions, []string{v2alpha1.GroupVersion.Version}), err
	})
}

// writePlainly measures the reference: a client that writes jobs sequentially.
func (r *migrationRun) writePlainly(ctx context.Context) (time.Duration, error) {
	r.Say("writing jobs by a plain client")
	count := min(plainWrites, r.bench.objects)
	began := time.Now()
	for i := range count {
		if err := r.world.others.label(ctx, v2alpha1.GroupVersion.Version, jobName(r.bench.objects-1-i), i); err != nil {
			return 0, fmt.Errorf("writing a job: %w", err)
		}
	}
	return time.Since(began) / time.Duration(count), nil
}

// compare compares all originally stored jobs with the stored jobs now.
func (r *migrationRun) compare(ctx context.Context) (comparison, error) {
	compared := comparison{missing: len(r.before)}
	err := r.eachStored(ctx, func(key string, now []byte) error {
		compared.objects++
		if !storedAs(now, v2alpha1.GroupVersion.Version) {
			compared.old++
		}
		then, known := r.before[key]
		if !known {
			return nil
		}
		compared.missing--
		return compared.add(key, then, now)
	})
	return compared, err
}

// report prints the results of the migration.
func (r *migrationRun) report(compared *comparison) figures.Limits {
	var missed figures.Limits
	perObject := float64(r.asked.All()) / float64(r.bench.objects)
	fmt.Fprintf(r.Out, "\n%d jobs in %s: %.0f objects/s; a plain client: %.0f objects/s.\n", r.bench.objects, figures.Seconds(r.took),
		float64(r.bench.objects)/r.took.Seconds(), 1/r.plain.Seconds())
	fmt.Fprintf(r.Out, "%.2f requests for an object; %s.\n", perObject, r.asked)
	if r.operators.ended > 0 {
		fmt.Fprintf(r.Out, "Operators ended by themselves %d times, and were started again.\n", r.operators.ended)
	}
	fmt.Fprintf(r.Out, "storedVersions at the end: %v; in etcd %d jobs, of which not as v2alpha1: %d; missing: %d; changed: %d.\n",
		r.storedVersions, compared.objects, compared.old, compared.missing, len(compared.changed))
	for _, change := range compared.changed[:min(len(compared.changed), toldChanges)] {
		fmt.Fprintf(r.Out, "  %s\n", change)
	}
	fmt.Fprintf(r.Out, migrationNotes, sizes(), min(plainWrites, r.bench.objects))
	missed.Require(compared.old == 0, "%d jobs are not stored as v2alpha1", compared.old)
	missed.Require(compared.missing == 0, "%d jobs are missing", compared.missing)
	missed.Require(len(compared.changed) == 0, "%d jobs have changed", len(compared.changed))
	missed.Require(perObject <= migrationRequests, "an object took %.2f requests, at most %.1f allowed", perObject, migrationRequests)
	return missed
}
