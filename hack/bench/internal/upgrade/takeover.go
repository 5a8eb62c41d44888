// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/etcd"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/internal/testkit/program"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
	"opendilab.org/di-orchestrator/webhook"
)

const takeoverNotes = `
An installation of v0.2.2 as it is found in clusters, without cert-manager and without pods of its own: its definitions, Deployments,
Services and webhook configurations, and jobs in each state with the pods and services that live. Then what a user does is done: our
webhook configurations are applied, install-crds is run, two replicas of the webhooks, two operators and two di-servers are started. It is over when jobs are known to be
stored as v2alpha1 only. GETs at v2alpha1 begin when that version answers for the first time, coordinators when both di-servers are ready, creates (without
being stored) when the webhook configurations of v0.2.2, which no program serves here, are gone. No call is tried again. Fields are those of spec and metadata, and of status where a job had finished.
`

// takeover is a run of the section.
type takeover struct {
	*world
	jobs []legacy.Job
	// before are the jobs as originally stored, by key.
	before map[string][]byte
	// restarts are the previous numbers of container restarts, by pod.
	restarts map[string]int32
	// began is the start of the upgrade. steps are the times at which its steps were reached.
	began time.Time
	steps []string
	// v2 reads at the new version, polls polls as the coordinators, and creates creates jobs as dry
	// runs.
	v2, polls, creates *pace.Prober
	lists              *strict
}

// runTakeover measures the effects of an in-place upgrade of v0.2.2.
func (b *bench) runTakeover(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newWorld(ctx, &controlplane.Options{Bare: true})
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	run := &takeover{world: w}
	if err := run.installEarlier(ctx); err != nil {
		return nil, err
	}
	run.v2 = w.reader(v2alpha1.GroupVersion.Version, run.jobs)
	run.lists = newStrict("", run.coordinators())
	run.polls = run.lists.prober()
	run.creates = w.creator()
	calls := load{w.reader(v1alpha1.Version, run.jobs), run.v2, run.polls, run.creates}
	calls[0].Start(ctx)
	defer calls.stop()
	before, err := w.atRest(ctx, calls, "v0.2.2")
	if err != nil {
		return nil, err
	}
	upgrade, err := calls.during("upgrade", true, func() error { return run.upgrade(ctx) })
	if err != nil {
		return nil, err
	}
	after, err := w.atRest(ctx, calls, "after")
	if err != nil {
		return nil, err
	}
	// Before the upgrade some of the called APIs do not exist, so failures are allowed.
	before.strict = false
	if missed, err = calls.print(b, []phase{before, upgrade, after}); err != nil {
		return nil, err
	}
	found, err := run.inspect(ctx)
	return append(missed, found...), err
}

// reader reads jobs at a version.
func (w *world) reader(version string, of []legacy.Job) *pace.Prober {
	return &pace.Prober{Name: "GET " + version, Every: time.Second / time.Duration(w.bench.rate), Call: func(ctx context.Context, number int) error {
		return w.others.get(ctx, version, of[number%len(of)].Name)
	}}
}

// installEarlier creates the installation of v0.2.2 and records its state.
func (t *takeover) installEarlier(ctx context.Context) (err error) {
	t.Say("leaving what v0.2.2 leaves, with %d jobs", t.bench.jobs)
	if t.jobs, err = legacy.V022().Install(ctx, t.API, namespace, t.bench.jobs); err != nil {
		return err
	}
	t.before, t.restarts = map[string][]byte{}, map[string]int32{}
	err = t.Etcd().Each(ctx, etcd.Job(namespace, ""), func(one etcd.Value) error {
		t.before[string(one.Key)] = bytes.Clone(one.Value)
		return nil
	})
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := t.API.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		t.restarts[pods.Items[i].Name] = restartsOf(&pods.Items[i])
	}
	return nil
}

// coordinators returns the names of the coordinators' running pods.
func (t *takeover) coordinators() []string {
	var pods []string
	for i := range t.jobs {
		name := names.CoordinatorPod(t.jobs[i].Name)
		if _, there := t.jobs[i].Pods[name]; there && !slices.Contains([]string{"Succeeded", "Failed"}, t.jobs[i].Phase) {
			pods = append(pods, name)
		}
	}
	return pods
}

// reached records a step.
func (t *takeover) reached(what string) {
	step := fmt.Sprintf("%s after %s", what, figures.Seconds(time.Since(t.began)))
	t.Say("%s", step)
	t.steps = append(t.steps, step)
}

// upgrade does what a user does for an upgrade and returns when it is complete.
func (t *takeover) upgrade(ctx context.Context) error {
	t.began = time.Now()
	if err := t.install(ctx); err != nil {
		return err
	}
	t.reached("definitions prepared")
	starting := make(chan error, 1)
	go func() { starting <- t.start(ctx) }()
	err := t.poll(ctx, "v2alpha1 to be served", func(ctx context.Context) (bool, error) {
		select {
		case err := <-starting:
			if err != nil {
				return false, err
			}
			starting <- nil
		default:
		}
		return t.others.get(ctx, v2alpha1.GroupVersion.Version, t.jobs[0].Name) == nil, nil
	})
	if err != nil {
		return err
	}
	t.reached("v2alpha1 served")
	t.v2.Start(ctx)
	if err := <-starting; err != nil {
		return err
	}
	t.reached("operators and di-servers ready")
	t.lists.address = t.calls.address()
	t.polls.Start(ctx)
	return t.waitOver(ctx)
}

// install runs install-crds, as the chart's hook does, and applies the objects of this release.
func (t *takeover) install(ctx context.Context) error {
	kubeconfig, err := t.Kubeconfig(harness.UserOperator)
	if err != nil {
		return err
	}
	told, err := program.Run(ctx, &program.Command{Binary: t.Binary, Name: "install-crds", Environment: []string{kubeconfig}})
	if err != nil {
		return err
	}
	for line := range strings.Lines(told) {
		t.Say("%s", strings.TrimSpace(line))
	}
	return t.InstallWebhooks(ctx)
}

func (t *takeover) start(ctx context.Context) error {
	if err := t.startOperators(ctx); err != nil {
		return err
	}
	if err := t.startServers(ctx); err != nil {
		return err
	}
	return t.showServers(ctx)
}

// showServers creates pods for the running di-servers. Operators use them to detect that di-server
// is ready.
func (t *takeover) showServers(ctx context.Context) error {
	for i := range t.servers.replicas {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: names.SystemNamespace, Name: fmt.Sprintf("di-orchestrator-server-%d", i),
				Labels: map[string]string{
					"app.kubernetes.io/name": "di-orchestrator", "app.kubernetes.io/component": "server", "control-plane": "di-server",
				},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "server", Image: "di-orchestrator:dev", Ports: []corev1.ContainerPort{{Name: "tls", ContainerPort: names.ServerPortTLS}},
			}}},
		}
		if err := t.API.Create(ctx, pod); err != nil {
			return fmt.Errorf("showing that a di-server runs: %w", err)
		}
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.0.0.%d", i+1)
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if err := t.API.Status().Update(ctx, pod); err != nil {
			return fmt.Errorf("showing that a di-server is ready: %w", err)
		}
	}
	return testkit.SyncEndpoints(ctx, t.API, names.SystemNamespace)
}

// waitOver returns when v2alpha1 is the only stored version of jobs and no part of v0.2.2 acts.
func (t *takeover) waitOver(ctx context.Context) error {
	if err := t.poll(ctx, "the earlier release to be stopped", t.isStopped); err != nil {
		return err
	}
	t.reached("nothing of v0.2.2 acts")
	if err := t.waitAdmitted(ctx); err != nil {
		return err
	}
	t.creates.Start(ctx)
	for _, step := range []struct {
		what string
		come func(crd map[string]any) bool
	}{
		{"jobs are stored as v2alpha1", func(crd map[string]any) bool { return storageIn(crd) == v2alpha1.GroupVersion.Version }},
		{"storedVersions is v2alpha1 alone", func(crd map[string]any) bool {
			stored, _, _ := unstructured.NestedStringSlice(crd, "status", "storedVersions")
			return slices.Equal(stored, []string{v2alpha1.GroupVersion.Version})
		}},
	} {
		err := t.poll(ctx, step.what, func(ctx context.Context) (bool, error) {
			crd, err := controlplane.CRD(ctx, t.API, webhook.CRD)
			return err == nil && step.come(crd.Object), err
		})
		if err != nil {
			return err
		}
		t.reached(step.what)
	}
	return nil
}

// isStopped reports whether the Deployments of v0.2.2 have zero replicas and its webhook
// configurations are deleted.
func (t *takeover) isStopped(ctx context.Context) (bool, error) {
	for _, name := range []string{"di-operator", "di-webhook", "di-server"} {
		var deployment appsv1.Deployment
		err := t.API.Get(ctx, client.ObjectKey{Namespace: names.SystemNamespace, Name: name}, &deployment)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil || ptr.Deref(deployment.Spec.Replicas, 1) > 0 {
			return false, err
		}
	}
	for name, configuration := range map[string]client.Object{
		"di-mutating-webhook-configuration":   &admissionregistrationv1.MutatingWebhookConfiguration{},
		"di-validating-webhook-configuration": &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		if err := t.API.Get(ctx, client.ObjectKey{Name: name}, configuration); !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return true, nil
}

// storageIn returns the storage version of a CRD.
func storageIn(crd map[string]any) string {
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	for _, item := range versions {
		if version, ok := item.(map[string]any); ok && version["storage"] == true {
			name, _ := version["name"].(string)
			return name
		}
	}
	return ""
}

// inspect compares the final state with the original one and prints the differences.
func (t *takeover) inspect(ctx context.Context) (figures.Limits, error) {
	lost, err := t.lostPods(ctx)
	if err != nil {
		return nil, err
	}
	compared := comparison{missing: len(t.before)}
	err = t.Etcd().Each(ctx, etcd.Job(namespace, ""), func(one etcd.Value) error {
		then, known := t.before[string(one.Key)]
		if !known {
			return nil
		}
		compared.missing--
		compared.objects++
		if !storedAs(one.Value, v2alpha1.GroupVersion.Version) {
			compared.old++
		}
		return compared.addLost(string(one.Key), then, one.Value)
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(t.Out, "\n%s.\n", strings.Join(t.steps, "; "))
	fmt.Fprintf(t.Out, "%d jobs; missing: %d; not stored as v2alpha1: %d; with a field that is lost: %d. %d pods; deleted or restarted: %d. "+
		"%d URLs listed.\n", compared.objects, compared.missing, compared.old, len(compared.changed), len(t.restarts), len(lost), t.lists.urls())
	for _, one := range slices.Concat(compared.changed, lost)[:min(len(compared.changed)+len(lost), toldChanges)] {
		fmt.Fprintf(t.Out, "  %s\n", one)
	}
	fmt.Fprint(t.Out, takeoverNotes)
	var missed figures.Limits
	missed.Require(compared.missing == 0, "%d jobs are missing", compared.missing)
	missed.Require(compared.old == 0, "%d jobs are not stored as v2alpha1", compared.old)
	missed.Require(len(compared.changed) == 0, "%d jobs have lost a field", len(compared.changed))
	missed.Require(len(lost) == 0, "%d pods were deleted or restarted", len(lost))
	missed.Require(t.lists.urls() > 0, "no coordinator was told any URL")
	return missed, nil
}

// lostPods returns the earlier pods that were deleted or restarted.
func (t *takeover) lostPods(ctx context.Context) ([]string, error) {
	var pods corev1.PodList
	if err := t.API.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	now := map[string]*corev1.Pod{}
	for i := range pods.Items {
		now[pods.Items[i].Name] = &pods.Items[i]
	}
	var lost []string
	for i := range t.jobs {
		for name, uid := range t.jobs[i].Pods {
			pod := now[name]
			switch {
			case pod == nil:
				lost = append(lost, name+": gone")
			case pod.UID != uid:
				lost = append(lost, name+": another one")
			case pod.DeletionTimestamp != nil:
				lost = append(lost, name+": being deleted")
			case restartsOf(pod) != t.restarts[name]:
				lost = append(lost, name+": restarted")
			}
		}
	}
	slices.Sort(lost)
	return lost, nil
}

func restartsOf(pod *corev1.Pod) int32 {
	var total int32
	for i := range pod.Status.ContainerStatuses {
		total += pod.Status.ContainerStatuses[i].RestartCount
	}
	return total
}
