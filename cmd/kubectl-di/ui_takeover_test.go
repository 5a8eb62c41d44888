// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/takeover"
)

// takeoverIs waits until the page shows a state of the takeover with this text and exactly these
// waits.
func (b *browser) takeoverIs(t *testing.T, state, text string, waits ...string) {
	t.Helper()
	var got api.Takeover
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, testkit.Patience, true, func(context.Context) (bool, error) {
		var page api.Cluster
		b.get(t, "/api/v1/cluster", "Cluster", &page)
		got = page.Takeovers[0]
		return got.State == state && strings.Contains(got.Text, text) && slices.Equal(got.Waits, waits), nil
	})
	if err != nil || got.What != "takeover of an earlier release" {
		t.Fatalf("%v: got %+v\nwant %s: %s\n%s", err, got, state, text, strings.Join(waits, "\n"))
	}
}

// earlierRelease creates the Deployments of an earlier release, with as many pods as replicas.
func (w *world) earlierRelease(t *testing.T, deployments ...string) {
	t.Helper()
	for _, name := range deployments {
		labels := map[string]string{"control-plane": name}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "old"}}},
			}},
		}
		expect.NoError(t, w.live.Create(t.Context(), deployment))
		deployment.Status.Replicas = 1
		expect.NoError(t, w.live.Status().Update(t.Context(), deployment))
	}
}

// scaled sets the replicas and the pods of a Deployment of the earlier release.
func (w *world) scaled(t *testing.T, name string, replicas, pods int32) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: names.SystemNamespace, Name: name}, deployment))
	deployment.Spec.Replicas = &replicas
	expect.NoError(t, w.live.Update(t.Context(), deployment))
	deployment.Status.Replicas = pods
	expect.NoError(t, w.live.Status().Update(t.Context(), deployment))
}

// progress writes the annotation of the takeover like the operator.
func (w *world) progress(t *testing.T, observed *takeover.Observed) string {
	t.Helper()
	definition, line := w.definition(t, "dijobs"), takeover.Describe(observed)
	changed := definition.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, crds.AnnotationTakeover, line)
	expect.NoError(t, w.live.Patch(t.Context(), changed, client.MergeFrom(definition)))
	return line
}

// stalls records an Event like the operator.
func (w *world) stalls(t *testing.T, message string, at time.Time) {
	t.Helper()
	definition := w.definition(t, "dijobs")
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "stall-"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: definition.Name, UID: definition.UID,
		},
		Type: corev1.EventTypeWarning, Reason: v2alpha1.ReasonTakeoverStalled, Action: "TakeOver", Message: message,
		EventTime: metav1.NewMicroTime(at), ReportingController: "di-orchestrator", ReportingInstance: "one",
	}))
}

// earlierJobs creates a job of v0.2.2, one of v1.1 and one of this release. Only the last is adopted.
func (w *world) earlierJobs(t *testing.T, namespace string) (pods []*corev1.Pod) {
	t.Helper()
	change := func(pod *corev1.Pod, change func()) {
		before := pod.DeepCopy()
		change()
		expect.NoError(t, w.live.Patch(t.Context(), pod, client.MergeFrom(before)))
		pods = append(pods, pod)
	}
	task := v2alpha1.Task{Type: v2alpha1.TaskTypeCollector}
	v0 := w.job(t, namespace, "v0", v2alpha1.LifecycleCoordinatorLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator}, task)
	coordinator := names.CoordinatorPod("v0")
	pod := w.pod(t, v0, coordinator, names.ReplicaLabels("v0", names.ReplicaTypeCoordinator, coordinator))
	change(pod, func() { pod.OwnerReferences[0].APIVersion = v1alpha1.GroupVersion.String() })
	for _, name := range []string{"v1", "v2"} {
		job := w.job(t, namespace, name, v2alpha1.LifecycleWorkerLed, task)
		pod := w.pod(t, job, names.WorkerPod(name, "collector", 0), nil)
		if name == "v2" {
			change(pod, func() { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, names.AnnotationAttempt, "0") })
		} else {
			pods = append(pods, pod)
		}
	}
	return pods
}

// adopt does to a pod what the operator does.
func (w *world) adopt(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		before := pod.DeepCopy()
		pod.OwnerReferences[0].APIVersion = v2alpha1.GroupVersion.String()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, names.AnnotationAttempt, "0")
		expect.NoError(t, w.live.Patch(t.Context(), pod, client.MergeFrom(before)))
	}
}

// The API server has one definition, so that the states follow each other.
func TestClusterShowsTheTakeoverOfAnEarlierReleaseAndWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := worldOfDefinitions(t)
	ns := w.namespace(t)
	b := w.browse(t, ns)
	b.takeoverIs(t, "Done", "There is nothing left to take over.")

	w.earlierRelease(t, names.EarlierOperator, names.EarlierServer)
	pods := w.earlierJobs(t, ns)
	const operator = "Deployment di-operator of the earlier release still has replicas: 1, pods: 1."
	const server = "Deployment di-server of the earlier release still has replicas: 1, pods: 1."
	left := "Jobs with pods that are not adopted yet: 2 of 3: " + ns + "/v0, " + ns + "/v1"
	b.takeoverIs(t, "Needed", "An earlier release runs, and its takeover has not begun.", operator, server, left)

	observed := &takeover.Observed{
		Replicas: map[string]int32{names.EarlierServer: 1}, Pods: map[string][]string{names.EarlierOperator: {"di-operator-1-2"}},
	}
	line := w.progress(t, observed)
	w.scaled(t, names.EarlierOperator, 0, 1)
	const ending = "Deployment di-operator of the earlier release still has replicas: 0, pods: 1."
	b.takeoverIs(t, "Running", line, ending, server, left)

	now := time.Now()
	w.stalls(t, "StopOperator: no progress for 1m0s", now)
	w.stalls(t, "AwaitOperator: no progress for 1m0s; waits for the end of pods di-operator-1-2", now.Add(-time.Minute))
	const stalled = "AwaitOperator: no progress for 2m0s; waits for the end of pods di-operator-1-2"
	w.stalls(t, stalled, now)
	b.takeoverIs(t, "Stalled", stalled, ending, server, left)
	w.takeoverIsShownWithin(t, ns, line, left)

	w.scaled(t, names.EarlierOperator, 0, 0)
	w.scaled(t, names.EarlierServer, 0, 0)
	w.progress(t, &takeover.Observed{Acting: true, Probed: true})
	b.takeoverIs(t, "Running", "The earlier release is stopped, and the operator adopts its jobs.", left)

	w.adopt(t, pods...)
	b.takeoverIs(t, "Done", "There is nothing left to take over.")

	w.scaled(t, names.EarlierOperator, 1, 1)
	b.takeoverIs(t, "Needed", "two operators may act on the same jobs", "Scale Deployment di-operator of namespace di-system to zero: no takeover stops it.",
		"All jobs with pods are adopted: 3.")
}

// takeoverIsShownWithin checks what users see of a takeover with few rights.
func (w *world) takeoverIsShownWithin(t *testing.T, ns, line, left string) {
	t.Helper()
	const hidden = "You may not read the definition of DIJobs, which records the takeover."
	const noDeployments = "You may not read Deployments of namespace di-system, so they are left out."
	for _, verb := range []string{"get", "list", "watch"} {
		w.grant(t, ns, user("reader"), rule(v2alpha1.GroupName, "dijobs", verb))
		w.grant(t, ns, user("tenant"), rule(v2alpha1.GroupName, "dijobs", verb), rule("", "pods", verb))
	}
	w.browse(t, ns, "--as", "reader").takeoverIs(t, "Unknown", hidden, noDeployments)
	tenant := w.browse(t, ns, "--as", "tenant")
	tenant.takeoverIs(t, "Unknown", hidden, left, noDeployments)

	w.grant(t, names.SystemNamespace, user("tenant"), rule("apps", "deployments", "get"))
	const ending = "Deployment di-operator of the earlier release still has replicas: 0, pods: 1."
	const server = "Deployment di-server of the earlier release still has replicas: 1, pods: 1."
	tenant.takeoverIs(t, "Unknown", hidden, ending, server, left)
	w.grant(t, names.SystemNamespace, user("reader"), rule("apps", "deployments", "get"))
	w.browse(t, ns, "--as", "reader").takeoverIs(t, "Unknown", hidden, ending, server,
		"You may not list the pods, so jobs that are not adopted yet are not counted.")

	w.readsDefinitions(t, "tenant")
	tenant.takeoverIs(t, "Running", line, ending, server, left, "You may not read events of namespace default, so they are left out.")
	var page api.Cluster
	tenant.get(t, "/api/v1/cluster", "Cluster", &page)
	if got := page.Takeovers[1].Text; got != "You may not read the record of the storage migration in namespace di-system." {
		t.Errorf("the storage migration is %q", got)
	}
}

// readsDefinitions grants a user to read the definitions of kinds.
func (w *world) readsDefinitions(t *testing.T, name string) {
	t.Helper()
	read := rule("apiextensions.k8s.io", "customresourcedefinitions", "get")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "definitions-" + name}, Rules: []rbacv1.PolicyRule{read}}
	expect.NoError(t, w.live.Create(t.Context(), role))
	expect.NoError(t, w.live.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: []rbacv1.Subject{user(name)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}))
	w.waitAllowed(t, "", name, &read)
}
