// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// The users whose requests are counted.
const (
	userOperator  = "bench-operator"
	userPlain     = "bench-plain"
	userSubmitter = "bench-submitter"
	userKubelet   = "bench-kubelet"
	userWatcher   = "bench-watcher"
)

const (
	// installedMemoryLimit is the GOMEMLIMIT of config/operator.
	installedMemoryLimit = "GOMEMLIMIT=690MiB"
	// What the operator has by default, and the plain client with it.
	defaultQPS   = 200
	defaultBurst = 400
	// The namespaces of the operator's jobs and of the plain client's; the length
	// of both is the same, so that of what is in them is, too.
	oursNamespace  = "bench-ours"
	plainNamespace = "bench-bare"
	// patience bounds how long anything may take.
	patience = 20 * time.Minute
)

// world is an API server with nodes that run each pod at once, and an operator.
type world struct {
	*bench
	*controlplane.Plane
	kubelet *kubelet
	// submitter writes jobs without a limit on its rate.
	submitter client.Client
	operator  *program.Process
	// pprof is where the operator serves its profiles.
	pprof string
}

// newWorld starts a world without an operator. The caller stops it.
func newWorld(ctx context.Context, b *bench) (_ *world, err error) {
	b.say("starting an API server")
	plane, err := controlplane.Start(&controlplane.Options{
		Folder: b.folder,
		Users:  []string{userOperator, userPlain, userSubmitter, userKubelet, userWatcher},
		// What a disk does is not measured, and is as little for the reference.
		Etcd: map[string]string{"quota-backend-bytes": "8589934592", "unsafe-no-fsync": "true"},
	})
	if err != nil {
		return nil, err
	}
	w := &world{bench: b, Plane: plane}
	defer func() {
		if err != nil {
			errs(&err, w.stop)
		}
	}()
	if err := w.InstallWebhooks(ctx); err != nil {
		return nil, err
	}
	for _, name := range []string{oursNamespace, plainNamespace} {
		if err := w.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	if w.submitter, err = w.clientOf(userSubmitter, -1, 0); err != nil {
		return nil, err
	}
	w.kubelet, err = startKubelet(ctx, w.Plane)
	return w, err
}

// stop stops all there is.
func (w *world) stop() (err error) {
	defer errs(&err, w.Plane.Stop)
	if w.kubelet != nil {
		w.kubelet.Stop()
	}
	return w.stopOperator()
}

func (w *world) clientOf(name string, qps float32, burst int) (client.WithWatch, error) {
	user, err := w.User(name)
	if err != nil {
		return nil, err
	}
	return w.Client(user.Config(), qps, burst)
}

// startOperator starts the operator as it is deployed, but for an election,
// and returns when it is ready and has its caches.
func (w *world) startOperator(ctx context.Context, flags ...string) error {
	kubeconfig, err := w.Kubeconfig(userOperator)
	if err != nil {
		return err
	}
	return w.startOperatorBy(ctx, kubeconfig, "", flags...)
}

func (w *world) startOperatorBy(ctx context.Context, kubeconfig, address string, flags ...string) error {
	pprof, _, err := program.FreeAddresses(ctx)
	if err != nil {
		return err
	}
	w.pprof = pprof
	w.operator, err = program.Start(ctx, &program.Command{
		Binary: w.binary, Name: "operator", Folder: w.folder, Address: address,
		Environment: []string{kubeconfig, installedMemoryLimit},
		Flags: func(address string) []string {
			return append([]string{"--webhook-address", address, "--webhook-url", "https://" + address, "--pprof-address", pprof}, flags...)
		},
	})
	return err
}

// read reads a path of where the operator serves its profiles.
func (w *world) read(ctx context.Context, path string) ([]byte, error) {
	return program.Read(ctx, "http://"+w.pprof+path)
}

// stopOperator stops the operator, if one runs.
func (w *world) stopOperator() error {
	if w.operator == nil {
		return nil
	}
	operator := w.operator
	w.operator = nil
	return operator.Stop()
}

// standBy starts an operator that serves webhooks and fills its caches, but does
// not act, as another holds its Lease: what is there beside a plain client.
func (w *world) standBy(ctx context.Context) error {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: controlplane.OperatorLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("bench"), LeaseDurationSeconds: ptr.To[int32](24 * 3600),
			AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	if err := w.API.Create(ctx, lease); err != nil {
		return fmt.Errorf("creating the operator's Lease: %w", err)
	}
	return w.startOperator(ctx, "--leader-elect", "--namespace", names.SystemNamespace)
}

// endStandBy lets an operator that elects act again.
func (w *world) endStandBy(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: controlplane.OperatorLease}}
	if err := w.API.Delete(ctx, lease); err != nil {
		return fmt.Errorf("deleting the operator's Lease: %w", err)
	}
	return nil
}

// warmUp returns when the operator acts: a first job runs, and is gone again.
func (w *world) warmUp(ctx context.Context) error {
	job := newJob(oursNamespace, "warm-up", 1)
	if err := w.submit(ctx, job); err != nil {
		return err
	}
	if err := w.waitRunning(ctx, job.Namespace, 1, 1); err != nil {
		return err
	}
	return w.clear(ctx)
}

// clear deletes all jobs and what belongs to them, and returns when the
// operator has come to rest.
func (w *world) clear(ctx context.Context) error {
	w.say("deleting all there is")
	for _, namespace := range []string{oursNamespace, plainNamespace} {
		for _, object := range []client.Object{&v2alpha1.DIJob{}, &corev1.Pod{}, &corev1.Service{}, &corev1.ConfigMap{}, &v2alpha1.Membership{}} {
			if err := w.API.DeleteAllOf(ctx, object, client.InNamespace(namespace)); err != nil {
				return fmt.Errorf("deleting %T of %s: %w", object, namespace, err)
			}
		}
	}
	before := -1
	err := w.kubelet.wait(ctx, w.bench, "pods deleted", func(of tallies) (int, int) {
		left := of.total().pods
		before = max(before, left)
		return before - left, before
	})
	if err != nil {
		return err
	}
	_, err = w.waitQuiet(ctx, 500*time.Millisecond)
	return err
}

// waitQuiet returns when the operator has asked for nothing but Leases so long,
// and where the audit log was then.
func (w *world) waitQuiet(ctx context.Context, quiet time.Duration) (controlplane.Mark, error) {
	mark, err := w.Mark()
	if err != nil {
		return 0, err
	}
	since := time.Now()
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		counts, err := w.Since(mark)
		if err != nil {
			return false, err
		}
		if len(counts[userOperator].Without("leases")) > 0 {
			since = time.Now()
			mark, err = w.Mark()
		}
		return time.Since(since) > quiet, err
	})
	if err != nil {
		return 0, fmt.Errorf("waiting for the operator to rest: %w", err)
	}
	return mark, nil
}

// readDefaults reads from a di-orchestrator's help how fast its operator is by default.
func readDefaults(ctx context.Context, binary string) (string, error) {
	help, err := exec.CommandContext(ctx, binary, "operator", "--help").Output()
	if err != nil {
		return "", fmt.Errorf("reading the operator's flags: %w", err)
	}
	var defaults []string
	for _, flag := range []string{"kube-api-qps", "kube-api-burst", "workers"} {
		if found := regexp.MustCompile(`--` + flag + ` .*\(default (\S+)\)`).FindSubmatch(help); found != nil {
			defaults = append(defaults, "--"+flag+"="+string(found[1]))
		}
	}
	return strings.Join(defaults, " "), nil
}
