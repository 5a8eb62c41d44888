// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/test/demo"
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

// These specs count the results of connections, one for each call, on nodes where kube-proxy routes
// them.
var _ = DescribeTable("Every new connection to di-server is answered while it is exchanged", Serial, Label("upgrade", "connections", twoNodes),
	func(ctx SpecContext, release legacy.Release, version string, port int, job *unstructured.Unstructured, urls ...string) {
		t := &takeover{release: release}
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
			t.createObjects(ctx, []string{fmt.Sprintf("--listen=:%d", port)})
			if job != nil {
				create(ctx, job.DeepCopy())
			}
			kubectlOutput(ctx, "rollout", "status", "deployment/"+names.EarlierServer, "--namespace="+names.SystemNamespace, waiting())

			calling := startCallers(ctx, urls)
			// The callers are pods of no job, so di-server must not authenticate them.
			helmOutput(ctx, "install", demo.Release, chartFolder(), "--take-ownership", "--force-conflicts", "--wait", helmWaiting(), "--set=server.identity=off")
			t.expectTakenOver(ctx)
			Expect(pace.Pause(ctx, nodesHear)).To(Succeed())
			calling.expectAllAnswered(ctx, fmt.Sprintf("%s taken over, round %d", release.Name, round))

			calling = startCallers(ctx, urls)
			t.putBack(ctx, plugins, version)
			Expect(pace.Pause(ctx, nodesHear)).To(Succeed())
			calling.expectAllAnswered(ctx, fmt.Sprintf("%s put back, round %d", release.Name, round))
			kubectlOutput(ctx, "delete", dijobs, "--all", "--namespace="+callersNamespace, waiting())
		}
	},
	Entry("of v0.2.2", legacy.V022(), "v1alpha1", 8080, nil,
		"http://di-server.di-system.svc.cluster.local.:8080/v1alpha1/replicas", "http://di-server-nodeport.di-system.svc.cluster.local.:8080/v1alpha1/replicas"),
	Entry("of v1.1.3", legacy.V113(), "v2alpha1", 8081, calledJob(),
		"http://di-server.di-system.svc.cluster.local.:8081/v2alpha1/job/"+callersNamespace+".called/replicas"),
)

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
					fmt.Sprintf("--listen=:%d", callersPort), "--call=" + strings.Join(urls, ","), "--every=50ms",
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
	URL string
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
		AddReportEntry(fmt.Sprintf("%s: caller %d, %s: %d calls, %d failed, the slowest took %s",
			during, i, one.URL, one.Calls(), one.Failed, one.Slowest.Round(time.Millisecond)), ReportEntryVisibilityAlways)
		if one.Failed > 0 || one.Slowest > slowCall {
			failures = append(failures, fmt.Sprintf("%s: %d failed, the slowest took %s: %s", one.URL, one.Failed, one.Slowest, strings.Join(one.Failures, "\n")))
		}
	}
	for _, pod := range f.pods {
		Expect(core.CoreV1().Pods(callersNamespace).Delete(ctx, pod, metav1.DeleteOptions{})).To(Succeed())
	}
	Expect(strings.Join(failures, "\n")).To(BeEmpty(), during)
}
