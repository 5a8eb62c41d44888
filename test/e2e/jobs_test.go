// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
)

// makeNamespace creates a namespace for the jobs of a container of specs, and deletes it with its
// contents after them.
func makeNamespace(ctx SpecContext, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := core.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(deleteNamespace, name)
}

// readManifest reads an example.
func readManifest(name string) *unstructured.Unstructured {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(testkit.Root(), "examples", "cartpole", name))
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(content, &object.Object)).To(Succeed())
	return object
}

// submitRanked submits the worker-led example under another name. place changes the pods of each task. Its learner pauses
// after some rounds.
func submitRanked(ctx SpecContext, namespace, name string, rounds int, place func(task string, spec map[string]any)) {
	GinkgoHelper()
	job := readManifest("v2alpha1.yaml")
	job.SetName(name)
	job.SetNamespace(namespace)
	for task, spec := range podSpecs(job) {
		place(task, spec)
		if task == "learner" {
			addArgs(spec, "--min-round=100ms", fmt.Sprintf("--pause-after=%d", rounds))
		}
	}
	submit(ctx, job)
}

// podSpecs returns the specs of a job's pods by role or task. They are part of the job, so changes
// to them change the job.
func podSpecs(job *unstructured.Unstructured) map[string]map[string]any {
	GinkgoHelper()
	roles := map[string]any{}
	spec, ok := job.Object["spec"].(map[string]any)
	Expect(ok).To(BeTrue())
	if tasks, ok := spec["tasks"].([]any); ok {
		for _, task := range tasks {
			fields, ok := task.(map[string]any)
			Expect(ok).To(BeTrue())
			name, ok := fields["name"].(string)
			Expect(ok).To(BeTrue())
			roles[name] = fields
		}
	} else {
		for _, role := range []string{"coordinator", "collector", "learner"} {
			if fields, ok := spec[role]; ok {
				roles[role] = fields
			}
		}
	}
	specs := make(map[string]map[string]any, len(roles))
	for name, role := range roles {
		fields, ok := role.(map[string]any)
		Expect(ok).To(BeTrue(), name)
		podSpec, found, err := unstructured.NestedFieldNoCopy(fields, "template", "spec")
		Expect(err).NotTo(HaveOccurred(), name)
		Expect(found).To(BeTrue(), name)
		specs[name], ok = podSpec.(map[string]any)
		Expect(ok).To(BeTrue(), name)
	}
	return specs
}

// mainContainer returns the first container in a pod's spec, not a copy.
func mainContainer(spec map[string]any) map[string]any {
	GinkgoHelper()
	containers, ok := spec["containers"].([]any)
	Expect(ok).To(BeTrue())
	container, ok := containers[0].(map[string]any)
	Expect(ok).To(BeTrue())
	return container
}

func argsOf(spec map[string]any) []string {
	GinkgoHelper()
	args, _, err := unstructured.NestedStringSlice(mainContainer(spec), "args")
	Expect(err).NotTo(HaveOccurred())
	return args
}

func addArgs(spec map[string]any, args ...string) {
	GinkgoHelper()
	Expect(unstructured.SetNestedStringSlice(mainContainer(spec), append(argsOf(spec), args...), "args")).To(Succeed())
}

// driver is the process that drives a training.
type driver struct {
	namespace, pod string
	port           int32
}

// pause lets training continue up to a round, or to its end if after is 0.
func (d driver) pause(ctx SpecContext, g Gomega, after int) {
	GinkgoHelper()
	put := d.request(core.CoreV1().RESTClient().Put(), "pause").Body(fmt.Appendf(nil, `{"after":%d}`, after))
	g.Expect(put.Do(ctx).Error()).To(Succeed())
}

// round returns the last completed round.
func (d driver) round(ctx SpecContext, g Gomega) int {
	GinkgoHelper()
	raw, err := d.request(core.CoreV1().RESTClient().Get(), "progress").DoRaw(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	var progress struct{ Round int }
	g.Expect(json.Unmarshal(raw, &progress)).To(Succeed())
	return progress.Round
}

// request returns a request to the process through the API server.
func (d driver) request(verb *rest.Request, path string) *rest.Request {
	pod := fmt.Sprintf("%s:%d", d.pod, d.port)
	return verb.Namespace(d.namespace).Resource("pods").Name(pod).SubResource("proxy").Suffix(path)
}

// getJob reads a job.
func getJob(ctx SpecContext, g Gomega, namespace, name string) *v2alpha1.DIJob {
	GinkgoHelper()
	var job v2alpha1.DIJob
	g.Expect(api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &job)).To(Succeed())
	return &job
}

// expectJobSucceeded waits until a job has succeeded.
func expectJobSucceeded(ctx SpecContext, namespace, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		job := getJob(ctx, g, namespace, name)
		if job.Status.Phase == v2alpha1.JobFailed {
			StopTrying("job "+name+" failed").Attach("status", job.Status).Now()
		}
		g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobSucceeded))
	}).WithTimeout(trainingPatience).WithPolling(time.Second).Should(Succeed())
}

// explain prints the output of kubectl commands in a namespace after a failure.
func explain(ctx SpecContext, namespace string, commands ...[]string) {
	for _, command := range commands {
		output, _ := exec.CommandContext(ctx, kubectl, append(command, "--namespace="+namespace)...).CombinedOutput()
		AddReportEntry(strings.Join(command, " "), string(output))
	}
}
