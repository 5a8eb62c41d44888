// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

var _ = Describe("kubectl di, as a new user calls it", func() {
	const namespace = "kubectl-di-user"

	It("submits jobs, shows them, suspends and resumes them, and sees them through", func(ctx SpecContext) {
		user := &pluginUser{plugins: buildPlugin(ctx), namespace: namespace}
		makeNamespace(ctx, namespace)
		example, err := os.ReadFile(filepath.Join(testkit.Root(), "examples", "cartpole", "v2alpha1.yaml"))
		Expect(err).NotTo(HaveOccurred())

		By("following a job to its end")
		watched := user.di(ctx, string(example), "submit", "-f", "-", "--watch", "--timeout="+trainingPatience.String())
		Expect(watched).To(HavePrefix("dijob.diengine.opendilab.org/cartpole-workers submitted\n"))
		Expect(watched).To(ContainSubstring("event SuccessfulCreate: created 5 pods: cartpole-workers-learner-0, "))
		Expect(watched).To(ContainSubstring("job " + namespace + "/cartpole-workers: Succeeded; "))

		By("looking at it when it has ended")
		Expect(user.di(ctx, "", "describe", "cartpole-workers")).To(And(ContainSubstring("Phase:      Succeeded\n"), ContainSubstring("JobSucceeded")))
		// The command ends with the job.
		Expect(user.di(ctx, "", "logs", "cartpole-workers", "-f", "--task", "learner", "--tail", "1")).To(HavePrefix("[learner-0] "))
		Expect(user.di(ctx, "", "top", "cartpole-workers", "--once")).To(And(ContainSubstring("Phase:       Succeeded\n"), ContainSubstring("Reported:    reward ")))

		By("suspending one that trains, and resuming it")
		slow := strings.NewReplacer("name: cartpole-workers", "name: slow", "--min-round=500ms", "--min-round=20s").Replace(string(example))
		Expect(user.di(ctx, slow, "submit", "-f", "-")).To(Equal("dijob.diengine.opendilab.org/slow submitted\n"))
		Expect(user.di(ctx, "", "suspend", "slow", "--wait", waiting())).To(Equal("dijob.diengine.opendilab.org/slow suspended\n"))
		Expect(user.di(ctx, "", "describe", "slow")).To(ContainSubstring("suspended: kubectl di resume continues it"))
		Expect(user.di(ctx, "", "resume", "slow", "--wait", waiting())).To(Equal("dijob.diengine.opendilab.org/slow resumed\n"))
		Expect(user.di(ctx, "", "top", "slow", "--once")).To(ContainSubstring("Ready:       5/5\n"))

		By("asking for versions")
		Expect(user.di(ctx, "", "version")).To(And(MatchRegexp(`Operator: .* deployment `), MatchRegexp(`di-server: .* deployment `)))
	})
})

// pluginUser runs the plugin in a namespace.
type pluginUser struct{ plugins, namespace string }

// di runs a command, which must exit with 0, and returns its output.
func (u *pluginUser) di(ctx context.Context, stdin string, args ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, kubectl, append([]string{"di", "-n", u.namespace}, args...)...)
	command.Env = append(os.Environ(), "PATH="+u.plugins+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.Stdin = strings.NewReader(stdin)
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	Expect(err).NotTo(HaveOccurred(), "%v: %s", args, &complaints)
	return string(output)
}

// buildPlugin builds the plugin and returns its folder.
func buildPlugin(ctx context.Context) string {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	_, err := program.BuildCommand(ctx, folder, "kubectl-di")
	Expect(err).NotTo(HaveOccurred())
	return folder
}

// readyPod waits until a pod is ready.
func readyPod(ctx context.Context, namespace, name string) *corev1.Pod {
	GinkgoHelper()
	var pod *corev1.Pod
	Eventually(func(g Gomega) {
		var err error
		pod, err = core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(isReady(pod)).To(BeTrue())
	}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	return pod
}
