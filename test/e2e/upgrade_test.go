// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

// upgradeNamespace is the namespace of the jobs that an earlier release has started.
const upgradeNamespace = "upgrade"

// These specs replace the installation that all others share by that of an earlier release, whose
// jobs train. They upgrade it by the chart alone and restore the shared installation.
var _ = Describe("An installation of v0.2.2", Ordered, Serial, Label("upgrade", twoNodes), func() {
	led := &survivor{namespace: upgradeNamespace, name: "led", wanted: map[names.ReplicaType]int{
		names.ReplicaTypeCoordinator: 1, names.ReplicaTypeCollector: 2, names.ReplicaTypeLearner: 1,
	}}
	alone := driver{upgradeNamespace, names.CoordinatorPod("alone"), names.DefaultPort(names.ReplicaTypeCoordinator)}
	t := &takeover{release: legacy.V022(), job: led.name, values: []string{"--set=configuration.server.identity=legacy"}}

	BeforeAll(func(ctx SpecContext) {
		t.leaveInstallation(ctx, []string{
			"--listen=:8080", "--namespace=" + led.namespace, "--coordinator=" + names.CoordinatorPod(led.name),
			"--collectors=" + ledURL(led, "collector-rz8jc", 22270) + "," + ledURL(led, "collector-2csfx", 22270),
			"--learners=" + ledURL(led, "learner-r8xbt", 22271),
		})
		led.round, led.known = 1, set.New[string]()
		leaveLed(ctx, led.name, "v1alpha1-distributed.yaml", append(curve(), "--pause-after=1"),
			"coordinator", "collector-rz8jc", "collector-2csfx", "learner-r8xbt")
		leaveLed(ctx, "alone", "v1alpha1-serial.yaml", []string{"--pause-after=2"}, "coordinator")
		t.leaveWebhooks(ctx)
	})
	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			led.explain(ctx)
			t.explain(ctx)
		}
	})

	It("trains its jobs", func(ctx SpecContext) {
		led.expectGoingOn(ctx)
		led.expectListed(ctx)
		alone.expectTrained(ctx, 2)
	})
	It("is taken over and migrated by helm install alone, while they go on and are read in both versions", func(ctx SpecContext) {
		t.takeOver(ctx, func() { led.letGoOn(ctx) })
		led.expectRecovered(ctx, nil)
		led.expectGoingOn(ctx)
		led.expectListed(ctx)
		alone.expectTrained(ctx, 3)
		t.expectUntouched(ctx)
	})
	It("has its jobs reach their target by the curve of their seed", func(ctx SpecContext) {
		led.release(ctx)
		led.expectSucceeded(ctx, serialOutcome(ctx, curve()...))
		alone.release(ctx)
		expectJobSucceeded(ctx, upgradeNamespace, "alone")
		Expect(outcome(logOf(ctx, upgradeNamespace, alone.pod))).To(Equal(serialOutcome(ctx, "--seed=2")))
	})
})

var _ = Describe("An installation of v1.1.3", Ordered, Serial, Label("upgrade", twoNodes), func() {
	const job, heldAfter = "ranked", 2
	leads := driver{upgradeNamespace, names.WorkerPod(job, "learner", 0), names.DefaultWorkerPort}
	t := &takeover{release: legacy.V113(), job: job}

	BeforeAll(func(ctx SpecContext) {
		t.leaveInstallation(ctx, []string{"--listen=:8081"})
		leaveRanked(ctx, job, fmt.Sprintf("--pause-after=%d", heldAfter))
	})
	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			t.explain(ctx)
		}
	})

	It("trains its job", func(ctx SpecContext) { leads.expectTrained(ctx, heldAfter) })
	It("is taken over and migrated by helm install alone, while it goes on and is read in both versions", func(ctx SpecContext) {
		t.takeOver(ctx, func() {
			Eventually(func(g Gomega) { leads.pause(ctx, g, heldAfter+2) }).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		})
		leads.expectTrained(ctx, heldAfter+3)
		t.expectUntouched(ctx)
		Eventually(func(g Gomega) {
			status := getJob(ctx, g, upgradeNamespace, job).Status
			g.Expect(status.Phase).To(Equal(v2alpha1.JobRunning))
			g.Expect(status.ReadyReplicas).To(Equal(int32(5)))
			g.Expect(status.Restarts + status.Reschedules).To(BeZero())
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	})
	It("has its job reach its target by the curve of its seed", func(ctx SpecContext) {
		leads.release(ctx)
		expectJobSucceeded(ctx, upgradeNamespace, job)
		Expect(outcome(logOf(ctx, upgradeNamespace, leads.pod))).To(Equal(serialOutcome(ctx, "--seed=3")))
	})
})

// expectTrained lets training continue up to a round and waits for it.
func (d driver) expectTrained(ctx SpecContext, round int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		d.pause(ctx, g, round)
		g.Expect(d.round(ctx, g)).To(Equal(round))
	}).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), d.pod)
}

// release lets training continue to its end.
func (d driver) release(ctx SpecContext) {
	GinkgoHelper()
	Eventually(func(g Gomega) { d.pause(ctx, g, 0) }).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// ledURL returns the URL of a replica of a job of v0.2.2.
func ledURL(job *survivor, replica string, port int) string {
	return fmt.Sprintf("%s-%s.%s:%d", job.name, replica, job.namespace, port)
}

// takeover is the takeover of an earlier release. One of its jobs is read continuously.
type takeover struct {
	release legacy.Release
	job     string
	// values are the values in the upgrade guide.
	values []string
	// pods are the pods of the jobs before the takeover.
	pods []string
}

// leaveInstallation replaces the installation by that of the release, without its webhooks. A
// replacement runs instead of the release's programs. args are the arguments of its di-server.
func (t *takeover) leaveInstallation(ctx SpecContext, args []string) {
	GinkgoHelper()
	loadImage(ctx, earlierImage, "./test/e2e/earlier")
	for _, file := range []string{"v1alpha1-serial.yaml", "v1alpha1-distributed.yaml", "v2alpha1.yaml"} {
		kubectlOutput(ctx, "delete", "--ignore-not-found", "--cascade=foreground", waiting(), "-f", filepath.Join(testkit.Root(), "examples", "cartpole", file))
	}
	removeAll(ctx)
	DeferCleanup(func(ctx SpecContext) {
		removeAll(ctx)
		t.removeRights(ctx)
		Expect(run.Install(ctx)).To(Succeed())
	})
	t.createObjects(ctx, args)
	makeNamespace(ctx, upgradeNamespace)
}

// createObjects creates the objects of the release without its webhooks.
func (t *takeover) createObjects(ctx SpecContext, args []string) {
	GinkgoHelper()
	for _, object := range t.objects() {
		if isWebhook(object) {
			continue
		}
		if object.GetKind() == "Deployment" {
			standIn(object, args)
		}
		create(ctx, object)
	}
}

// leaveWebhooks creates the configurations of the release's webhooks. Afterwards no job can be
// changed because no program serves them.
func (t *takeover) leaveWebhooks(ctx SpecContext) {
	GinkgoHelper()
	for _, object := range t.objects() {
		if isWebhook(object) {
			create(ctx, object)
		}
	}
}

func (t *takeover) objects() []*unstructured.Unstructured {
	GinkgoHelper()
	objects, err := t.release.Objects()
	Expect(err).NotTo(HaveOccurred())
	return objects
}

// removeRights deletes the release's cluster roles and bindings, which no takeover deletes, and its webhook
// configurations if they still exist.
func (t *takeover) removeRights(ctx SpecContext) {
	GinkgoHelper()
	for _, object := range t.objects() {
		if kind := object.GetKind(); kind == "ClusterRole" || kind == "ClusterRoleBinding" || isWebhook(object) {
			kubectlOutput(ctx, "delete", kind, object.GetName(), "--ignore-not-found", waiting())
		}
	}
}

func isWebhook(object *unstructured.Unstructured) bool {
	return strings.HasSuffix(object.GetKind(), "WebhookConfiguration")
}

// create creates an object of an earlier release. It retries because its definition may be new.
func create(ctx SpecContext, object *unstructured.Unstructured) {
	GinkgoHelper()
	Eventually(func() error {
		err := api.Create(ctx, object.DeepCopy())
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), "%s %s", object.GetKind(), object.GetName())
}

// standIn makes a deployment run the replacement for its program.
func standIn(deployment *unstructured.Unstructured, args []string) {
	GinkgoHelper()
	spec, found, err := unstructured.NestedFieldNoCopy(deployment.Object, "spec", "template", "spec")
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue())
	pod, ok := spec.(map[string]any)
	Expect(ok).To(BeTrue())
	container := map[string]any{"name": mainContainer(pod)["name"], "image": earlierImage}
	if deployment.GetName() == names.ServerService {
		given := make([]any, len(args))
		for i := range args {
			given[i] = args[i]
		}
		container["args"] = given
	}
	pod["containers"] = []any{container}
	delete(pod, "volumes")
}

// takeOver installs the chart over the release while jobs train and one of them is read in both
// versions. It waits until no part of the release acts any longer.
func (t *takeover) takeOver(ctx SpecContext, letTrain func()) {
	GinkgoHelper()
	t.pods = identities(ctx, upgradeNamespace, "pods", "dijobs."+t.release.Version+"."+v2alpha1.GroupName)
	other := v1alpha1.Version
	if t.release.Version == other {
		other = v2alpha1.Version
	}
	letTrain()
	stored, converted := t.reads(t.release.Version), t.reads(other)
	converted.Call = onceAnswered(converted.Call)
	startProbers(stored, converted)
	begun := time.Now()
	helmOutput(ctx, append([]string{"install", demo.Release, chartFolder(), "--take-ownership", "--force-conflicts", "--wait", helmWaiting()}, t.values...)...)
	AddReportEntry(fmt.Sprintf("helm install took %s", time.Since(begun).Round(100*time.Millisecond)))
	for _, object := range t.objects() {
		switch {
		case object.GetKind() == "Deployment":
			Eventually(func(g Gomega) {
				found, err := core.AppsV1().Deployments(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(*found.Spec.Replicas).To(BeZero(), found.Name)
				g.Expect(found.Status.Replicas).To(BeZero(), found.Name)
			}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		case isWebhook(object):
			Eventually(func() error {
				return api.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopy())
			}).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Satisfy(apierrors.IsNotFound), object.GetName())
		}
	}
	expectServing(ctx, currentImage, versionServed(ctx))
	t.expectMigrated(ctx)
	expectNoFailure("the takeover of "+t.release.Name, stored, converted)
}

// expectUntouched expects that the jobs, their pods and containers are unchanged, and that the
// pods' owner references have the newer version.
func (t *takeover) expectUntouched(ctx SpecContext) {
	GinkgoHelper()
	Expect(identities(ctx, upgradeNamespace, "pods", "dijobs."+t.release.Version+"."+v2alpha1.GroupName)).To(Equal(t.pods), "jobs, pods and their restarts")
	pods, err := core.CoreV1().Pods(upgradeNamespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for i := range pods.Items {
		Expect(pods.Items[i].OwnerReferences).To(ConsistOf(HaveField("APIVersion", v2alpha1.GroupVersion.String())), pods.Items[i].Name)
	}
}

// expectMigrated waits until jobs are stored only in the newer version and kubectl di reports it.
func (t *takeover) expectMigrated(ctx SpecContext) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		output, err := callKubectl(ctx, "get", "customresourcedefinition", dijobs,
			`--output=jsonpath={range .spec.versions[*]}{.name} {.served} {.storage}, {end}{.status.storedVersions}`)
		g.Expect(err).NotTo(HaveOccurred(), output)
		g.Expect(output).To(Equal(`v1alpha1 true false, v2alpha1 true true, ["v2alpha1"]`))
	}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	user := &pluginUser{plugins: buildPlugin(ctx), namespace: names.SystemNamespace}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := user.di(limited, "", "migrate", "status", "--watch")
	AddReportEntry("kubectl di migrate status", said)
	Expect(said).To(HaveSuffix("All is done.\n"))
}

// reads reads the job in a version. Without a resource version the API server reads it from etcd
// each time.
func (t *takeover) reads(version string) *pace.Prober {
	GinkgoHelper()
	unlimited := rest.CopyConfig(cluster)
	unlimited.QPS = -1
	sender, err := rest.HTTPClientFor(unlimited)
	Expect(err).NotTo(HaveOccurred())
	url := fmt.Sprintf("%s/apis/%s/%s/namespaces/%s/dijobs/%s", strings.TrimSuffix(cluster.Host, "/"), v2alpha1.GroupName, version, upgradeNamespace, t.job)
	return &pace.Prober{Name: "reading a job in " + version, Every: 20 * time.Millisecond, Call: func(ctx context.Context, _ int) error {
		return send(ctx, sender, http.MethodGet, url, nil, nil)
	}}
}

// onceAnswered ignores errors of a call until it has succeeded once.
func onceAnswered(call func(context.Context, int) error) func(context.Context, int) error {
	var answered atomic.Bool
	return func(ctx context.Context, number int) error {
		required := answered.Load()
		err := call(ctx, number)
		if err == nil {
			answered.Store(true)
		}
		if !required {
			return nil
		}
		return err
	}
}

// explain prints the state of a takeover after a failure.
func (t *takeover) explain(ctx SpecContext) {
	explain(ctx, upgradeNamespace, []string{"get", "pods", "-o=wide"}, []string{"get", "events"}, []string{"get", dijobs, "-o=yaml"})
	explain(ctx, names.SystemNamespace, []string{"get", "pods,jobs,deployments,services,endpointslices", "-o=wide"}, []string{"get", "events"},
		[]string{"get", "customresourcedefinition", dijobs, "-o=jsonpath={.metadata.annotations}{.spec.conversion}{.status}"},
		[]string{"logs", "--selector=" + operatorPods, "--tail=80", "--prefix"}, []string{"logs", "--selector=" + webhookPods, "--tail=80", "--prefix"},
		[]string{"logs", "--selector=" + serverPods, "--tail=40", "--prefix"},
		[]string{"logs", "--selector=batch.kubernetes.io/job-name", "--tail=40", "--prefix"})
}
