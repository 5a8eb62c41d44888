// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/observe"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/coordinator"
	"opendilab.org/di-orchestrator/test/testkit/figures"
	"opendilab.org/di-orchestrator/test/testkit/pace"
)

// quiet is the time without requests after which the programs are idle.
const quiet = 2 * time.Second

// ladder is a world with growing numbers of jobs of both lifecycles.
type ladder struct {
	*cluster.World
	load         drive.Load
	coordinators *drive.Coordinators
	operator     *cluster.Operator
}

func (l *ladder) stop() error {
	l.coordinators.Stop()
	return l.World.Stop()
}

func (l *ladder) startOperator(ctx context.Context) (err error) {
	l.operator, err = l.Programs.StartOperator(ctx, 0, "", l.load.Flags()...)
	return err
}

// climb adds jobs until there are so many, and measures a row.
func (l *ladder) climb(ctx context.Context, jobs int) (*results.Rung, error) {
	row := &results.Rung{Jobs: jobs, Pods: jobs * podsOfJob}
	if err := l.grow(ctx, row); err != nil {
		return nil, err
	}
	if err := l.profile(ctx, jobs, "heap?gc=1"); err != nil {
		return nil, err
	}
	var err error
	if row.Heap, err = observe.LiveHeap(ctx, l.operator.Pprof); err != nil {
		return nil, err
	}
	if err := l.restAndTime(ctx, row); err != nil {
		return nil, err
	}
	l.Say("%d jobs: %.2f requests for a pod, first pod %.0f ms", jobs, row.PodRequests, row.FirstPod.P99*1000)
	return row, nil
}

// grow adds the jobs of a row, waits until all run and the programs are idle.
func (l *ladder) grow(ctx context.Context, row *results.Rung) error {
	if _, err := l.WaitQuiet(ctx, quiet); err != nil {
		return err
	}
	before, err := observe.Read(l.Plane, l.Programs.All())
	if err != nil {
		return err
	}
	existing := l.Pods.Of(cluster.Namespace).Existing / podsOfJob
	l.Say("adding %d jobs", row.Jobs-existing)
	profiled, profiling := errgroup.WithContext(ctx)
	if row.Jobs > existing {
		profiled.Go(func() error { return l.profile(profiling, row.Jobs, ofProcessor) })
	}
	err = cluster.Each(ctx, row.Jobs-existing, func(ctx context.Context, index int) error {
		return l.submit(ctx, cluster.Namespace, existing+index)
	})
	if err := errors.Join(err, l.WaitRunning(ctx, cluster.Namespace, row.Pods), profiled.Wait()); err != nil {
		_, failure := l.coordinators.Take()
		return errors.Join(err, failure)
	}
	row.Seconds = time.Since(before.At).Seconds()
	if _, err := l.WaitQuiet(ctx, quiet); err != nil {
		return err
	}
	after, err := observe.Read(l.Plane, l.Programs.All())
	if err != nil {
		return err
	}
	if row.Stored, err = observe.Stored(ctx, l.Plane); err != nil {
		return err
	}
	requests, err := l.Since(before.Mark)
	fillAdded(row, &before, &after, row.Pods-existing*podsOfJob, requests)
	return err
}

func (l *ladder) submit(ctx context.Context, namespace string, index int) error {
	job, err := drive.Either(namespace, index, podsOfJob)
	if err != nil {
		return err
	}
	return drive.Submit(ctx, l.Client, job)
}

// needs are those of a row by the name of the program.
func needs(r *results.Rung) map[string]*results.Need {
	return map[string]*results.Need{
		observe.Operator: &r.Operator, observe.Webhooks: &r.Webhooks, observe.Server: &r.Server,
		observe.APIServer: &r.APIServer, observe.Etcd: &r.Etcd,
	}
}

// fillAdded sets what the pods that were added between two readings took.
func fillAdded(r *results.Rung, before, after *observe.Reading, pods int, requests map[string]controlplane.Requests) {
	used := after.Used(before)
	for name, need := range needs(r) {
		need.Resident = after.Usage[name].Resident
		if pods > 0 {
			need.PodMillis = used[name].Seconds() * 1000 / float64(pods)
		}
	}
	if pods == 0 {
		return
	}
	r.Requests = map[string]map[string]float64{}
	for user, asked := range requests {
		r.Requests[user] = map[string]float64{}
		for what, count := range asked.Without("leases") {
			r.Requests[user][what] = float64(count) / float64(pods)
		}
		if user == cluster.UserOperator || user == cluster.UserServer {
			r.PodRequests += float64(asked.Without("leases").All()) / float64(pods)
		}
	}
}

// restAndTime measures the programs at rest, then times new jobs. Coordinators poll meanwhile.
func (l *ladder) restAndTime(ctx context.Context, row *results.Rung) error {
	polls := l.polls()
	polls.Start(ctx)
	defer polls.Stop()
	before, err := observe.Read(l.Plane, l.Programs.All())
	if err != nil {
		return err
	}
	if err := pace.Pause(ctx, l.load.Rest); err != nil {
		return err
	}
	after, err := observe.Read(l.Plane, l.Programs.All())
	if err != nil {
		return err
	}
	requests, err := l.Since(before.Mark)
	if err != nil {
		return err
	}
	used := after.Used(&before)
	for name, need := range needs(row) {
		need.RestPercent = 100 * used[name].Seconds() / after.Seconds(&before)
	}
	row.RestRequests = float64(requests[cluster.UserOperator].All()+requests[cluster.UserServer].All()) / after.Seconds(&before) * 60
	if err := l.timeNew(ctx, row); err != nil {
		return err
	}
	polls.Stop()
	taken := polls.Take()
	row.Get, row.FailedCalls = timesOf(taken.Times), taken.Failed
	if taken.Failed > 0 {
		row.Failure = taken.Failures[0]
	}
	return nil
}

// polls are the GETs of coordinators in turn, at the same rate at each rung.
func (l *ladder) polls() *pace.Prober {
	callers := l.coordinators.Served(cluster.Namespace)
	return &pace.Prober{Name: "GET", Every: time.Second / time.Duration(l.load.Rate), Call: func(ctx context.Context, number int) error {
		if len(callers) == 0 {
			return pace.ErrNotMade
		}
		_, err := coordinator.NewLine(l.Programs.Server.Address, &callers[number%len(callers)], false).Get(ctx)
		return err
	}}
}

func timesOf(all []time.Duration) results.Times {
	return results.Times{P50: figures.Percentile(all, 50).Seconds(), P99: figures.Percentile(all, 99).Seconds()}
}

// timeNew submits new jobs one after the other, adds a replica to each, and deletes them all.
func (l *ladder) timeNew(ctx context.Context, row *results.Rung) error {
	// The answers that came before are not of these jobs.
	if _, err := l.coordinators.Take(); err != nil {
		return err
	}
	var firsts, resizes []time.Duration
	for i := range l.load.New {
		first, err := l.timePod(ctx, i, 0, i*(podsOfJob+1)+podsOfJob, l.submitNew)
		if err != nil {
			return err
		}
		resized, err := l.timePod(ctx, i, podsOfJob, (i+1)*(podsOfJob+1), l.resize)
		if err != nil {
			return err
		}
		firsts, resizes = append(firsts, first), append(resizes, resized)
	}
	posts, err := l.coordinators.Take()
	if err != nil {
		return err
	}
	row.FirstPod, row.Resize, row.Post = timesOf(firsts), timesOf(resizes), timesOf(posts)
	l.coordinators.Forget(cluster.NewNamespace)
	if err := l.Clear(ctx, cluster.NewNamespace); err != nil {
		return err
	}
	_, err = l.WaitQuiet(ctx, quiet)
	return err
}

// timePod returns how long the pod of a new job with a number took after a call, once so many pods run.
func (l *ladder) timePod(ctx context.Context, index, pod, running int, call func(ctx context.Context, index int) error) (time.Duration, error) {
	began := time.Now()
	if err := call(ctx, index); err != nil {
		return 0, err
	}
	if err := l.WaitRunning(ctx, cluster.NewNamespace, running); err != nil {
		return 0, err
	}
	created := l.Pods.Created(types.NamespacedName{Namespace: cluster.NewNamespace, Name: drive.JobName(index)})
	if pod >= len(created) {
		return 0, fmt.Errorf("job %s has %d pods, expected more than %d", drive.JobName(index), len(created), pod)
	}
	return created[pod].Sub(began), nil
}

func (l *ladder) submitNew(ctx context.Context, index int) error {
	return l.submit(ctx, cluster.NewNamespace, index)
}

// resize adds a replica: the coordinator asks for one, a user patches the other jobs.
func (l *ladder) resize(ctx context.Context, index int) error {
	if drive.IsLed(index) {
		served := l.coordinators.Served(cluster.NewNamespace)
		line := coordinator.NewLine(l.Programs.Server.Address, &served[len(served)-1], false)
		_, err := line.Write(ctx, "POST", "/replicas", `"collectors":{"replicas":1}`)
		return err
	}
	job := &v2alpha1.DIJob{}
	job.Namespace, job.Name = cluster.NewNamespace, drive.JobName(index)
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/tasks/0/replicas","value":%d}]`, podsOfJob+1)
	if err := l.Client.Patch(ctx, job, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("resizing job %s: %w", job.Name, err)
	}
	return nil
}

// profile writes a profile of the operator, if profiles are wanted.
func (l *ladder) profile(ctx context.Context, jobs int, kind string) error {
	if l.load.Trace == "" {
		return nil
	}
	name, _, _ := strings.Cut(kind, "?")
	return writeProfile(ctx, http.DefaultClient, "http://"+l.operator.Pprof, kind, filepath.Join(l.load.Trace, fmt.Sprintf("%s-%05d.pprof", name, jobs)))
}

// besideFinished deletes the running jobs, stores the finished ones while no operator runs, and measures the running ones
// again.
func (l *ladder) besideFinished(ctx context.Context) (*results.Rung, error) {
	if err := l.Programs.StopOperators(); err != nil {
		return nil, err
	}
	l.coordinators.Forget(cluster.Namespace)
	if err := l.Clear(ctx, cluster.Namespace); err != nil {
		return nil, err
	}
	l.Say("storing %d finished jobs", l.load.Finished)
	err := cluster.Each(ctx, l.load.Finished, func(ctx context.Context, index int) error { return l.storeFinished(ctx, l.load.Jobs+index) })
	if err != nil {
		return nil, err
	}
	if err := l.startOperator(ctx); err != nil {
		return nil, err
	}
	row, err := l.climb(ctx, l.load.Jobs)
	if err != nil {
		return nil, err
	}
	row.Finished = l.load.Finished
	return row, nil
}

// ended is the status of a finished job.
const ended = `{"status":{"phase":"Succeeded","startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T01:00:00Z",` +
	`"conditions":[{"type":"Succeeded","status":"True","reason":"JobSucceeded","message":"","lastTransitionTime":"2026-01-01T01:00:00Z"}]}}`

func (l *ladder) storeFinished(ctx context.Context, index int) error {
	if err := l.submit(ctx, cluster.Namespace, index); err != nil {
		return err
	}
	job := &v2alpha1.DIJob{}
	job.Namespace, job.Name = cluster.Namespace, drive.JobName(index)
	if err := l.Client.Status().Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(ended))); err != nil {
		return fmt.Errorf("ending job %s: %w", job.Name, err)
	}
	return nil
}
