// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

const (
	system = legacy.SystemNamespace
	dijobs = "dijobs.diengine.opendilab.org"
	// progress is the annotation that records the progress of the takeover.
	progress = "diengine.opendilab.org/takeover"
	inject   = "cert-manager.io/inject-ca-from"
	// pause is the interval of polling loops.
	pause = 50 * time.Millisecond
)

// beside runs a function repeatedly until the spec ends or stops it.
func beside(ctx context.Context, round func(context.Context)) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		defer GinkgoRecover()
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			round(running)
			select {
			case <-running.Done():
				return
			case <-ticker.C:
			}
		}
	})
	stop = func() {
		cancel()
		done.Wait()
	}
	DeferCleanup(stop)
	return stop
}

// runDeployments creates pods for the earlier Deployments, and deletes them when these are scaled
// to zero or deleted. No controller does so because only an API server runs. The programs end at
// once when they are deleted.
func (p *plane) runDeployments(ctx context.Context) { p.runUntilEnd(ctx, 0) }

// runUntilEnd does so for programs that run for a grace period after they are deleted.
func (p *plane) runUntilEnd(ctx context.Context, grace time.Duration) {
	GinkgoHelper()
	deployments := specs.List[appsv1.DeploymentList](ctx, p.api, client.InNamespace(system))
	Expect(deployments.Items).NotTo(BeEmpty())
	for i := range deployments.Items {
		p.createPod(ctx, deployments.Items[i].Name, deployments.Items[i].Spec.Template.Labels)
	}
	beside(ctx, func(ctx context.Context) {
		// The next round retries after a conflict.
		_ = testkit.SyncEndpoints(ctx, p.api, system)
	})
	beside(ctx, func(ctx context.Context) {
		var stopped []string
		for i := range deployments.Items {
			deployment := &appsv1.Deployment{}
			err := p.api.Get(ctx, client.ObjectKeyFromObject(&deployments.Items[i]), deployment)
			if apierrors.IsNotFound(err) || err == nil && *deployment.Spec.Replicas == 0 {
				stopped = append(stopped, deployments.Items[i].Name)
			}
		}
		ended := slices.DeleteFunc(stopped, func(name string) bool { return !p.terminate(ctx, name+"-5d9c-x", grace) })
		if len(ended) == len(deployments.Items) {
			p.mayAct.Store(true)
		}
		for _, name := range ended {
			// The next round retries a failed deletion; a pod may already be gone.
			_ = p.api.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name + "-5d9c-x"}}, client.GracePeriodSeconds(0))
		}
	})
}

// terminate deletes a pod, as its ReplicaSet does, and reports whether its grace period is over.
func (p *plane) terminate(ctx context.Context, name string, grace time.Duration) bool {
	if grace == 0 {
		return true
	}
	pod := &corev1.Pod{}
	err := p.api.Get(ctx, client.ObjectKey{Namespace: system, Name: name}, pod)
	if err == nil && pod.DeletionTimestamp == nil {
		// The next round retries.
		_ = p.api.Delete(ctx, pod, client.GracePeriodSeconds(grace/time.Second))
		return false
	}
	return apierrors.IsNotFound(err) || err == nil && !time.Now().Before(pod.DeletionTimestamp.Time)
}

// createPod creates a ready pod of a Deployment of the system's namespace.
func (p *plane) createPod(ctx context.Context, deployment string, labels map[string]string) {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: system, Name: deployment + "-5d9c-x", Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "5d9c"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: deployment + "-5d9c", UID: "1", Controller: ptr.To(true)}},
		},
		// Without a node, its deletion would have no grace period.
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{
			Name: "main", Image: "main", Ports: []corev1.ContainerPort{{Name: "tls", ContainerPort: 8443}},
		}}},
	}
	for name, value := range labels {
		pod.Labels[name] = value
	}
	Expect(p.api.Create(ctx, pod)).To(Succeed())
	ip := fmt.Sprintf("10.1.2.%d", len(deployment)+1)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	Expect(p.api.Status().Update(ctx, pod)).To(Succeed())
}

// serve makes a di-server of this release ready.
func (p *plane) serve(ctx context.Context) {
	GinkgoHelper()
	p.createPod(ctx, "di-orchestrator-server", map[string]string{
		"app.kubernetes.io/name": "di-orchestrator", "app.kubernetes.io/component": "server", "control-plane": "di-server",
	})
}

// injectBundles writes a CA bundle into definitions that request it, as cert-manager does.
func (p *plane) injectBundles(ctx context.Context) (bundle []byte) {
	GinkgoHelper()
	bundle, _, err := cert.GenerateSelfSignedCertKey("di-webhook-service", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	beside(ctx, func(ctx context.Context) {
		for _, name := range []string{dijobs, "aggregatorconfigs.diengine.opendilab.org"} {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			if err := p.api.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
				continue
			}
			conversion := definition.Spec.Conversion
			if _, asks := definition.Annotations[inject]; !asks || conversion == nil || conversion.Webhook == nil || bytes.Equal(conversion.Webhook.ClientConfig.CABundle, bundle) {
				continue
			}
			conversion.Webhook.ClientConfig.CABundle = bundle
			// The next round retries after a conflict.
			_ = p.api.Update(ctx, definition)
		}
	})
	return bundle
}

// poller reads a job continuously, as a coordinator's programs do.
type poller struct {
	version string
	read    atomic.Int64
	mu      sync.Mutex
	errors  []string
	slowest time.Duration
}

// poll reads one job at a version repeatedly. It is not there only until the API server serves the version.
func (p *plane) poll(ctx context.Context, version, name string) *poller {
	polling := &poller{version: version}
	beside(ctx, func(ctx context.Context) {
		began := time.Now()
		err := p.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: name}, job(version))
		switch {
		case err == nil:
			polling.read.Add(1)
			polling.mu.Lock()
			polling.slowest = max(polling.slowest, time.Since(began))
			polling.mu.Unlock()
		case polling.read.Load() == 0 && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)):
		case ctx.Err() == nil:
			polling.mu.Lock()
			polling.errors = append(polling.errors, err.Error())
			polling.mu.Unlock()
		}
	})
	return polling
}

// expectNoFailure prints how many reads there were, and expects that none failed.
func (p *poller) expectNoFailure() {
	GinkgoHelper()
	p.mu.Lock()
	defer p.mu.Unlock()
	GinkgoWriter.Printf("reads at %s: %d, failed %d, the slowest after %s\n", p.version, p.read.Load(), len(p.errors), p.slowest.Round(time.Millisecond))
	Expect(p.read.Load()).To(BeNumerically(">", 0))
	Expect(p.errors).To(BeEmpty())
}

func job(version string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("diengine.opendilab.org/" + version)
	object.SetKind("DIJob")
	return object
}

// read returns all jobs at a version, by name, once the API server serves it.
func (p *plane) read(ctx context.Context, version string) map[string]map[string]any {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("diengine.opendilab.org/" + version)
	list.SetKind("DIJobList")
	Eventually(func() error { return p.api.List(ctx, list, client.InNamespace(jobs)) }).WithContext(ctx).Should(Succeed())
	found := map[string]map[string]any{}
	for i := range list.Items {
		item := &list.Items[i]
		found[item.GetName()] = map[string]any{
			"labels": item.GetLabels(), "uid": item.GetUID(), "spec": item.Object["spec"], "status": item.Object["status"],
		}
	}
	return found
}

// definition returns the definition of a kind.
func (p *plane) definition(ctx context.Context, name string) *apiextensionsv1.CustomResourceDefinition {
	GinkgoHelper()
	return specs.Get[apiextensionsv1.CustomResourceDefinition](ctx, p.api, "", name)
}

// awaitStep waits until the takeover records a step.
func (p *plane) awaitStep(ctx context.Context, step string) {
	GinkgoHelper()
	Eventually(func() string { return p.definition(ctx, dijobs).Annotations[progress] }).WithContext(ctx).Should(HavePrefix(step + ":"))
}

// isDone reports whether the takeover has recorded that nothing is left to do.
func (p *plane) isDone(ctx context.Context) bool {
	GinkgoHelper()
	return strings.HasPrefix(p.definition(ctx, dijobs).Annotations[progress], "Done:")
}

// missing returns the paths of values that an object no longer has.
func missing(before, after any, at string) []string {
	switch was := before.(type) {
	case map[string]any:
		is, _ := after.(map[string]any)
		var lost []string
		for key, value := range was {
			lost = append(lost, missing(value, is[key], at+"."+key)...)
		}
		return lost
	case []any:
		is, _ := after.([]any)
		if len(is) < len(was) {
			return []string{at}
		}
		var lost []string
		for i, value := range was {
			lost = append(lost, missing(value, is[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
		return lost
	}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		return []string{fmt.Sprintf("%s: %v became %v", at, before, after)}
	}
	return nil
}

// expectKept expects that the jobs' status has lost nothing.
func expectKept(before, after map[string]map[string]any) {
	GinkgoHelper()
	Expect(after).To(HaveLen(len(before)))
	for name, was := range before {
		Expect(after[name]["uid"]).To(Equal(was["uid"]))
		Expect(after[name]["labels"]).To(Equal(was["labels"]))
		Expect(missing(was["spec"], after[name]["spec"], name+".spec")).To(BeEmpty())
	}
}

// expectAlive expects that each pod of the jobs is the original one and refers to its job in the
// remaining version.
func (p *plane) expectAlive(ctx context.Context, left []legacy.Job) {
	GinkgoHelper()
	pods := specs.List[corev1.PodList](ctx, p.api, client.InNamespace(jobs))
	found := map[string]*corev1.Pod{}
	for i := range pods.Items {
		found[pods.Items[i].Name] = &pods.Items[i]
	}
	for i := range left {
		for name, uid := range left[i].Pods {
			Expect(found).To(HaveKey(name), left[i].State)
			Expect(found[name].UID).To(Equal(uid), left[i].State)
			Expect(found[name].DeletionTimestamp).To(BeNil(), left[i].State)
		}
	}
}
