// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	mpiNamespace = "mpi"
	// mpiPatience is the timeout of a job of MPI on a busy machine.
	mpiPatience = 5 * time.Minute
	// summed is what 8 ranks print: their number, and the sum of the numbers from 1 to it.
	summed = "ranks=8 sum=36 "
)

// useMPI builds the image of Open MPI and MPICH from Debian's packages, and loads it as the local cluster requires.
func useMPI(ctx SpecContext) {
	build := exec.CommandContext(ctx, "make", "image-mpi-load")
	build.Dir = testkit.Root()
	output, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	makeNamespace(ctx, mpiNamespace)
}

func explainMPI(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		explain(ctx, mpiNamespace, []string{"get", "dijobs,pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"}, []string{"get", "events"},
			[]string{"get", "configmaps", "-o=yaml"}, []string{"logs", "--selector=diengine/job", "--prefix", "--tail=40", "--all-containers"})
	}
}

var _ = Describe("A job of MPI", Ordered, Serial, Label("mpi", twoNodes), func() {
	BeforeAll(useMPI)
	AfterEach(explainMPI)

	It("sums numbers of 8 ranks on both nodes by Open MPI", func(ctx SpecContext) {
		submitMPI(ctx, "allreduce", func(job *unstructured.Unstructured) {
			constraints, _, err := unstructured.NestedSlice(podSpecs(job)["worker"], "topologySpreadConstraints")
			Expect(err).NotTo(HaveOccurred())
			constraint, _ := constraints[0].(map[string]any)
			constraint["whenUnsatisfiable"] = "DoNotSchedule"
			podSpecs(job)["worker"]["topologySpreadConstraints"] = constraints
		})
		nodes := map[string]bool{}
		for index := range int32(2) {
			nodes[scheduledPod(ctx, names.WorkerPod("allreduce", "worker", index)).Spec.NodeName] = true
		}
		Expect(nodes).To(HaveLen(2), "the nodes of the workers")
		expectSummed(ctx, "allreduce")
		log := logOf(ctx, mpiNamespace, names.WorkerPod("allreduce", "launcher", 0))
		Expect(log).To(ContainSubstring("hosts=allreduce-worker-0,allreduce-worker-1"))
		secrets, err := core.CoreV1().Secrets(mpiNamespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelJob + "=allreduce"})
		Expect(err).NotTo(HaveOccurred())
		Expect(secrets.Items).To(BeEmpty(), "the keys of a finished job")
	})
})

var _ = Describe("Jobs of MPI", Ordered, ContinueOnFailure, Serial, Label("mpi-long"), func() {
	BeforeAll(useMPI)
	AfterEach(explainMPI)

	It("sum numbers of 8 ranks by MPICH", func(ctx SpecContext) {
		submitMPI(ctx, "mpich", func(job *unstructured.Unstructured) {
			setMPI(job, "MPICH", "implementation")
			mainContainer(podSpecs(job)["launcher"])["command"] = []any{"mpirun.mpich", "-n", "8", "python3", "/examples/allreduce_mpich.py"}
		})
		expectSummed(ctx, "mpich")
	})

	It("run as many ranks as their workers have slots", func(ctx SpecContext) {
		submitMPI(ctx, "slots", func(job *unstructured.Unstructured) {
			setMPI(job, int64(2), "slotsPerWorker")
			// Without a number, mpirun fills all slots.
			mainContainer(podSpecs(job)["launcher"])["command"] = []any{"mpirun.openmpi", "python3", "/examples/allreduce.py"}
		})
		expectLaunched(ctx, "slots", "ranks=4 sum=10 ")
	})

	It("succeed 20 of 20 times, also when a worker is deleted while they start or run", func(ctx SpecContext) {
		const rounds = 20
		for round := range rounds {
			name := fmt.Sprintf("round-%d", round)
			submitMPI(ctx, name, func(job *unstructured.Unstructured) {
				addRounds(job, 100)
				Expect(unstructured.SetNestedField(job.Object, int64(5), "spec", "backoffLimit")).To(Succeed())
			})
			disturbMPI(ctx, name, round)
			expectSummed(ctx, name)
			AddReportEntry(name, fmt.Sprintf("phase %d, restarts %d", round%5, getJob(ctx, Default, mpiNamespace, name).Status.Restarts))
			deleteJobOf(ctx, mpiNamespace, name)
		}
	})

	It("wait in a queue of Kueue as a whole, and sum once they are admitted", func(ctx SpecContext) {
		useKueue(ctx)
		applyContent(ctx, mpiNamespace, `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: mpi}
spec:
  namespaceSelector: {}
  stopPolicy: Hold
  resourceGroups: [{coveredResources: [cpu, memory], flavors: [{name: any, resources: [{name: cpu, nominalQuota: "1"}, {name: memory, nominalQuota: 2Gi}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: mpi}
spec: {clusterQueue: mpi}
`)
		DeferCleanup(func(ctx SpecContext) {
			deleteJobOf(ctx, mpiNamespace, "queued")
			kubectlUntilDone(ctx, "delete", "localqueue/mpi", "--namespace="+mpiNamespace, "--ignore-not-found", waiting())
			kubectlUntilDone(ctx, "delete", "clusterqueue/mpi", "--ignore-not-found", waiting())
		})
		submitMPI(ctx, "queued", func(job *unstructured.Unstructured) {
			job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "mpi"})
		})
		Eventually(func(g Gomega) {
			job := getJob(ctx, g, mpiNamespace, "queued")
			g.Expect(admission(job).Status).To(Equal(corev1.ConditionFalse), admission(job).Message)
			pods, err := core.CoreV1().Pods(mpiNamespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelJob + "=queued"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods.Items).To(HaveLen(3))
			g.Expect(pods.Items).To(HaveEach(HaveField("Spec.NodeName", BeEmpty())))
		}).WithContext(ctx).WithTimeout(mpiPatience).WithPolling(time.Second).Should(Succeed())
		kubectlUntilDone(ctx, "patch", "clusterqueue/mpi", "--type=merge", `--patch={"spec":{"stopPolicy":"None"}}`)
		expectSummed(ctx, "queued")
	})

	It("get new keys when they are resumed, and sum", func(ctx SpecContext) {
		const name = "suspended"
		submitMPI(ctx, name, func(job *unstructured.Unstructured) { addRounds(job, 2000) })
		waitForLauncher(ctx, name, func(*corev1.Pod) bool { return false })
		keys := func(g Gomega) (found []string) {
			secrets, err := core.CoreV1().Secrets(mpiNamespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelJob + "=" + name})
			g.Expect(err).NotTo(HaveOccurred())
			for i := range secrets.Items {
				found = append(found, string(secrets.Items[i].UID))
			}
			return found
		}
		former := keys(Default)
		Expect(former).To(HaveLen(1))
		kubectlUntilDone(ctx, "patch", dijobs+"/"+name, "--namespace="+mpiNamespace, "--type=merge", `--patch={"spec":{"suspend":true}}`)
		Eventually(keys).WithContext(ctx).WithTimeout(mpiPatience).Should(BeEmpty())
		kubectlUntilDone(ctx, "patch", dijobs+"/"+name, "--namespace="+mpiNamespace, "--type=merge", `--patch={"spec":{"suspend":false}}`)
		Eventually(keys).WithContext(ctx).WithTimeout(mpiPatience).Should(And(HaveLen(1), Not(Equal(former))))
		expectSummed(ctx, name)
	})

	It("discover workers that are added and removed while the launcher runs", func(ctx SpecContext) {
		const name = "elastic"
		submitMPI(ctx, name, func(job *unstructured.Unstructured) {
			elastic := map[string]any{"task": "worker", "onResize": "Continue", "minReplicas": int64(1), "maxReplicas": int64(4)}
			Expect(unstructured.SetNestedField(job.Object, elastic, "spec", "elastic")).To(Succeed())
			mainContainer(podSpecs(job)["launcher"])["command"] = []any{"/bin/sh", "-c", `while [ ! -e /tmp/end ]; do
				/etc/mpi/discover_hosts.sh | cut -d. -f1 | tr '\n' ' '; echo; sleep 1; done`}
		})
		launcher := names.WorkerPod(name, "launcher", 0)
		expectDiscovered(ctx, launcher, "elastic-worker-0 elastic-worker-1 ")
		started := getJob(ctx, Default, mpiNamespace, name).Status.Reschedules
		for _, resize := range []struct {
			replicas int
			want     string
		}{
			{4, "elastic-worker-0 elastic-worker-1 elastic-worker-2 elastic-worker-3 "},
			{1, "elastic-worker-0 "},
			{3, "elastic-worker-0 elastic-worker-1 elastic-worker-2 "},
		} {
			kubectlUntilDone(ctx, "scale", "--namespace="+mpiNamespace, "dijob/"+name, fmt.Sprint("--replicas=", resize.replicas))
			expectDiscovered(ctx, launcher, resize.want)
		}
		Expect(getJob(ctx, Default, mpiNamespace, name).Status.Reschedules).To(Equal(started), "restarts for a resize")
		kubectlUntilDone(ctx, "exec", "--namespace="+mpiNamespace, launcher, "--", "/bin/sh", "-c", ": >/tmp/end")
		expectJobSucceeded(ctx, mpiNamespace, name)
	})
})

// submitMPI creates the example under another name.
func submitMPI(ctx SpecContext, name string, edit func(*unstructured.Unstructured)) {
	GinkgoHelper()
	job := readManifest("../mpi/allreduce.yaml")
	job.SetName(name)
	job.SetNamespace(mpiNamespace)
	if edit != nil {
		edit(job)
	}
	submit(ctx, job)
}

func setMPI(job *unstructured.Unstructured, value any, field string) {
	GinkgoHelper()
	Expect(unstructured.SetNestedField(job.Object, value, "spec", "mpi", field)).To(Succeed())
}

// addRounds makes the job sum so often.
func addRounds(job *unstructured.Unstructured, rounds int) {
	launcher := mainContainer(podSpecs(job)["launcher"])
	command, _ := launcher["command"].([]any)
	launcher["command"] = append(command, strconv.Itoa(rounds))
}

// scheduledPod returns a pod once it has a node.
func scheduledPod(ctx SpecContext, name string) *corev1.Pod {
	GinkgoHelper()
	var pod *corev1.Pod
	Eventually(func(g Gomega) {
		var err error
		pod, err = core.CoreV1().Pods(mpiNamespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Spec.NodeName).NotTo(BeEmpty())
	}).WithTimeout(mpiPatience).WithPolling(100 * time.Millisecond).Should(Succeed())
	return pod
}

// expectSummed waits until a job has succeeded with the sum of 8 ranks.
func expectSummed(ctx SpecContext, name string) {
	GinkgoHelper()
	expectLaunched(ctx, name, summed)
}

func expectLaunched(ctx SpecContext, name, want string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		job := getJob(ctx, g, mpiNamespace, name)
		if job.Status.Phase == v2alpha1.JobFailed {
			StopTrying("job "+name+" failed").Attach("status", job.Status).Now()
		}
		g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobSucceeded))
	}).WithTimeout(mpiPatience).WithPolling(200 * time.Millisecond).Should(Succeed())
	Expect(logOf(ctx, mpiNamespace, names.WorkerPod(name, "launcher", 0))).To(ContainSubstring(want))
}

// disturbMPI deletes a worker in one of five phases: before the launcher waits, while it waits, when it has started,
// while it sums, or never.
func disturbMPI(ctx SpecContext, name string, round int) {
	GinkgoHelper()
	worker := names.WorkerPod(name, "worker", int32(round/5%2))
	switch round % 5 {
	case 0:
		scheduledPod(ctx, worker)
	case 1:
		waitForLauncher(ctx, name, func(pod *corev1.Pod) bool {
			return len(pod.Status.InitContainerStatuses) > 0 && pod.Status.InitContainerStatuses[0].State.Running != nil
		})
	case 2:
		waitForLauncher(ctx, name, func(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodPending })
	case 3:
		waitForLauncher(ctx, name, func(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodPending })
		Eventually(func(g Gomega) {
			output, err := callKubectl(ctx, "exec", "--namespace="+mpiNamespace, worker, "--", "/bin/sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
			g.Expect(err == nil && strings.Contains(output, "allreduce.py") || isOver(ctx, g, name)).To(BeTrue())
		}).WithTimeout(mpiPatience).WithPolling(100 * time.Millisecond).Should(Succeed())
	default:
		return
	}
	err := core.CoreV1().Pods(mpiNamespace).Delete(ctx, worker, metav1.DeleteOptions{})
	if !isOver(ctx, Default, name) {
		Expect(err).NotTo(HaveOccurred())
	}
}

func waitForLauncher(ctx SpecContext, name string, isSo func(*corev1.Pod) bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pod, err := core.CoreV1().Pods(mpiNamespace).Get(ctx, names.WorkerPod(name, "launcher", 0), metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(isSo(pod) || pod.Status.Phase != corev1.PodPending).To(BeTrue())
	}).WithTimeout(mpiPatience).WithPolling(50 * time.Millisecond).Should(Succeed())
}

func isOver(ctx SpecContext, g Gomega, name string) bool {
	return getJob(ctx, g, mpiNamespace, name).Status.Phase == v2alpha1.JobSucceeded
}

// expectDiscovered waits until the launcher prints these hosts last.
func expectDiscovered(ctx SpecContext, launcher, want string) {
	GinkgoHelper()
	lastLine := regexp.MustCompile(`([^\n]*)\n$`)
	Eventually(func(g Gomega) {
		log, err := core.CoreV1().Pods(mpiNamespace).GetLogs(launcher, &corev1.PodLogOptions{}).DoRaw(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		found := lastLine.FindStringSubmatch(string(log))
		g.Expect(found).To(HaveLen(2))
		g.Expect(found[1]).To(Equal(want))
	}).WithTimeout(mpiPatience).WithPolling(time.Second).Should(Succeed())
}

func deleteJobOf(ctx SpecContext, namespace, name string) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "delete", "dijob", name, "--namespace="+namespace, "--ignore-not-found")
}
