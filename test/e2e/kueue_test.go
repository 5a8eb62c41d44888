// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	// kueue labels specs with the real Kueue, which `cluster kueue` installs. kueueLong labels those that
	// CI leaves out.
	kueue     = "kueue"
	kueueLong = "kueue-long"
	// queueNamespace is the namespace of their jobs.
	queueNamespace = "queues"
	// workloads are those of Kueue. Kubernetes has another resource of that name.
	workloads = "workloads." + queueing.GroupName
)

// kueueObjects are those that the queues of all specs share. Each pod of the jobs requests a hundredth of
// a CPU.
const kueueObjects = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: minor}
value: -1000
`

// useKueue prepares the specs of a container, which is skipped without Kueue.
func useKueue(ctx SpecContext) {
	GinkgoHelper()
	if served, _ := callKubectl(ctx, "api-resources", "--api-group="+queueing.GroupName, "--output=name"); !strings.Contains(served, workloads) {
		Skip("this cluster has no Kueue: run out/bin/cluster kueue, or install it")
	}
	makeNamespace(ctx, queueNamespace)
	applyContent(ctx, queueNamespace, kueueObjects)
	DeferCleanup(func(ctx SpecContext) {
		kubectlUntilDone(ctx, "delete", "resourceflavor/any", "workloadpriorityclass/urgent", "workloadpriorityclass/minor", "--ignore-not-found")
	})
}

// explainQueues prints the state of the queues and their jobs after a failure.
func explainQueues(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		explain(ctx, queueNamespace, []string{"get", dijobs, "-o=yaml"}, []string{"get", "pods", "-o=wide"},
			[]string{"get", workloads, "-o=yaml"}, []string{"get", "clusterqueues", "-o=yaml"}, []string{"get", "events", "--sort-by=.lastTimestamp"},
			[]string{"logs", "--namespace=kueue-system", "deployment/kueue-controller-manager", "--tail=200"})
	}
}

// makeQueue creates a queue with quota for some pods. The spec of its ClusterQueue may have more.
func makeQueue(ctx SpecContext, name string, pods int, more ...string) {
	GinkgoHelper()
	makeFlavoredQueue(ctx, name, "any", pods, more...)
}

func makeFlavoredQueue(ctx SpecContext, name, flavor string, pods int, more ...string) {
	GinkgoHelper()
	applyContent(ctx, queueNamespace, fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %[1]s}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: %[4]s, resources: [{name: cpu, nominalQuota: %[2]dm}]}]}]
%[3]s
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[1]s}
spec: {clusterQueue: %[1]s}
`, name, 10*pods, strings.Join(more, "\n"), flavor))
	DeferCleanup(func(ctx SpecContext) {
		kubectlUntilDone(ctx, "delete", dijobs, "--namespace="+queueNamespace, "--all", waiting())
		kubectlUntilDone(ctx, "delete", "localqueue/"+name, "--namespace="+queueNamespace, "--ignore-not-found", waiting())
		kubectlUntilDone(ctx, "delete", "clusterqueue/"+name, "--ignore-not-found", waiting())
	})
}

// queuedJob is a job of a learner and collectors that wait.
type queuedJob struct {
	name, queue string
	collectors  int
	// labels are more labels of the job. command is what its pods do, by default wait.
	labels, command string
	// annotations and podLabels are those of its pods.
	annotations, podLabels string
}

func (j queuedJob) submit(ctx SpecContext) {
	GinkgoHelper()
	applyContent(ctx, queueNamespace, j.manifest())
}

// object returns the job as an object of the queues' namespace.
func (j queuedJob) object() *unstructured.Unstructured {
	GinkgoHelper()
	objects, err := testkit.Decode([]byte(j.manifest()))
	Expect(err).NotTo(HaveOccurred())
	objects[0].SetNamespace(queueNamespace)
	return objects[0]
}

// manifest returns the job. Without a queue it names none.
func (j queuedJob) manifest() string {
	command := j.command
	if command == "" {
		command = "wait"
	}
	labels := j.labels
	if j.queue != "" {
		labels = "kueue.x-k8s.io/queue-name: " + j.queue + ", " + labels
	}
	return fmt.Sprintf(`
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: %[1]s, labels: {%[2]s}}
spec:
  elastic: {task: collector, minReplicas: 1, maxReplicas: 16}
  tasks:
  - {type: learner, name: learner, replicas: 1, template: &pod {metadata: {annotations: {%[5]s}, labels: {%[6]s}}, spec: {terminationGracePeriodSeconds: 1, containers: [
      {name: di-container, image: cartpole:dev, imagePullPolicy: IfNotPresent, command: [/cartpole], args: [%[4]s], resources: {requests: {cpu: 10m}}}]}}}
  - {type: collector, name: collector, replicas: %[3]d, template: *pod}
`, j.name, labels, j.collectors, command, j.annotations, j.podLabels)
}

// request makes the coordinator of a job request collectors from di-server, or give them up: verb is add or delete. The
// same request again within half a minute is a repeated one.
func request(ctx SpecContext, name, verb string, collectors int) error {
	output, err := callKubectl(ctx, "exec", "--namespace="+queueNamespace, names.CoordinatorPod(name), "--", "/cartpole", "dist", "--"+verb, "--collectors="+strconv.Itoa(collectors))
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// requestOnce makes a request, once the coordinator runs.
func requestOnce(ctx SpecContext, name, verb string, collectors int) {
	GinkgoHelper()
	readyPod(ctx, queueNamespace, names.CoordinatorPod(name))
	Eventually(func() error { return request(ctx, name, verb, collectors) }).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// scale changes the number of collectors of a job.
func scale(ctx SpecContext, name string, collectors int) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "scale", dijobs+"/"+name, "--namespace="+queueNamespace, "--replicas="+strconv.Itoa(collectors))
}

func deleteJob(ctx SpecContext, name string) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "delete", dijobs+"/"+name, "--namespace="+queueNamespace, waiting())
}

func admission(job *v2alpha1.DIJob) v2alpha1.DIJobCondition {
	for i := range job.Status.Conditions {
		if job.Status.Conditions[i].Type == v2alpha1.ConditionAdmitted {
			return job.Status.Conditions[i]
		}
	}
	return v2alpha1.DIJobCondition{}
}

// expectQueued waits until a check of a job of the queues holds, and returns the job.
func expectQueued(ctx SpecContext, name string, check func(g Gomega, job *v2alpha1.DIJob)) *v2alpha1.DIJob {
	GinkgoHelper()
	var job *v2alpha1.DIJob
	Eventually(func(g Gomega) {
		job = getJob(ctx, g, queueNamespace, name)
		check(g, job)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
	return job
}

// expectAdmitted waits until a job runs with all its pods.
func expectAdmitted(ctx SpecContext, name string, pods int) *v2alpha1.DIJob {
	GinkgoHelper()
	return expectQueued(ctx, name, func(g Gomega, job *v2alpha1.DIJob) {
		g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
		g.Expect(int(job.Status.ReadyReplicas)).To(Equal(pods))
		g.Expect(admission(job).Status).To(Equal(corev1.ConditionTrue))
		g.Expect(admission(job).Message).NotTo(ContainSubstring("wait"))
	})
}

// expectInQueue waits until a job waits for Kueue with all its pods, and says so in Kueue's words.
func expectInQueue(ctx SpecContext, name string, pods int, words string) {
	GinkgoHelper()
	expectQueued(ctx, name, func(g Gomega, job *v2alpha1.DIJob) {
		g.Expect(admission(job).Status).To(Equal(corev1.ConditionFalse))
		g.Expect(admission(job).Reason).To(Equal(v2alpha1.ReasonWaitingInQueue))
		g.Expect(admission(job).Message).To(ContainSubstring(words))
		found := queuedPods(ctx, g, name)
		g.Expect(found).To(HaveLen(pods))
		for i := range found {
			g.Expect(queueing.IsWaiting(&found[i])).To(BeTrue(), found[i].Name)
		}
	})
}

// queuedPods returns the pods of a job that are not being deleted.
func queuedPods(ctx SpecContext, g Gomega, name string) []corev1.Pod {
	GinkgoHelper()
	var found []corev1.Pod
	for _, selected := range []map[string]string{names.WorkerJobLabels(name), names.JobLabels(name)} {
		list, err := core.CoreV1().Pods(queueNamespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selected).String()})
		g.Expect(err).NotTo(HaveOccurred())
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				found = append(found, list.Items[i])
			}
		}
	}
	return found
}

func uidsOf(pods []corev1.Pod) map[string]types.UID {
	found := map[string]types.UID{}
	for i := range pods {
		found[pods[i].Name] = pods[i].UID
	}
	return found
}

// readObjects lists objects of Kueue.
func readObjects(ctx SpecContext, g Gomega, kind string) []unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: queueing.GroupName, Version: "v1beta2", Kind: kind + "List"})
	g.Expect(api.List(ctx, list, inQueues())).To(Succeed())
	return list.Items
}

// expectNoWorkloads waits until Kueue has no Workload and holds no pod in the namespace.
func expectNoWorkloads(ctx SpecContext) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(readObjects(ctx, g, queueing.WorkloadKind)).To(BeEmpty())
		pods, err := core.CoreV1().Pods(queueNamespace).List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods.Items).To(BeEmpty())
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

func inQueues() client.ListOption { return client.InNamespace(queueNamespace) }

// usedPods returns for how many pods the quota of a ClusterQueue is reserved.
func usedPods(ctx SpecContext, g Gomega, name string) int {
	GinkgoHelper()
	used, err := callKubectl(ctx, "get", "clusterqueue/"+name, "--output=jsonpath={.status.flavorsReservation[0].resources[0].total}")
	g.Expect(err).NotTo(HaveOccurred())
	count, err := strconv.Atoi(strings.TrimSuffix(used, "m"))
	g.Expect(err).NotTo(HaveOccurred(), used)
	return count / 10
}

func expectUsed(ctx SpecContext, name string, pods int) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(usedPods(ctx, g, name)).To(Equal(pods)) }).
		WithContext(ctx).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), "quota of queue %s", name)
}

// describeQueued returns what kubectl di describe prints of a job.
func describeQueued(ctx SpecContext, folder, name string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, kubectl, "di", "-n", queueNamespace, "describe", name)
	command.Env = append(os.Environ(), "PATH="+folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, _ := timed(command)
	return output
}
