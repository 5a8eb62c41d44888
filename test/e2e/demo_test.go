// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
)

const (
	target     = 195.0
	idleMemory = 100 << 20
)

var _ = Describe("The demo", Ordered, func() {
	var results []demo.Result

	It("trains the jobs of both versions to their target", func(ctx SpecContext) {
		var err error
		results, err = run.Run(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(results).To(HaveLen(3))
		for _, result := range results {
			Expect(result.Phase).To(Equal(v2alpha1.JobSucceeded), result.Name)
			reward, err := strconv.ParseFloat(result.Reward, 64)
			Expect(err).NotTo(HaveOccurred(), result.Name)
			Expect(reward).To(BeNumerically(">=", target), result.Name)
		}
	})

	It("shows every job in both versions, whichever it was written in", func(ctx SpecContext) {
		for _, version := range []string{v1alpha1.Version, v2alpha1.Version} {
			listed := kubectlOutput(ctx, "get", "dijobs."+version+"."+v2alpha1.GroupName, "-A", "-o", "name")
			for _, result := range results {
				Expect(listed).To(ContainSubstring("/"+result.Name), version)
			}
		}
	})

	It("documents its own fields in both versions", func(ctx SpecContext) {
		for version, path := range map[string]string{v1alpha1.Version: "coordinator", v2alpha1.Version: "tasks"} {
			explained := kubectlOutput(ctx, "explain", "dijob.spec."+path, "--api-version="+v2alpha1.GroupName+"/"+version)
			Expect(explained).To(ContainSubstring("DESCRIPTION"), version)
			Expect(explained).NotTo(ContainSubstring("<empty>"), version)
		}
	})

	It("has cleaned up what ran when the jobs finished", func(ctx SpecContext) {
		for _, result := range results {
			for _, label := range []string{names.LabelDIJobName, names.LabelJob} {
				selector := metav1.ListOptions{LabelSelector: label + "=" + result.Name}
				Eventually(func(g Gomega) {
					services, err := core.CoreV1().Services(result.Namespace).List(ctx, selector)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(services.Items).To(BeEmpty(), result.Name)
					pods, err := core.CoreV1().Pods(result.Namespace).List(ctx, selector)
					g.Expect(err).NotTo(HaveOccurred())
					for i := range pods.Items {
						g.Expect(pods.Items[i].Status.Phase).To(Equal(corev1.PodSucceeded), pods.Items[i].Name)
					}
				}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
			}
		}
	})

	It("idles below 100 MiB in operator and server", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			memory := workingSets(ctx, g)
			AddReportEntry("working sets in bytes", memory)
			g.Expect(memory).To(HaveLen(2 * len(demo.Deployments())))
			for pod, bytes := range memory {
				g.Expect(bytes).To(BeNumerically("<", idleMemory), pod)
			}
		}).WithTimeout(patience).WithPolling(5 * time.Second).Should(Succeed())
	})
})

func kubectlOutput(ctx SpecContext, args ...string) string {
	GinkgoHelper()
	output, err := callKubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// callKubectl returns the output of kubectl, with its error output appended if it fails. On success the
// error output consists of warnings.
func callKubectl(ctx SpecContext, args ...string) (string, error) {
	command := exec.CommandContext(ctx, kubectl, args...)
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		return string(output) + complaints.String(), err
	}
	return string(output), nil
}

// workingSets returns the working set of each of the programs' pods in bytes, as measured by the
// kubelets.
func workingSets(ctx SpecContext, g Gomega) map[string]uint64 {
	GinkgoHelper()
	nodes, err := core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	memory := map[string]uint64{}
	for i := range nodes.Items {
		raw, err := core.CoreV1().RESTClient().Get().
			AbsPath("/api/v1/nodes", nodes.Items[i].Name, "proxy/stats/summary").DoRaw(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		var summary struct {
			Pods []struct {
				PodRef struct{ Name, Namespace string }
				Memory struct{ WorkingSetBytes *uint64 }
			}
		}
		g.Expect(json.Unmarshal(raw, &summary)).To(Succeed())
		for _, pod := range summary.Pods {
			if pod.PodRef.Namespace == names.SystemNamespace && strings.HasPrefix(pod.PodRef.Name, "di-orchestrator-") && pod.Memory.WorkingSetBytes != nil {
				memory[pod.PodRef.Name] = *pod.Memory.WorkingSetBytes
			}
		}
	}
	return memory
}
