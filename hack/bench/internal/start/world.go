// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package start

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	userManager   = "bench-controller-manager"
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
	// pprof are the addresses of profiles.
	pprof struct{ operator, webhooks, scheduler string }
}

// newWorld starts a world. The caller stops it, also after an error.
func (o *Options) newWorld(ctx context.Context, b *harness.Bench) (*world, error) {
	plane, err := b.NewWorld(&controlplane.Options{
		Users: []string{harness.UserOperator, harness.UserWebhooks, userScheduler, userManager, userKubelet, userClient},
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
	return w, w.startPrograms(ctx)
}

// startPrograms starts the kubelets, the programs of Kubernetes, and the webhooks and the operator with their
// defaults.
func (w *world) startPrograms(ctx context.Context) (err error) {
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
		func() (*program.Process, error) { return w.startScheduler(ctx) },
		func() (*program.Process, error) { return w.startManager(ctx) },
		func() (*program.Process, error) {
			return w.StartWebhooks(ctx, "", "--pprof-address", w.pprof.webhooks)
		},
		func() (*program.Process, error) {
			return w.StartOperator(ctx, "--pprof-address", w.pprof.operator)
		},
	}
	if w.pprof.operator, w.pprof.webhooks, err = program.FreeAddresses(ctx); err != nil {
		return err
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

// unlimited are the flags without which the programs of Kubernetes, with 50 and 20 requests a second, would be
// what is measured.
func unlimited() []string {
	return []string{"--kube-api-qps=5000", "--kube-api-burst=10000"}
}

// startScheduler starts the scheduler. Everyone on this machine may read its profiles.
func (w *world) startScheduler(ctx context.Context) (_ *program.Process, err error) {
	binary, err := program.BuildCluster(ctx, "kube-scheduler")
	if err != nil {
		return nil, err
	}
	if w.pprof.scheduler, _, err = program.FreeAddresses(ctx); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(w.pprof.scheduler)
	if err != nil {
		return nil, fmt.Errorf("address of the scheduler: %w", err)
	}
	flags := []string{"--bind-address=" + host, "--secure-port=" + port, "--authorization-always-allow-paths=/debug/pprof/*"}
	return w.StartForeign(ctx, binary, userScheduler, append(flags, unlimited()...)...)
}

// startManager starts the controllers of Kubernetes, without those that would miss the kubelets and the
// keys of tokens.
func (w *world) startManager(ctx context.Context) (*program.Process, error) {
	binary, err := program.BuildCluster(ctx, "kube-controller-manager")
	if err != nil {
		return nil, err
	}
	flags := []string{"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-serviceaccount-token-controller"}
	return w.StartForeign(ctx, binary, userManager, append(flags, unlimited()...)...)
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
