// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package start

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	namespace = "bench-start"
	// These are the users, besides the operator and the webhooks, whose requests are counted.
	userScheduler = "bench-scheduler"
	userKubelet   = "bench-kubelet"
	userClient    = "bench-client"
	// restTime is the time without requests after which the programs are idle.
	restTime = 2 * time.Second
)

// world is an API server with the real scheduler, nodes that exist only in the API, and an operator.
type world struct {
	*harness.World
	*Options
	kubelet *harness.Kubelet
	watched watched
	// client submits jobs and creates pods, without a rate limit.
	client client.Client
	// template are the pods of one job, as the operator creates them.
	template []corev1.Pod
	programs []*program.Process
	// pprof is the address of the operator's profiles.
	pprof string
}

// newWorld starts a world. The caller stops it, also after an error.
func (o *Options) newWorld(ctx context.Context, b *harness.Bench, scheduler string) (*world, error) {
	plane, err := b.NewWorld(&controlplane.Options{
		Users: []string{harness.UserOperator, harness.UserWebhooks, userScheduler, userKubelet, userClient},
	})
	if err != nil {
		return nil, err
	}
	w := &world{World: plane, Options: o}
	if err := errors.Join(w.InstallWebhooks(ctx), w.CreateNamespaces(ctx, namespace)); err != nil {
		return w, err
	}
	each := int64(o.jobs*o.pods/o.nodes + o.pods + 1)
	for i := range o.nodes {
		err := w.AddNode(ctx, fmt.Sprintf("node-%03d", i), corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(4*each, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(each*(8<<30), resource.BinarySI),
			corev1.ResourcePods:   *resource.NewQuantity(2*each, resource.DecimalSI),
		})
		if err != nil {
			return w, err
		}
	}
	return w, w.startPrograms(ctx, scheduler)
}

// startPrograms starts the kubelets, the scheduler, the webhooks and the operator with their defaults.
func (w *world) startPrograms(ctx context.Context, scheduler string) (err error) {
	if w.client, err = w.ClientOf(userClient, -1, 0); err != nil {
		return err
	}
	user, err := w.User(userKubelet)
	if err != nil {
		return err
	}
	w.kubelet = &harness.Kubelet{Config: user.Config(), BoundOnly: true, Seen: w.watched.see}
	if err := w.kubelet.Start(ctx); err != nil {
		return err
	}
	starts := []func() (*program.Process, error){
		func() (*program.Process, error) { return w.StartForeign(ctx, scheduler, userScheduler) },
		func() (*program.Process, error) { return w.StartWebhooks(ctx, "") },
		func() (*program.Process, error) { return w.startOperator(ctx) },
	}
	for _, start := range starts {
		started, err := start()
		if err != nil {
			return err
		}
		w.programs = append(w.programs, started)
	}
	return nil
}

func (w *world) startOperator(ctx context.Context) (_ *program.Process, err error) {
	metrics := ""
	if w.pprof, metrics, err = program.FreeAddresses(ctx); err != nil {
		return nil, err
	}
	return w.StartOperator(ctx, "--pprof-address", w.pprof, "--metrics-address", metrics)
}

// stop stops everything.
func (w *world) stop() error {
	var err error
	for _, each := range w.programs {
		err = errors.Join(err, each.Kill())
	}
	if w.kubelet != nil {
		w.kubelet.Stop()
	}
	return errors.Join(err, w.Stop())
}

// learnPods runs one job, and keeps its pods as the template of those that the plain client creates.
func (w *world) learnPods(ctx context.Context) error {
	if err := w.client.Create(ctx, harness.WorkerLedJob(namespace, "warm-up", w.pods)); err != nil {
		return fmt.Errorf("submitting the first job: %w", err)
	}
	if err := w.waitRunning(ctx, w.pods); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := w.API.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("reading the pods of the first job: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		kept := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
		kept.Spec.NodeName = ""
		w.template = append(w.template, kept)
	}
	return w.clear(ctx)
}

// clear deletes the jobs and pods of a round.
func (w *world) clear(ctx context.Context) error {
	if err := w.Clear(ctx, namespace, w.kubelet); err != nil {
		return err
	}
	w.watched.reset()
	return nil
}
