// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/past"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/figures"
	"opendilab.org/di-orchestrator/test/testkit/pace"
)

const (
	// maxLag, maxRecordingMemory and maxRecordingShare are what administrators are promised.
	maxLag             = 5 * time.Second
	maxRecordingMemory = 512 << 20
	maxRecordingShare  = 0.2
	// watched is one report of so many whose lag is measured.
	watched = 20
)

// Records measures what it costs to record jobs that run and report.
type Records struct{ load drive.Load }

// NewRecords returns the measurement.
func NewRecords() *Records {
	return &Records{drive.Load{Jobs: 10_000, Pods: 5, Rate: 100, Duration: time.Minute}}
}

// Name implements run.Measurement.
func (*Records) Name() string { return "records" }

// Flags implements run.Measurement.
func (r *Records) Flags(flags *flag.FlagSet) {
	r.load.Register(flags, "jobs", "pods", "duration")
	flags.IntVar(&r.load.Rate, "rate", r.load.Rate, "reports of all jobs a second, as di-server writes them")
}

// Run implements run.Measurement.
func (r *Records) Run(ctx context.Context, s *run.Session) (missed figures.Limits, err error) {
	if err := r.load.Check("jobs", "pods", "rate"); err != nil {
		return nil, err
	}
	began := time.Now()
	served, err := past.Serve(ctx, &past.Options{
		Folder: s.Folder, Binary: s.Binary, Flags: []string{"--sqlite", filepath.Join(s.Folder, "history.db")},
		Prepare: func(ctx context.Context, plane *controlplane.Plane) error {
			s.Say("creating %d running jobs of %d pods", r.load.Jobs, r.load.Pods)
			err := r.create(ctx, plane)
			began = time.Now()
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, served.Stop)
	if err := served.Reader.Await(ctx, r.load.Jobs); err != nil {
		return nil, err
	}
	fmt.Fprintf(s.Out, "%d jobs of %d pods that run are recorded %s after the start of the history.\n", r.load.Jobs, r.load.Pods, figures.Seconds(time.Since(began)))
	before, err := served.Usage()
	if err != nil {
		return nil, err
	}
	mark, err := served.Mark()
	if err != nil {
		return nil, err
	}
	s.Say("%d reports a second for %s", r.load.Rate, r.load.Duration)
	recorded := &recorded{plane: served.Plane, reader: served.Reader, load: &r.load}
	if err := recorded.run(ctx); err != nil {
		return nil, err
	}
	after, err := served.Usage()
	if err != nil {
		return nil, err
	}
	counts, err := served.Since(mark)
	if err != nil {
		return nil, err
	}
	share := (after.Processor - before.Processor).Seconds() / recorded.took.Seconds()
	asked := counts[past.User].Without("leases")
	fmt.Fprintf(s.Out, "%d reports in %s, %.0f a second: lag p50 %s, p99 %s; %.3f of a processor; at most %s of memory; requests to the API server: %s\n",
		recorded.sent, figures.Seconds(recorded.took), float64(recorded.sent)/recorded.took.Seconds(), figures.Shown(recorded.lags, 50),
		figures.Shown(recorded.lags, 99), share, figures.Mebibytes(after.PeakBytes), asked)
	missed.Under(figures.Percentile(recorded.lags, 99), maxLag, "p99 of the lag")
	missed.Require(after.PeakBytes < maxRecordingMemory, "the history held %s, the limit is %s", figures.Mebibytes(after.PeakBytes), figures.Mebibytes(maxRecordingMemory))
	missed.Require(share <= maxRecordingShare, "the history used %.3f of a processor, the limit is %.1f", share, maxRecordingShare)
	return missed, nil
}

// create creates jobs that run, with their pods.
func (r *Records) create(ctx context.Context, plane *controlplane.Plane) error {
	if err := plane.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}); err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	return cluster.Each(ctx, r.load.Jobs, func(ctx context.Context, index int) error {
		job := drive.WorkerLed(drive.JobName(index), r.load.Pods)
		job.Namespace = cluster.Namespace
		if err := plane.API.Create(ctx, job); err != nil {
			return fmt.Errorf("creating job %s: %w", job.Name, err)
		}
		job.Status.Phase, job.Status.Replicas, job.Status.ReadyReplicas = v2alpha1.JobRunning, int32(r.load.Pods), int32(r.load.Pods)
		if err := plane.API.Status().Update(ctx, job); err != nil {
			return fmt.Errorf("starting job %s: %w", job.Name, err)
		}
		for rank := range int32(r.load.Pods) {
			if err := createPodOf(ctx, plane, job, rank); err != nil {
				return err
			}
		}
		return nil
	})
}

func createPodOf(ctx context.Context, plane *controlplane.Plane, job *v2alpha1.DIJob, rank int32) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: names.WorkerPod(job.Name, "worker", rank), Labels: map[string]string{names.LabelJob: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, v2alpha1.GroupVersion.WithKind("DIJob"))},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%04d", rank), Containers: []corev1.Container{{Name: names.Container, Image: "i"}}},
	}
	if err := plane.API.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	return nil
}

// recorded writes reports, and finds some of them in the history.
type recorded struct {
	plane  *controlplane.Plane
	reader *past.Reader
	load   *drive.Load

	mutex sync.Mutex
	sent  int
	lags  []time.Duration
	took  time.Duration
}

func (r *recorded) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	began := time.Now()
	every := time.Second / time.Duration(r.load.Rate)
	for time.Since(began) < r.load.Duration {
		number := r.sent
		r.sent++
		group.Go(func() error { return r.report(ctx, number) })
		if err := pace.Pause(ctx, time.Until(began.Add(time.Duration(r.sent)*every))); err != nil {
			break
		}
	}
	r.took = time.Since(began)
	return group.Wait()
}

func (r *recorded) report(ctx context.Context, number int) error {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: drive.JobName(number % r.load.Jobs)}}
	patch := fmt.Appendf(nil, `{"status":{"profilings":{"speed":%d}}}`, number+1)
	if err := r.plane.API.Status().Patch(ctx, job, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("recorded for job %s: %w", job.Name, err)
	}
	if number%watched != 0 {
		return nil
	}
	began := time.Now()
	if err := r.reader.AwaitPoint(ctx, job.Namespace, job.Name, "speed", float64(number+1)); err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.lags = append(r.lags, time.Since(began))
	return nil
}
