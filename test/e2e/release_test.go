// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	operatorPods = "app.kubernetes.io/name=di-orchestrator,app.kubernetes.io/component=operator"
	webhookPods  = "app.kubernetes.io/name=di-orchestrator,app.kubernetes.io/component=webhook"
	serverPods   = "app.kubernetes.io/name=di-orchestrator,app.kubernetes.io/component=server"
	// released selects all objects of the chart, including its hooks.
	released = "app.kubernetes.io/instance=" + demo.Release
)

// helmWaiting returns the flag with Helm's timeout.
func helmWaiting() string { return "--timeout=" + rolloutPatience.String() }

func chartFolder() string {
	return filepath.Join(testkit.Root(), "charts", "di-orchestrator")
}

// helmOutput runs Helm in the release's namespace and returns its output.
func helmOutput(ctx SpecContext, args ...string) string {
	GinkgoHelper()
	output, err := callHelm(ctx, helm, args...)
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// helmFailure runs Helm, which must fail, and returns the error.
func helmFailure(ctx SpecContext, args ...string) string {
	GinkgoHelper()
	output, err := callHelm(ctx, helm, args...)
	Expect(err).To(HaveOccurred(), output)
	return output
}

func callHelm(ctx SpecContext, program string, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, program, append(args, "--namespace="+names.SystemNamespace)...).CombinedOutput()
	return string(output), err
}

// makeSystemNamespace creates the release's namespace, which admits only restricted pods.
func makeSystemNamespace(ctx SpecContext) {
	GinkgoHelper()
	_, err := core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: names.SystemNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// removeAll deletes everything that an installation leaves behind. Definitions remain if there are
// jobs.
func removeAll(ctx SpecContext) {
	GinkgoHelper()
	helmOutput(ctx, "uninstall", demo.Release, "--wait", "--ignore-not-found", helmWaiting())
	kubectlOutput(ctx, "delete", "namespace", names.SystemNamespace, "--ignore-not-found", waiting())
	if kubectlOutput(ctx, "get", dijobs, "--all-namespaces", "--output=name") != "" {
		AddReportEntry("there are jobs, so that the definitions stay")
		return
	}
	kubectlOutput(ctx, "delete", "customresourcedefinitions", "--ignore-not-found", waiting(), dijobs,
		"memberships.diengine.opendilab.org", "scaleplans.diengine.opendilab.org", "aggregatorconfigs.diengine.opendilab.org")
}

// revisions returns the names of the objects in which Helm stores the release's revisions.
func revisions(ctx SpecContext) string {
	GinkgoHelper()
	return strings.TrimSpace(kubectlOutput(ctx, "get", "secrets", "--namespace="+names.SystemNamespace,
		"--selector=owner=helm,name="+demo.Release, "--sort-by=.metadata.creationTimestamp", "--output=name"))
}

// systemPods returns the pods of one of the project's programs.
func systemPods(ctx SpecContext, g Gomega, selector string) []corev1.Pod {
	GinkgoHelper()
	pods, err := core.CoreV1().Pods(names.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	g.Expect(err).NotTo(HaveOccurred())
	return pods.Items
}

// expectServing waits until two replicas of each program run an image, all are ready, and no pod
// with another image exists, terminating pods included. It expects that they report the given
// version.
func expectServing(ctx SpecContext, image, version string) {
	GinkgoHelper()
	for _, selector := range []string{operatorPods, webhookPods, serverPods} {
		var pods []corev1.Pod
		Eventually(func(g Gomega) {
			pods = systemPods(ctx, g, selector)
			g.Expect(pods).To(HaveLen(2))
			for i := range pods {
				g.Expect(pods[i].Spec.Containers[0].Image).To(Equal(image))
				g.Expect(isReady(&pods[i])).To(BeTrue(), pods[i].Name)
			}
		}).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), selector)
		for i := range pods {
			Expect(logOf(ctx, names.SystemNamespace, pods[i].Name)).To(ContainSubstring(`"version":%q`, version), pods[i].Name)
		}
	}
}

// versionServed returns the version that one of the operators reports, which is stamped in its
// image.
func versionServed(ctx SpecContext) string {
	GinkgoHelper()
	pods := systemPods(ctx, Default, operatorPods)
	Expect(pods).NotTo(BeEmpty())
	_, found, _ := strings.Cut(logOf(ctx, names.SystemNamespace, pods[0].Name), `"version":"`)
	found, _, ok := strings.Cut(found, `"`)
	Expect(ok).To(BeTrue())
	return found
}

// converted returns the number of objects that the webhooks have converted.
func converted(ctx SpecContext) int {
	GinkgoHelper()
	total := 0
	pods := systemPods(ctx, Default, webhookPods)
	for i := range pods {
		metrics, err := core.CoreV1().RESTClient().Get().Namespace(names.SystemNamespace).Resource("pods").
			Name(pods[i].Name + ":8082").SubResource("proxy").Suffix("metrics").DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		lines := bufio.NewScanner(strings.NewReader(string(metrics)))
		for lines.Scan() {
			if fields := strings.Fields(lines.Text()); strings.HasPrefix(lines.Text(), "di_orchestrator_conversions_total{") && len(fields) == 2 {
				count, err := strconv.Atoi(fields[1])
				Expect(err).NotTo(HaveOccurred(), lines.Text())
				total += count
			}
		}
	}
	return total
}

// identities returns the UIDs of all objects of some kinds in a namespace, and the numbers of
// container restarts of pods.
func identities(ctx SpecContext, namespace string, kinds ...string) []string {
	GinkgoHelper()
	found := strings.Split(strings.TrimSpace(kubectlOutput(ctx, "get", strings.Join(kinds, ","), "--namespace="+namespace,
		`--output=jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)), "\n")
	slices.Sort(found)
	return found
}

// leftovers returns all objects of every kind that a selector selects in a namespace, or in the
// cluster if that is empty.
func leftovers(ctx SpecContext, g Gomega, selector, namespace string) []string {
	GinkgoHelper()
	query, where := []string{"api-resources", "--verbs=list,get", "--output=name"}, "--all-namespaces"
	if namespace != "" {
		query, where = append(query, "--namespaced=true"), "--namespace="+namespace
	}
	kinds, err := exec.CommandContext(ctx, kubectl, query...).Output()
	g.Expect(err).NotTo(HaveOccurred())
	var listed []string
	for kind := range strings.FieldsSeq(string(kinds)) {
		// Events describe the past.
		if !strings.HasPrefix(kind, "events") {
			listed = append(listed, kind)
		}
	}
	args := []string{"get", strings.Join(listed, ","), "--output=name", "--ignore-not-found", "--selector=" + selector, where}
	// Output omits the warnings about deprecated kinds.
	output, err := exec.CommandContext(ctx, kubectl, args...).Output()
	g.Expect(err).NotTo(HaveOccurred())
	found := strings.Fields(string(output))
	slices.Sort(found)
	return found
}

// buildNext builds the operator's image with another version stamp and loads it into the local
// cluster.
func buildNext(ctx SpecContext, tag string) {
	GinkgoHelper()
	loadImage(ctx, "di-orchestrator:"+tag, "./cmd/di-orchestrator", "-X main.version="+tag)
}

// loadImage builds a program of the checkout and its image, and loads the image into the local
// cluster.
func loadImage(ctx SpecContext, image, source string, flags ...string) {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	name := filepath.Base(source)
	program, tarball := filepath.Join(folder, name), filepath.Join(folder, name+".tar")
	for _, args := range [][]string{
		{"env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w " + strings.Join(flags, " "), "-o", program, source},
		{"go", "run", "-C", "hack/image", ".", "--name=" + image, "--out=" + tarball, "--entrypoint=/" + name,
			fmt.Sprintf("--file=%s=/%s", program, name)},
	} {
		command := exec.CommandContext(ctx, args[0], args[1:]...)
		command.Dir = testkit.Root()
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
	}
	clusterOutput(ctx, "load-image", tarball)
}

// systemUIDs returns the UIDs of the pods of one of the project's programs.
func systemUIDs(ctx SpecContext, selector string) []types.UID {
	GinkgoHelper()
	var found []types.UID
	for _, pod := range systemPods(ctx, Default, selector) {
		found = append(found, pod.UID)
	}
	slices.Sort(found)
	return found
}

// programUIDs returns the UIDs of the pods of all programs.
func programUIDs(ctx SpecContext) []types.UID {
	GinkgoHelper()
	return slices.Concat(systemUIDs(ctx, operatorPods), systemUIDs(ctx, webhookPods), systemUIDs(ctx, serverPods))
}
