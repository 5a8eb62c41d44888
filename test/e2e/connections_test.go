// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

// upgradeRounds is the number of takeovers and rollbacks for each release.
var upgradeRounds = flag.Int("upgrade.rounds", 1, "how often connections are counted while each release is taken over and put back")

const (
	callersNamespace = "callers"
	callersPort      = 9000
	// nodesHear exceeds the time in which nodes learn of endpoints.
	nodesHear = 10 * time.Second
)

// These specs count the results of calls, over new and over kept connections, on nodes where
// kube-proxy routes them.
var _ = DescribeTable("Every call of di-server is answered while it is exchanged", Serial, Label("upgrade", "connections", twoNodes),
	func(ctx SpecContext, path path, version string, job *unstructured.Unstructured, urls ...string) {
		t := &takeover{release: path.release}
		loadImage(ctx, earlierImage, "./test/e2e/earlier")
		makeNamespace(ctx, callersNamespace)
		DeferCleanup(func(ctx SpecContext) {
			removeAll(ctx)
			t.removeRights(ctx)
			Expect(run.Install(ctx)).To(Succeed())
		})
		plugins := &pluginUser{plugins: buildPlugin(ctx), namespace: names.SystemNamespace}
		for round := 1; round <= *upgradeRounds; round++ {
			removeAll(ctx)
			t.removeRights(ctx)
			path.leave(ctx, t)
			if job != nil {
				create(ctx, job.DeepCopy())
			}
			kubectlOutput(ctx, "rollout", "status", "deployment/"+names.EarlierServer, "--namespace="+names.SystemNamespace, waiting())

			calling, reading := startCallers(ctx, urls), readers()
			startProbers(reading...)
			// The callers are pods of no job, so di-server must not authenticate them.
			helmOutput(ctx, append(path.install, chartFolder(), "--wait", helmWaiting(), "--set=configuration.server.identity=disabled")...)
			t.expectTakenOver(ctx)
			Expect(pace.Pause(ctx, nodesHear)).To(Succeed())
			calling.expectAllAnswered(ctx, fmt.Sprintf("%s taken over, round %d", path, round))
			expectNoFailure(fmt.Sprintf("%s taken over, round %d", path, round), reading...)

			calling = startCallers(ctx, urls)
			t.restoreDeleted(ctx, path.server)
			t.putBack(ctx, plugins, version)
			Expect(pace.Pause(ctx, nodesHear)).To(Succeed())
			calling.expectAllAnswered(ctx, fmt.Sprintf("%s put back, round %d", path, round))
			kubectlOutput(ctx, "delete", dijobs, "--all", "--namespace="+callersNamespace, waiting())
		}
	},
	Entry("of v0.2.2 by its manifest", overManifest(legacy.V022(), 8080), "v1alpha1", nil,
		"http://di-server.di-system.svc.cluster.local.:8080/v1alpha1/replicas", "http://di-server-nodeport.di-system.svc.cluster.local.:8080/v1alpha1/replicas"),
	Entry("of v1.1.3 by its manifest", overManifest(legacy.V113(), 8081), "v2alpha1", calledJob(), calledURL),
	Entry("of v1.1.3 by its chart, whose release is forgotten", overForgotten(legacy.V113(), 8081), "v2alpha1", calledJob(), calledURL),
	Entry("of v1.1.3 by its chart, whose release is upgraded", overChart(legacy.V113(), 8081), "v2alpha1", calledJob(), calledURL),
)

// calledURL is what v1.1.3 answers about the job that waits.
const calledURL = "http://di-server.di-system.svc.cluster.local.:8081/v2alpha1/job/" + callersNamespace + ".called/replicas"

// path is a way from an earlier release to this one, as the upgrade guide describes it.
type path struct {
	name    string
	release legacy.Release
	// server are the arguments of the program that replaces the earlier di-server.
	server []string
	// leave creates the earlier installation.
	leave func(SpecContext, *takeover)
	// install are the first arguments of Helm.
	install []string
}

func (p path) String() string { return p.release.Name + " by " + p.name }

// overManifest returns the path over an installation by the manifest of a release.
func overManifest(release legacy.Release, port int) path {
	server := []string{fmt.Sprintf("--listen=:%d", port)}
	return path{
		name: "its manifest", release: release, server: server,
		leave:   func(ctx SpecContext, t *takeover) { t.createObjects(ctx, server) },
		install: []string{"install", "--take-ownership", "--force-conflicts", demo.Release},
	}
}

// overChart returns the path over an installation by the chart of a release, which Helm upgrades. It
// deletes the earlier Deployments while their di-server still answers.
func overChart(release legacy.Release, port int) path {
	server := []string{fmt.Sprintf("--listen=:%d", port), "--until-killed"}
	return path{
		name: "its chart", release: release, server: server,
		leave:   func(ctx SpecContext, t *takeover) { t.installChart(ctx, server) },
		install: []string{"upgrade", "--reset-values", demo.Release},
	}
}

// overForgotten returns the path over an installation by the chart of a release that Helm forgets
// first.
func overForgotten(release legacy.Release, port int) path {
	forgotten := overChart(release, port)
	leave := forgotten.leave
	forgotten.name, forgotten.install = "its forgotten chart", overManifest(release, port).install
	forgotten.leave = func(ctx SpecContext, t *takeover) {
		leave(ctx, t)
		t.system(ctx, "delete secrets --selector=owner=helm,name="+demo.Release)
	}
	return forgotten
}

// installChart installs the release by a chart as its own was, with the definition beside it.
func (t *takeover) installChart(ctx SpecContext, server []string) {
	GinkgoHelper()
	var templates []*unstructured.Unstructured
	for _, object := range t.objects() {
		switch object.GetKind() {
		case "Namespace", "CustomResourceDefinition":
			create(ctx, object)
			continue
		case "Deployment":
			standIn(object, server)
		}
		templates = append(templates, object)
	}
	folder := GinkgoT().TempDir()
	Expect(t.release.WriteChart(folder, templates)).To(Succeed())
	helmOutput(ctx, "install", demo.Release, folder, "--wait", helmWaiting())
}

// restoreDeleted creates the earlier di-server without replicas, with what it needs, where Helm has
// deleted them.
func (t *takeover) restoreDeleted(ctx SpecContext, server []string) {
	GinkgoHelper()
	for _, object := range t.objects() {
		switch {
		case object.GetKind() == "Deployment" && object.GetName() == names.EarlierServer:
			standIn(object, server)
			Expect(unstructured.SetNestedField(object.Object, int64(0), "spec", "replicas")).To(Succeed())
		case !slices.Contains([]string{"ServiceAccount", "ConfigMap", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}, object.GetKind()):
			continue
		}
		create(ctx, object)
	}
}

// calledJob returns a job of v1.1.3 that waits until it is deleted.
func calledJob() *unstructured.Unstructured {
	container := map[string]any{"name": names.Container, "image": earlierImage}
	job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tasks": []any{map[string]any{
		"name": "learner", "type": "learner", "replicas": int64(1),
		"template": map[string]any{"spec": map[string]any{"containers": []any{container}}},
	}}}}}
	job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	job.SetNamespace(callersNamespace)
	job.SetName("called")
	return job
}

// expectTakenOver waits until the takeover records that it is done.
func (t *takeover) expectTakenOver(ctx SpecContext) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		said, err := callKubectl(ctx, "get", "customresourcedefinition", dijobs, `--output=jsonpath={.metadata.annotations.diengine\.opendilab\.org/takeover}`)
		g.Expect(err).NotTo(HaveOccurred(), said)
		g.Expect(said).To(HavePrefix("Done:"))
	}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// putBack follows the upgrade guide's instructions for a rollback.
func (t *takeover) putBack(ctx SpecContext, plugins *pluginUser, version string) {
	GinkgoHelper()
	plugins.di(ctx, "", "migrate", "--to", version)
	plugins.di(ctx, "", "migrate", "status", "--watch")
	for _, step := range []string{
		`patch service di-server --type=merge --patch={"spec":{"selector":{"app.kubernetes.io/name":"di-orchestrator"}}}`,
		`scale deployment di-server --replicas=1`,
		`rollout status deployment di-server ` + waiting(),
		`patch service di-server --type=merge --patch={"spec":{"selector":{"app.kubernetes.io/name":null}}}`,
	} {
		t.system(ctx, step)
		if !strings.HasPrefix(step, "scale") {
			Expect(pace.Pause(ctx, nodesHear)).To(Succeed())
		}
	}
	t.system(ctx, "scale deployment di-orchestrator-server --replicas=0")
	t.system(ctx, "wait --for=delete pods --selector="+serverPods+" "+waiting())
	helmOutput(ctx, "uninstall", demo.Release, "--wait", helmWaiting())
	for _, object := range t.objects() {
		if object.GetKind() == "Service" && object.GetName() == names.ServerService {
			content, err := yaml.Marshal(object.Object)
			Expect(err).NotTo(HaveOccurred())
			replace := exec.CommandContext(ctx, kubectl, "replace", "--filename=-")
			replace.Stdin = strings.NewReader(string(content))
			output, err := replace.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
		}
	}
}

// system runs a kubectl command in the namespace of the installation.
func (t *takeover) system(ctx SpecContext, command string) {
	GinkgoHelper()
	kubectlOutput(ctx, append(strings.Fields(command), "--namespace="+names.SystemNamespace)...)
}

// readers returns probers that list jobs in each version from the moment that the API server serves it.
func readers() []*pace.Prober {
	var all []*pace.Prober
	for _, version := range []string{v1alpha1.Version, v2alpha1.Version} {
		all = append(all, &pace.Prober{Name: "listing jobs in " + version, Every: 100 * time.Millisecond, Call: func(ctx context.Context, _ int) error {
			_, err := core.CoreV1().RESTClient().Get().AbsPath("apis", v2alpha1.GroupName, version, "dijobs").DoRaw(ctx)
			// The earlier release serves one version.
			return client.IgnoreNotFound(err)
		}})
	}
	return all
}

// fleet contains pods that call, one on each node.
type fleet struct{ pods []string }

// startCallers starts the pods and waits until all call.
func startCallers(ctx SpecContext, urls []string) *fleet {
	GinkgoHelper()
	f := &fleet{}
	for _, node := range []string{stayingNode, lostNode} {
		grace := int64(0)
		pod, err := core.CoreV1().Pods(callersNamespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "caller-" + node + "-"},
			Spec: corev1.PodSpec{
				NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
				Containers: []corev1.Container{{Name: "caller", Image: earlierImage, Args: []string{
					fmt.Sprintf("--listen=:%d", callersPort), "--call=" + strings.Join(urls, ","), "--keep", "--every=50ms",
				}}},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		f.pods = append(f.pods, pod.Name)
	}
	Eventually(func(g Gomega) {
		for _, tally := range f.ask(ctx, g, "tallies") {
			g.Expect(tally.Calls()).To(BeNumerically(">", 20), tally.URL)
		}
	}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	return f
}

// tally counts the calls of a URL by one pod.
type tally struct {
	URL  string
	Kept bool
	pace.Tally
}

// slowCall is the duration after which a call counts as hanging.
const slowCall = 5 * time.Second

func (f *fleet) ask(ctx SpecContext, g Gomega, path string) []tally {
	var all []tally
	for _, pod := range f.pods {
		content, err := core.CoreV1().RESTClient().Get().Namespace(callersNamespace).Resource("pods").
			Name(fmt.Sprintf("%s:%d", pod, callersPort)).SubResource("proxy").Suffix(path).DoRaw(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		var found []tally
		g.Expect(json.Unmarshal(content, &found)).To(Succeed())
		all = append(all, found...)
	}
	return all
}

// expectAllAnswered stops the callers and expects that each call was answered in time.
func (f *fleet) expectAllAnswered(ctx SpecContext, during string) {
	GinkgoHelper()
	var failures []string
	for i, one := range f.ask(ctx, Default, "stop") {
		AddReportEntry(fmt.Sprintf("%s: caller %d, %s, kept connection %t: %d calls, %d failed, the slowest took %s",
			during, i, one.URL, one.Kept, one.Calls(), one.Failed, one.Slowest.Round(time.Millisecond)), ReportEntryVisibilityAlways)
		if one.Failed > 0 || one.Slowest > slowCall {
			failures = append(failures, fmt.Sprintf("%s: %d failed, the slowest took %s: %s", one.URL, one.Failed, one.Slowest, strings.Join(one.Failures, "\n")))
		}
	}
	for _, pod := range f.pods {
		Expect(core.CoreV1().Pods(callersNamespace).Delete(ctx, pod, metav1.DeleteOptions{})).To(Succeed())
	}
	Expect(strings.Join(failures, "\n")).To(BeEmpty(), during)
}
