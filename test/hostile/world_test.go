// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build hostile

package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/coordinator"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/program"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

const (
	// bystanders and intruders are the namespaces of the regular users and of the attackers.
	bystanders = "bystanders"
	intruders  = "intruders"

	// bystanderJobs is the number of jobs that run during an attack, each with collectors.
	bystanderJobs = 10
	collectors    = 2
	// jobBytes is the size of a bystander's job.
	jobBytes = 7_000
)

// These are the default memory limits of the chart. GOMEMLIMIT is 90 % of each.
const (
	operatorMemory = 768 << 20
	webhooksMemory = 768 << 20
	serverMemory   = 256 << 20
)

// world is a control plane with the programs and the bystanders' running jobs.
type world struct {
	*controlplane.Plane
	webhooks, operator, server, history *program.Process
	kubelet                             *kubelet
	// readers are the tokens of accounts that may view jobs, by namespace.
	readers map[string]string
	// callers are the coordinators of the bystanders' jobs.
	callers []coordinator.Caller
	stops   []func() error
}

// newWorld starts a world. The caller stops it.
func newWorld(ctx context.Context, folder string) (_ *world, err error) {
	plane, err := controlplane.Start(&controlplane.Options{
		Folder: folder, Users: []string{testkit.AccountName(testkit.Operator), testkit.AccountName(testkit.Webhook), testkit.AccountName(testkit.Server)},
		Etcd: map[string]string{"unsafe-no-fsync": "true", "quota-backend-bytes": "4294967296"},
	})
	if err != nil {
		return nil, err
	}
	w := &world{Plane: plane, stops: []func() error{plane.Stop, plane.Refusals}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if err := errors.Join(w.InstallRights(ctx), w.InstallWebhooks(ctx)); err != nil {
		return nil, err
	}
	for _, name := range []string{bystanders, intruders} {
		if err := w.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	if w.kubelet, err = startKubelet(ctx, w.API); err != nil {
		return nil, err
	}
	w.stops = append(w.stops, w.kubelet.stop)
	if err := w.startPrograms(ctx, folder); err != nil {
		return nil, err
	}
	return w, w.startBystanders(ctx)
}

// startPrograms starts the webhooks, the operator and di-server from this checkout.
func (w *world) startPrograms(ctx context.Context, folder string) error {
	binary, err := program.Build(ctx, folder)
	if err != nil {
		return err
	}
	kubeconfig, err := w.AccountKubeconfig(testkit.Webhook)
	if err != nil {
		return err
	}
	w.webhooks, err = program.StartWebhooks(ctx, &program.Webhooks{
		Binary: binary, Folder: folder, Environment: []string{"GOMEMLIMIT=691MiB", kubeconfig},
	})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, w.webhooks.Stop)
	if kubeconfig, err = w.AccountKubeconfig(testkit.Operator); err != nil {
		return err
	}
	w.operator, err = program.StartOperator(ctx, &program.Operator{
		Binary: binary, Folder: folder, Environment: []string{"GOMEMLIMIT=691MiB", kubeconfig},
	})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, w.operator.Stop)
	if kubeconfig, err = w.AccountKubeconfig(testkit.Server); err != nil {
		return err
	}
	w.server, err = program.Start(ctx, &program.Command{
		Binary: binary, Name: "server", Folder: folder, Environment: []string{"GOMEMLIMIT=460MiB", kubeconfig},
		Flags: func(address string) []string { return []string{"--address", address, "--tls-address="} },
	})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, w.server.Stop)
	return w.startHistory(ctx, binary, folder)
}

// stop stops everything in reverse order.
func (w *world) stop() error {
	var err error
	for i := len(w.stops) - 1; i >= 0; i-- {
		err = errors.Join(err, w.stops[i]())
	}
	return err
}

// eventually waits until holds returns no error.
func eventually(ctx context.Context, what string, holds func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		last = holds(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// startBystanders creates jobs at v1alpha1. Their coordinators then request collectors from
// di-server.
func (w *world) startBystanders(ctx context.Context) error {
	admitted := func(ctx context.Context) error { return admissionprobe.Probe(ctx, w.API, bystanders) }
	if err := eventually(ctx, "jobs are admitted", admitted); err != nil {
		return err
	}
	for i := range bystanderJobs {
		name := fmt.Sprintf("job-%d", i)
		raw, err := jobs.Of(bystanders, name, jobBytes)
		if err != nil {
			return err
		}
		job := &unstructured.Unstructured{}
		if err := job.UnmarshalJSON(raw); err != nil {
			return fmt.Errorf("decoding a job: %w", err)
		}
		unstructured.RemoveNestedField(job.Object, "status")
		if err := w.API.Create(ctx, job); err != nil {
			return fmt.Errorf("creating job %s: %w", name, err)
		}
	}
	for i := range bystanderJobs {
		if err := w.askForCollectors(ctx, fmt.Sprintf("job-%d", i)); err != nil {
			return err
		}
	}
	return eventually(ctx, "all pods of the bystanders run", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := w.API.List(ctx, &pods, client.InNamespace(bystanders)); err != nil {
			return err
		}
		running := 0
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if want := bystanderJobs * (1 + collectors); running != want {
			return fmt.Errorf("%d pods run, not %d", running, want)
		}
		return nil
	})
}

func (w *world) askForCollectors(ctx context.Context, job string) error {
	caller := coordinator.Caller{Namespace: bystanders, Pod: names.CoordinatorPod(job)}
	err := eventually(ctx, "the coordinator of "+job+" runs", func(context.Context) error {
		caller.From = w.kubelet.address(bystanders, caller.Pod)
		if caller.From == "" {
			return errors.New("it has no address")
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.callers = append(w.callers, caller)
	return eventually(ctx, "di-server gives "+job+" its collectors", func(ctx context.Context) error {
		line := coordinator.NewLine(w.server.Address, &caller, false)
		_, err := line.Write(ctx, "POST", "/replicas", fmt.Sprintf(`"collectors":{"replicas":%d}`, collectors))
		return err
	})
}

// belongings returns the bystanders' objects for a comparison: the specs of their jobs and
// Memberships, and their pods.
func (w *world) belongings(ctx context.Context) (map[string]string, error) {
	has := map[string]string{}
	for _, list := range []client.ObjectList{&v2alpha1.DIJobList{}, &v2alpha1.MembershipList{}, &corev1.PodList{}} {
		if err := w.API.List(ctx, list, client.InNamespace(bystanders)); err != nil {
			return nil, fmt.Errorf("listing what the bystanders have: %w", err)
		}
		switch list := list.(type) {
		case *v2alpha1.DIJobList:
			for i := range list.Items {
				spec, err := json.Marshal(list.Items[i].Spec)
				if err != nil {
					return nil, fmt.Errorf("encoding a job: %w", err)
				}
				has["job "+list.Items[i].Name] = string(spec) + string(list.Items[i].Status.Phase)
			}
		case *v2alpha1.MembershipList:
			for i := range list.Items {
				spec, err := json.Marshal(list.Items[i].Spec.Members)
				if err != nil {
					return nil, fmt.Errorf("encoding a Membership: %w", err)
				}
				has["membership "+list.Items[i].Name] = string(spec)
			}
		case *corev1.PodList:
			for i := range list.Items {
				has["pod "+list.Items[i].Name] = string(list.Items[i].UID)
			}
		}
	}
	return has, nil
}

// job creates a job of the intruders unless it exists, and returns it.
func (w *world) job(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.DIJob, error) {
	job.Namespace = intruders
	if err := w.API.Create(ctx, job); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating a job of the intruders: %w", err)
	}
	stored := &v2alpha1.DIJob{}
	if err := w.API.Get(ctx, client.ObjectKeyFromObject(job), stored); err != nil {
		return nil, fmt.Errorf("reading a job of the intruders: %w", err)
	}
	return stored, nil
}

// kubelet runs every pod at an address of the loopback network from which this machine can call.
// Without it pods would not run because only an API server runs, without controllers.
type kubelet struct {
	api     client.WithWatch
	cancel  context.CancelFunc
	stopped sync.WaitGroup

	// mutex guards the rest.
	mutex     sync.Mutex
	addresses map[string]string
	failed    error
}

func startKubelet(ctx context.Context, api client.WithWatch) (*kubelet, error) {
	ctx, cancel := context.WithCancel(ctx)
	k := &kubelet{api: api, cancel: cancel, addresses: map[string]string{}}
	watching, err := api.Watch(ctx, &corev1.PodList{})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	k.stopped.Go(func() {
		defer watching.Stop()
		k.run(ctx, watching)
	})
	return k, nil
}

func (k *kubelet) run(ctx context.Context, watching watch.Interface) {
	for event := range watching.ResultChan() {
		pod, isPod := event.Object.(*corev1.Pod)
		if !isPod || event.Type == watch.Deleted {
			continue
		}
		var err error
		switch {
		case pod.DeletionTimestamp != nil:
			err = k.api.Delete(ctx, pod, client.GracePeriodSeconds(0))
		case pod.Status.Phase == corev1.PodPending:
			err = k.start(ctx, pod)
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			k.mutex.Lock()
			k.failed = errors.Join(k.failed, err)
			k.mutex.Unlock()
		}
	}
}

// start writes that a pod is running at the next address.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	k.mutex.Lock()
	given := len(k.addresses)
	address := fmt.Sprintf("127.5.%d.%d", given/200, given%200+1)
	k.addresses[pod.Namespace+"/"+pod.Name] = address
	k.mutex.Unlock()
	pods.RunReady(pod, address)
	return k.api.Status().Update(ctx, pod)
}

// address returns the address of a pod; "" if it has none yet.
func (k *kubelet) address(namespace, pod string) string {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.addresses[namespace+"/"+pod]
}

func (k *kubelet) stop() error {
	k.cancel()
	k.stopped.Wait()
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.failed
}

// atV1 returns an empty job of v1alpha1.
func atV1(namespace, name string) *unstructured.Unstructured {
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DIJob"))
	job.SetNamespace(namespace)
	job.SetName(name)
	return job
}
