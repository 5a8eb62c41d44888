// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/pace"
)

const (
	// releaseNamespace is the namespace of the jobs that run while the operator is upgraded.
	releaseNamespace = "release"
	// `make images` builds currentImage. These specs build nextImage.
	currentImage = "di-orchestrator:dev"
	nextTag      = "e2e-next"
	nextImage    = "di-orchestrator:" + nextTag
	// workersJob is worker-led. The coordinator of serialJob trains alone. The coordinator of
	// patientJob has replicas and waits until di-server is available again.
	workersJob, serialJob, patientJob = "workers", "serial", "patient"
	// heldFirst is the round after which training first pauses.
	heldFirst = 2
)

// rolloutRounds is the number of upgrades and rollbacks of the release.
var rolloutRounds = flag.Int("chart.rounds", 1, "how often to upgrade the chart and roll it back")

// These specs replace the installation that all others share, and restore it. They build an image
// and load it as the local cluster requires.
var _ = Describe("The chart", Ordered, Serial, Label("chart", twoNodes), func() {
	strict := &survivor{namespace: releaseNamespace, name: "strict", wanted: map[names.ReplicaType]int{
		names.ReplicaTypeCoordinator: 1, names.ReplicaTypeCollector: 2, names.ReplicaTypeLearner: 1,
	}}
	// These two train and pause together.
	trainings := []driver{
		{releaseNamespace, names.WorkerPod(workersJob, "learner", 0), names.DefaultWorkerPort},
		{releaseNamespace, names.CoordinatorPod(patientJob), names.DefaultPort(names.ReplicaTypeCoordinator)},
	}
	var (
		version string
		tokens  callers
	)
	jobObjects := func(ctx SpecContext) []string {
		return identities(ctx, releaseNamespace, dijobs, "memberships", "pods")
	}
	definitions := func(ctx SpecContext) string {
		return kubectlOutput(ctx, "get", "customresourcedefinitions", dijobs,
			"memberships.diengine.opendilab.org", "scaleplans.diengine.opendilab.org", "aggregatorconfigs.diengine.opendilab.org",
			`--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.generation}{"\n"}{end}`)
	}
	held := heldFirst
	expectTrained := func(ctx SpecContext) {
		GinkgoHelper()
		for _, training := range trainings {
			Eventually(func(g Gomega) {
				training.pause(ctx, g, held)
				g.Expect(training.round(ctx, g)).To(Equal(held))
			}).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), training.pod)
		}
	}
	// expectTrainingOn waits until both have completed a round beyond those allowed so far.
	expectTrainingOn := func(ctx SpecContext) {
		GinkgoHelper()
		held++
		expectTrained(ctx)
	}
	expectStrictGoesOn := func(ctx SpecContext) {
		GinkgoHelper()
		strict.expectRecovered(ctx, nil)
		strict.expectGoingOn(ctx)
		strict.expectListed(ctx)
	}

	BeforeAll(func(ctx SpecContext) {
		buildNext(ctx, nextTag)
		for _, file := range []string{"v1alpha1-serial.yaml", "v1alpha1-distributed.yaml", "v2alpha1.yaml"} {
			kubectlOutput(ctx, "delete", "--ignore-not-found", "--cascade=foreground", waiting(), "-f", filepath.Join(testkit.Root(), "examples", "cartpole", file))
		}
		removeAll(ctx)
		makeSystemNamespace(ctx)
		DeferCleanup(func(ctx SpecContext) { Expect(run.Install(ctx)).To(Succeed()) })
		makeNamespace(ctx, releaseNamespace)
		DeferCleanup(func(ctx SpecContext) {
			kubectlUntilDone(ctx, "delete", dijobs, "--all", "--cascade=foreground", waiting(), "--namespace="+releaseNamespace)
		})
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			strict.explain(ctx)
			explain(ctx, names.SystemNamespace, []string{"get", "pods,jobs", "-o=wide"}, []string{"get", "events"},
				[]string{"logs", "--selector=" + operatorPods, "--tail=60", "--prefix"},
				[]string{"logs", "--selector=" + webhookPods, "--tail=60", "--prefix"}, []string{"logs", "--selector=" + serverPods, "--tail=60", "--prefix"})
		}
	})

	It("is installed into a namespace that enforces the restricted Pod Security Standard, and runs a first job", func(ctx SpecContext) {
		begun := time.Now()
		helmOutput(ctx, "install", demo.Release, chartFolder(), "--wait", helmWaiting())
		installed := time.Now()
		job := readManifest("v1alpha1-serial.yaml")
		job.SetName(serialJob)
		job.SetNamespace(releaseNamespace)
		addArgs(podSpecs(job)["coordinator"], "--pause-after=1")
		submit(ctx, job)
		Eventually(func(g Gomega) {
			g.Expect(getJob(ctx, g, releaseNamespace, serialJob).Status.Phase).To(Equal(v2alpha1.JobRunning))
		}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
		AddReportEntry(fmt.Sprintf("helm install --wait took %s, the first job was Running %s after it was begun",
			installed.Sub(begun).Round(100*time.Millisecond), time.Since(begun).Round(100*time.Millisecond)))
		version = versionServed(ctx)
		expectServing(ctx, currentImage, version)
		Expect(version).NotTo(Equal(nextTag))
	})

	It("keeps one pod of each program through disruptions", func(ctx SpecContext) {
		for _, name := range demo.Deployments() {
			Eventually(func(g Gomega) {
				budget, err := core.PolicyV1().PodDisruptionBudgets(names.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(budget.Status.ExpectedPods).To(Equal(int32(2)))
				g.Expect(budget.Status.DisruptionsAllowed).To(Equal(int32(1)))
			}).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), name)
		}
	})

	It("passes its own test", func(ctx SpecContext) {
		Expect(helmOutput(ctx, "test", demo.Release, helmWaiting())).To(ContainSubstring("Succeeded"))
	})

	It("leaves nothing of its hooks behind", func(ctx SpecContext) {
		Expect(leftovers(ctx, Default, released, "")).NotTo(ContainElement(MatchRegexp("install-crds|retire-crds|probe")))
	})

	It("has jobs of both lifecycles to keep", func(ctx SpecContext) {
		strict.submit(ctx)
		hold := fmt.Sprintf("--pause-after=%d", heldFirst)
		for name, manifest := range map[string]string{workersJob: "v2alpha1.yaml", patientJob: "v1alpha1-distributed.yaml"} {
			job := readManifest(manifest)
			job.SetName(name)
			job.SetNamespace(releaseNamespace)
			for role, spec := range podSpecs(job) {
				switch {
				case name == workersJob && role == "learner":
					addArgs(spec, hold)
				case name == patientJob && role == string(names.ReplicaTypeCoordinator):
					// The job has no aggregator because its strict client fails on any error.
					addArgs(spec, append(curve(), hold, "--strict=false", "--learner-gpus=0")...)
				}
			}
			submit(ctx, job)
		}
		expectStrictGoesOn(ctx)
		expectTrained(ctx)
		for name, replicas := range map[string]int32{workersJob: 5, patientJob: 4} {
			Eventually(func(g Gomega) {
				g.Expect(getJob(ctx, g, releaseNamespace, name).Status.ReadyReplicas).To(Equal(replicas))
			}).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), name)
		}
		tokens = makeCallers(ctx)
	})

	It("is probed in a way that asks the webhooks each time", func(ctx SpecContext) {
		const calls = 20
		before := converted(ctx)
		probe := tokens.conversion()
		for range calls {
			Expect(probe.Call(ctx, 0)).To(Succeed())
		}
		Expect(converted(ctx) - before).To(BeNumerically(">=", calls))
	})

	It("refuses a wrong value before anything is changed", func(ctx SpecContext) {
		before, pods := revisions(ctx), identities(ctx, names.SystemNamespace, "pods", "deployments", "jobs")
		Expect(helmFailure(ctx, "upgrade", demo.Release, chartFolder(), "--reuse-values", "--set=server.replicas=-1", helmWaiting())).
			To(And(ContainSubstring("server"), ContainSubstring("replicas")))
		Expect(revisions(ctx)).To(Equal(before))
		Expect(identities(ctx, names.SystemNamespace, "pods", "deployments", "jobs")).To(Equal(pods))
	})

	for round := range *rolloutRounds {
		exchange := func(name, image string, version func() string, args ...string) {
			It(fmt.Sprintf("%s without a failed call (%d)", name, round+1), func(ctx SpecContext) {
				before, defined := jobObjects(ctx), definitions(ctx)
				strict.letGoOn(ctx)
				probers := tokens.all()
				startProbers(probers...)
				begun := time.Now()
				helmOutput(ctx, args...)
				AddReportEntry(fmt.Sprintf("helm %s took %s", args[0], time.Since(begun).Round(100*time.Millisecond)))
				expectServing(ctx, image, version())
				expectNoFailure("helm "+args[0], probers...)
				expectStrictGoesOn(ctx)
				expectTrainingOn(ctx)
				Expect(jobObjects(ctx)).To(Equal(before), "jobs, memberships, pods and their restarts")
				Expect(definitions(ctx)).To(Equal(defined))
			})
		}
		exchange("is upgraded to another image", nextImage, func() string { return nextTag },
			"upgrade", demo.Release, chartFolder(), "--reuse-values", "--set=image.tag="+nextTag, "--wait", helmWaiting())
		exchange("is rolled back", currentImage, func() string { return version },
			"rollback", demo.Release, "1", "--wait", helmWaiting())
	}

	It("keeps running when an upgrade fails at its first hook, and is upgraded after that", func(ctx SpecContext) {
		before := programUIDs(ctx)
		helmFailure(ctx, "upgrade", demo.Release, chartFolder(), "--reuse-values", "--set=image.tag=e2e-none", "--timeout=15s")
		probers := tokens.all()
		for _, p := range probers {
			Expect(p.Call(ctx, 0)).To(Succeed(), p.Name)
		}
		Expect(programUIDs(ctx)).To(Equal(before))
		helmOutput(ctx, "upgrade", demo.Release, chartFolder(), "--reuse-values", "--set=image.tag=dev", "--wait", helmWaiting())
		expectServing(ctx, currentImage, version)
		Eventually(func(g Gomega) {
			g.Expect(leftovers(ctx, g, released, "")).NotTo(ContainElement(MatchRegexp("install-crds|retire-crds|probe")))
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		expectStrictGoesOn(ctx)
		expectTrainingOn(ctx)
	})

	It("has disturbed no training", func(ctx SpecContext) {
		strict.release(ctx)
		strict.expectSucceeded(ctx, serialOutcome(ctx, curve()...))
		// The next step counts all pods, so the pods that are deleted after success must be gone.
		Eventually(func(g Gomega) {
			g.Expect(strict.pods(ctx, g)).To(HaveLen(1))
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
	})

	It("is uninstalled while jobs run, of which nothing is lost, and blocks nobody", func(ctx SpecContext) {
		before := jobObjects(ctx)
		helmOutput(ctx, "uninstall", demo.Release, "--wait", helmWaiting())
		Eventually(func(g Gomega) {
			g.Expect(leftovers(ctx, g, released, "")).To(HaveEach(keptService()))
			// Pods continue to answer for a while.
			g.Expect(leftovers(ctx, g, "", names.SystemNamespace)).To(HaveEach(Or(keptService(), BeElementOf(keptAfterUninstall()))))
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		Expect(kubectlOutput(ctx, "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings", "--output=name")).
			NotTo(ContainSubstring("di-orchestrator"))
		Expect(jobObjects(ctx)).To(Equal(before))

		By("reading, changing and deleting jobs without the operator")
		kubectlUntilDone(ctx, "get", "dijobs.v2alpha1."+v2alpha1.GroupName, "--all-namespaces")
		kubectlUntilDone(ctx, "annotate", dijobs, workersJob, "seen=yes", "--overwrite", "--namespace="+releaseNamespace)
		kubectlUntilDone(ctx, "delete", dijobs, serialJob, "--cascade=foreground", "--ignore-not-found", waiting(), "--namespace="+releaseNamespace)
		output, err := exec.CommandContext(ctx, kubectl, "get", "dijobs.v1alpha1."+v2alpha1.GroupName).CombinedOutput()
		Expect(err).To(HaveOccurred(), string(output))

		By("training on without it")
		expectTrainingOn(ctx)
	})

	It("is installed again, and the jobs go on", func(ctx SpecContext) {
		before := jobObjects(ctx)
		helmOutput(ctx, "install", demo.Release, chartFolder(), "--wait", helmWaiting())
		expectServing(ctx, currentImage, version)
		kubectlUntilDone(ctx, "get", "dijobs.v1alpha1."+v2alpha1.GroupName, workersJob, "--namespace="+releaseNamespace)
		expectTrainingOn(ctx)
		Expect(jobObjects(ctx)).To(Equal(before))
	})

	It("is installed and uninstalled by Helm 3 as well", func(ctx SpecContext) {
		helm3, err := exec.LookPath("helm3")
		Expect(err).NotTo(HaveOccurred(), "make helm3 builds it")
		before := jobObjects(ctx)
		helmOutput(ctx, "uninstall", demo.Release, "--wait", helmWaiting())
		for _, args := range [][]string{
			{"install", demo.Release, chartFolder(), "--wait", helmWaiting()},
			{"upgrade", demo.Release, chartFolder(), "--set=image.tag=" + nextTag, "--wait", helmWaiting()},
			{"rollback", demo.Release, "1", "--wait", helmWaiting()},
			{"uninstall", demo.Release, "--wait", helmWaiting()},
		} {
			output, err := callHelm(ctx, helm3, args...)
			Expect(err).NotTo(HaveOccurred(), output)
		}
		Eventually(func(g Gomega) {
			g.Expect(leftovers(ctx, g, released, "")).To(HaveEach(keptService()))
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		Expect(jobObjects(ctx)).To(Equal(before))
	})
})

// keptService matches the Service that clients know, and the objects that Kubernetes derives from
// it.
func keptService() gomegatypes.GomegaMatcher {
	return MatchRegexp(`^(service|endpoints|endpointslice\.discovery\.k8s\.io)/di-server(-\w+)?$`)
}

// keptAfterUninstall returns the objects that may remain in the release's namespace: those that
// Kubernetes creates in each namespace, the certificates, and the user's own.
func keptAfterUninstall() []string {
	return []string{
		"configmap/kube-root-ca.crt", "serviceaccount/default",
		"secret/di-orchestrator-webhook-ca", "secret/di-orchestrator-server-tls", "configmap/di-orchestrator-server-ca",
		"lease.coordination.k8s.io/di-orchestrator-operator",
		"aggregatorconfig.diengine.opendilab.org/aggregator-config",
	}
}

// callers contain the clients of probers.
type callers struct {
	api    *http.Client
	base   string
	server string
	header http.Header
}

// makeCallers returns clients that call di-server as a user with read access to all jobs of the
// namespace, and the API server as the user who runs the tests.
func makeCallers(ctx SpecContext) callers {
	GinkgoHelper()
	const name = "prober"
	in := metav1.ObjectMeta{Name: name, Namespace: releaseNamespace}
	_, err := core.CoreV1().ServiceAccounts(releaseNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: in}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = core.RbacV1().Roles(releaseNamespace).Create(ctx, &rbacv1.Role{ObjectMeta: in, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"dijobs/replicas"}, Verbs: []string{"get"},
	}}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = core.RbacV1().RoleBindings(releaseNamespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: in,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: releaseNamespace}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := core.CoreV1().ServiceAccounts(releaseNamespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{names.ServerAudience}, ExpirationSeconds: ptr.To(int64(7200))},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	unlimited := rest.CopyConfig(cluster)
	unlimited.QPS = -1
	sender, err := rest.HTTPClientFor(unlimited)
	Expect(err).NotTo(HaveOccurred())
	service, err := core.CoreV1().Services(names.SystemNamespace).Get(ctx, names.ServerService, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return callers{
		api: sender, base: strings.TrimSuffix(cluster.Host, "/"),
		server: fmt.Sprintf("http://%s:%d", service.Spec.ClusterIP, names.ServerPortV1),
		header: http.Header{"Authorization": {"Bearer " + token.Status.Token}},
	}
}

// all returns the probers of the webhooks, through the API server, and of di-server.
func (c callers) all() []*pace.Prober {
	return slices.Concat([]*pace.Prober{c.conversion(), c.lists()}, c.admission(), c.replicas())
}

func (c callers) jobs(version string) string {
	return fmt.Sprintf("%s/apis/%s/%s/namespaces/%s/dijobs", c.base, v2alpha1.GroupName, version, releaseNamespace)
}

// conversion reads a job in the version that is not its storage version. Without a resource version
// the API server reads it from etcd and converts it each time.
func (c callers) conversion() *pace.Prober {
	return &pace.Prober{Name: "reading a job in " + v1alpha1.Version, Every: 20 * time.Millisecond, Call: func(ctx context.Context, _ int) error {
		return send(ctx, c.api, http.MethodGet, c.jobs(v1alpha1.Version)+"/"+workersJob, nil, nil)
	}}
}

// lists lists the jobs in that version.
func (c callers) lists() *pace.Prober {
	return &pace.Prober{Name: "listing jobs in " + v1alpha1.Version, Every: 200 * time.Millisecond, Call: func(ctx context.Context, _ int) error {
		return send(ctx, c.api, http.MethodGet, c.jobs(v1alpha1.Version), nil, nil)
	}}
}

// admission creates and changes jobs as dry runs.
func (c callers) admission() []*pace.Prober {
	jsonBody, patchBody := http.Header{"Content-Type": {"application/json"}}, http.Header{"Content-Type": {"application/merge-patch+json"}}
	created := readManifest("v1alpha1-serial.yaml")
	created.SetName("")
	created.SetGenerateName("dry-")
	created.SetNamespace(releaseNamespace)
	change := func(every time.Duration, name, version, job string, spec map[string]any) *pace.Prober {
		return &pace.Prober{Name: name, Every: every, Call: func(ctx context.Context, _ int) error {
			return send(ctx, c.api, http.MethodPatch, c.jobs(version)+"/"+job+"?dryRun=All", patchBody, map[string]any{"spec": spec})
		}}
	}
	return []*pace.Prober{
		{Name: "creating a job in " + v1alpha1.Version, Every: 200 * time.Millisecond, Call: func(ctx context.Context, _ int) error {
			return send(ctx, c.api, http.MethodPost, c.jobs(v1alpha1.Version)+"?dryRun=All", jsonBody, created.Object)
		}},
		change(200*time.Millisecond, "changing a job in "+v1alpha1.Version, v1alpha1.Version, serialJob, map[string]any{"priorityClassName": "high"}),
		change(200*time.Millisecond, "changing a job in "+v2alpha1.Version, v2alpha1.Version, workersJob, map[string]any{"backoffLimit": 5}),
	}
}

// replicas lists a job's replicas from di-server, with one client that keeps its connection and one
// that opens a connection for each call. Both fail on any error.
func (c callers) replicas() []*pace.Prober {
	url := fmt.Sprintf("%s/v1alpha1/replicas?namespace=%s&coordinator=%s", c.server, releaseNamespace, names.CoordinatorPod("strict"))
	kept, fresh := &http.Transport{}, &http.Transport{DisableKeepAlives: true}
	probe := func(name string, transport *http.Transport) *pace.Prober {
		sender := &http.Client{Transport: transport}
		return &pace.Prober{Name: name, Every: 40 * time.Millisecond, Call: func(ctx context.Context, _ int) error {
			return send(ctx, sender, http.MethodGet, url, c.header, nil)
		}}
	}
	return []*pace.Prober{probe("di-server, connections kept", kept), probe("di-server, a connection for each call", fresh)}
}
