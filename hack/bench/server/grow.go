// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	// growTime bounds how long a run may take until all is there.
	growTime = time.Minute
	// growPOST and growExist are the limits of what is measured.
	growPOST  = 100 * time.Millisecond
	growExist = 3 * time.Second

	// The reference writes as the operator does: as many at a time, at its rate.
	plainParallelism = 16
	plainQPS         = 200
	plainBurst       = 400
)

// grown is what one run took.
type grown struct {
	// answered is how long the POST took; 0 for the reference.
	answered time.Duration
	// exist is when all pods and services were seen by a watch.
	exist time.Duration
	// asked are the requests that the users made meanwhile.
	asked map[string]controlplane.Requests
}

// grow is what a run of the section has.
type grow struct {
	*bench
	plane  *plane
	server *program.Process
	// plain is the client of the reference.
	plain client.Client
	// samples are the objects that an operator made, services first.
	services []*corev1.Service
	pods     []*corev1.Pod
}

// runGrow measures how long so many replicas more take, from the request until
// their pods and services exist, and how long a plain client takes to create
// the same objects.
func runGrow(ctx context.Context, b *bench) (_ figures.Limits, err error) {
	p, err := startPlane(b.folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := p.InstallWebhooks(ctx); err != nil {
		return nil, err
	}
	operator, err := b.startOperator(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, operator.Stop()) }()
	run := &grow{bench: b, plane: p}
	if run.server, err = b.startServer(ctx, p); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, run.server.Stop()) }()
	user, err := p.User(userPlain)
	if err != nil {
		return nil, err
	}
	if run.plain, err = p.Client(user.Config(), plainQPS, plainBurst); err != nil {
		return nil, err
	}
	before, err := operator.Usage()
	if err != nil {
		return nil, err
	}
	var ours, plain []grown
	for i := range b.runs {
		one, err := run.byRequest(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i, err)
		}
		ours = append(ours, one)
		if one, err = run.byPlainClient(ctx, i); err != nil {
			return nil, fmt.Errorf("run %d of the plain client: %w", i, err)
		}
		plain = append(plain, one)
	}
	after, err := operator.Usage()
	if err != nil {
		return nil, err
	}
	return run.report(ours, plain, (after.Processor-before.Processor)/time.Duration(b.runs)), nil
}

// byRequest makes a job and lets its coordinator ask for more collectors.
func (g *grow) byRequest(ctx context.Context, index int) (grown, error) {
	job := newJob(fmt.Sprintf("grow-%04d", index))
	by := coordinator.Caller{From: coordinator.Address(index, 0), Namespace: namespace, Pod: names.CoordinatorPod(job.Name)}
	if err := g.plane.startJob(ctx, job.Name, &by); err != nil {
		return grown{}, err
	}
	// The clients' limits on their rates recover.
	if err := pace.Pause(ctx, g.pause); err != nil {
		return grown{}, err
	}
	return g.time(ctx, job.Name, func(ctx context.Context) error {
		line := coordinator.NewLine(g.server.Address, &by, false)
		_, err := line.Write(ctx, "POST", "/replicas", `"collectors":{"replicas":`+strconv.Itoa(g.replicas)+`}`)
		return err
	})
}

// startJob makes a job and returns when its coordinator and its Membership
// exist; that the coordinator runs is said here, as no kubelet does.
func (p *plane) startJob(ctx context.Context, name string, by *coordinator.Caller) error {
	if err := p.create(ctx, newJob(name)); err != nil {
		return err
	}
	var pod corev1.Pod
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, growTime, true, func(ctx context.Context) (bool, error) {
		err := p.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: by.Pod}, &pod)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("waiting for the coordinator of job %s: %w", name, err)
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, growTime, true, func(ctx context.Context) (bool, error) {
		err := p.setRunning(ctx, &pod, by.From)
		if apierrors.IsConflict(err) {
			return false, p.API.Get(ctx, client.ObjectKeyFromObject(&pod), &pod)
		}
		return err == nil, err
	})
}

// time begins something that makes collectors of a job, and returns when all
// of them are seen.
func (g *grow) time(ctx context.Context, job string, begin func(context.Context) error) (grown, error) {
	ctx, cancel := context.WithTimeout(ctx, growTime)
	defer cancel()
	mark, err := g.plane.Mark()
	if err != nil {
		return grown{}, err
	}
	var seen errgroup.Group
	seen.Go(func() error { return g.see(ctx, &corev1.PodList{}, job) })
	seen.Go(func() error { return g.see(ctx, &corev1.ServiceList{}, job) })
	began := time.Now()
	if err := begin(ctx); err != nil {
		return grown{}, err
	}
	result := grown{answered: time.Since(began)}
	if err := seen.Wait(); err != nil {
		return grown{}, err
	}
	result.exist = time.Since(began)
	result.asked, err = g.plane.Since(mark)
	return result, err
}

// see returns when a watch has seen all objects of a kind that belong to a
// job's collectors. A watch that the API server ends is begun anew.
func (g *grow) see(ctx context.Context, list client.ObjectList, job string) error {
	known := map[string]bool{}
	for len(known) < g.replicas {
		if err := g.plane.API.List(ctx, list, collectorsOf(job)...); err != nil {
			return fmt.Errorf("%d of %d seen in %T: %w", len(known), g.replicas, list, err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			return know(known, item)
		})
		if err != nil {
			return err
		}
		if err := g.watch(ctx, list, job, known); err != nil {
			return err
		}
	}
	return nil
}

// watch notes the names of what is created after a list, until all are known
// or the watch ends.
func (g *grow) watch(ctx context.Context, list client.ObjectList, job string, known map[string]bool) error {
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	watch, err := g.plane.API.Watch(ctx, list, append(collectorsOf(job), from)...)
	if err != nil {
		return fmt.Errorf("watching %T: %w", list, err)
	}
	defer watch.Stop()
	for len(known) < g.replicas {
		event, open := <-watch.ResultChan()
		if !open {
			return nil
		}
		if err := know(known, event.Object); err != nil {
			return err
		}
	}
	return nil
}

// know notes an object's name.
func know(known map[string]bool, object runtime.Object) error {
	named, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("watching: %w", apierrors.FromObject(object))
	}
	known[named.GetName()] = true
	return nil
}

// collectorsOf selects what belongs to the collectors of a job.
func collectorsOf(job string) []client.ListOption {
	return []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{
		names.LabelDIJobName: job, names.LabelReplicaType: string(names.ReplicaTypeCollector),
	}}
}

// byPlainClient creates what the operator created for the first job anew, as
// another job's, which does not exist.
func (g *grow) byPlainClient(ctx context.Context, index int) (grown, error) {
	if len(g.pods) == 0 {
		if err := g.sample(ctx, fmt.Sprintf("grow-%04d", index)); err != nil {
			return grown{}, err
		}
	}
	job := fmt.Sprintf("bare-%04d", index)
	var services, pods []client.Object
	for i := range g.replicas {
		name := fmt.Sprintf("%s-collector-%05d", job, i)
		service, pod := g.services[i].DeepCopy(), g.pods[i].DeepCopy()
		service.Labels, pod.Labels = names.ReplicaLabels(job, names.ReplicaTypeCollector, name), names.ReplicaLabels(job, names.ReplicaTypeCollector, name)
		service.Spec.Selector = service.Labels
		for _, object := range []client.Object{service, pod} {
			own(object, job, name)
		}
		services, pods = append(services, service), append(pods, pod)
	}
	// The clients' limits on their rates recover.
	if err := pace.Pause(ctx, g.pause); err != nil {
		return grown{}, err
	}
	return g.time(ctx, job, func(ctx context.Context) error {
		return errors.Join(g.createAll(ctx, services), g.createAll(ctx, pods))
	})
}

// own makes an object that of a job which does not exist.
func own(object client.Object, job, name string) {
	object.SetName(name)
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].Name, owners[i].UID = job, "00000000-0000-0000-0000-000000000000"
	}
	object.SetOwnerReferences(owners)
}

// createAll creates objects as the operator does, so many at a time.
func (g *grow) createAll(ctx context.Context, objects []client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(plainParallelism)
	for _, object := range objects {
		group.Go(func() error { return g.plain.Create(ctx, object) })
	}
	return group.Wait()
}

// sample keeps what the operator made for a job, as it sent it.
func (g *grow) sample(ctx context.Context, job string) error {
	of := collectorsOf(job)
	var services corev1.ServiceList
	var pods corev1.PodList
	if err := errors.Join(g.plane.API.List(ctx, &services, of...), g.plane.API.List(ctx, &pods, of...)); err != nil {
		return fmt.Errorf("reading what the operator made: %w", err)
	}
	for i := range services.Items {
		service := &services.Items[i]
		sent := &corev1.Service{ObjectMeta: sentMeta(service)}
		sent.Spec = corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: service.Spec.Selector, Ports: service.Spec.Ports}
		g.services = append(g.services, sent)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		g.pods = append(g.pods, &corev1.Pod{ObjectMeta: sentMeta(pod), Spec: pod.Spec})
	}
	return nil
}

// sentMeta is the part of an object's metadata that is not the API server's.
func sentMeta(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Annotations: object.GetAnnotations(), OwnerReferences: object.GetOwnerReferences(),
	}
}

// report prints the table.
func (g *grow) report(ours, plain []grown, processor time.Duration) figures.Limits {
	var missed figures.Limits
	fmt.Fprintf(g.out, "%d runs, each a new job that asks for %d collectors at once; the operator computed %s a run, job included.\n\n",
		len(ours), g.replicas, processor.Round(time.Millisecond))
	fmt.Fprintf(g.out, "%-28s%12s%12s%22s%12s%12s%14s\n", "", "POST p50", "p99", "all exist after: p50", "p99", "most", "objects/s")
	for _, row := range []struct {
		name string
		runs []grown
	}{{"di-server and operator", ours}, {"plain client", plain}} {
		var answered, exist []time.Duration
		for _, one := range row.runs {
			answered, exist = append(answered, one.answered), append(exist, one.exist)
		}
		posts := [2]string{"-", "-"}
		if row.name != "plain client" {
			posts = [2]string{figures.Shown(answered, 50), figures.Shown(answered, 99)}
			missed.Under(figures.Percentile(answered, 99), growPOST, "p99 of POSTs")
			missed.Under(figures.Percentile(exist, 99), growExist, "p99 until all exist")
		}
		fmt.Fprintf(g.out, "%-28s%12s%12s%22s%12s%12s%14.0f\n", row.name, posts[0], posts[1],
			figures.Shown(exist, 50), figures.Shown(exist, 99), figures.Shown(exist, 100),
			2*float64(g.replicas)/figures.Percentile(exist, 50).Seconds())
	}
	last := len(ours) - 1
	fmt.Fprintf(g.out, "\nRequests of the last run until all exist:\n  di-server:    %s\n  operator:     %s\n  plain client: %s\n",
		ours[last].asked[userServer], ours[last].asked[userOperator], plain[last].asked[userPlain])
	fmt.Fprintf(g.out, growNotes, plainParallelism, plainQPS, plainBurst, g.pause)
	return missed
}

const growNotes = `
The plain client creates the same services, then the same pods, %d at a time, at %d requests a second and %d in a burst, as the
operator may; before each run there are %s for these limits to recover. Both are seen by the same watches.
`
