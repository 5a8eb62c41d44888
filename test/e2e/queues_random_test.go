// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/queueing"
)

var (
	queuesSeed = flag.Uint64("queues.seed", 1, "seed of the random jobs in a queue of Kueue")
	queuesJobs = flag.Int("queues.jobs", 200, "number of random jobs in a queue of Kueue, and of those whose first pods are timed")
)

var _ = Describe("Random jobs in a queue of Kueue", Ordered, ContinueOnFailure, Label(kueue, kueueLong), func() {
	BeforeAll(useKueue)
	AfterEach(explainQueues)

	It("all get what they ask for and leave nothing, while operator and Kueue are killed", func(ctx SpecContext) {
		const queue = "random"
		makeQueue(ctx, queue, 8, "  preemption: {withinClusterQueue: LowerPriority}")
		crowd := &crowd{queue: queue, random: rand.New(rand.NewPCG(*queuesSeed, 0)), done: map[string]int{}}
		began := time.Now()
		for crowd.submitted < *queuesJobs {
			crowd.act(ctx)
		}
		crowd.end(ctx)
		expectUsed(ctx, queue, 0)
		expectNoWorkloads(ctx)
		AddReportEntry("random jobs", fmt.Sprintf("seed %d, %s: %v", *queuesSeed, time.Since(began).Round(time.Second), crowd.done), ReportEntryVisibilityAlways)
	})

	It("get their first pod at most a second later after their admission than without a queue", func(ctx SpecContext) {
		makeQueue(ctx, "timed", 1000)
		alone, queued := timeStarts(ctx, "alone", ""), timeStarts(ctx, "queued", "timed")
		for what, times := range map[string][]time.Duration{
			"from the job to its first pod on a node, without a queue":    alone.pod,
			"from the job to its first pod on a node, in a queue":         queued.pod,
			"from the admission to the first pod on a node":               queued.rest,
			"from the job to its admission, which Kueue batches a second": queued.admission,
		} {
			AddReportEntry(what, fmt.Sprintf("p50 %s, p99 %s, %d jobs", at(times, 50), at(times, 99), len(times)), ReportEntryVisibilityAlways)
		}
		Expect(at(queued.rest, 99) - at(alone.pod, 99)).To(BeNumerically("<=", time.Second))
	})
})

// crowd are random jobs of one queue.
type crowd struct {
	queue     string
	random    *rand.Rand
	submitted int
	// done counts what was done to them.
	done map[string]int
}

// act does one thing to the jobs, and lets some time pass.
func (c *crowd) act(ctx SpecContext) {
	GinkgoHelper()
	jobs := c.jobs(ctx)
	if len(jobs) > 12 {
		c.remove(ctx, jobs[c.random.IntN(len(jobs))].Name)
		return
	}
	switch choice := c.random.IntN(40); {
	case choice == 0:
		c.done["operators killed"]++
		kill(ctx, labels.Set{"app.kubernetes.io/component": "operator"}, 2)
	case choice == 1:
		c.done["Kueues killed"]++
		killKueue(ctx)
	case choice < 16 || len(jobs) == 0:
		c.submit(ctx)
	default:
		c.change(ctx, &jobs[c.random.IntN(len(jobs))])
	}
	// Users pause between their calls. This is not a wait for an effect.
	<-time.After(time.Duration(c.random.IntN(400)) * time.Millisecond)
}

func (c *crowd) jobs(ctx SpecContext) []v2alpha1.DIJob {
	GinkgoHelper()
	var list v2alpha1.DIJobList
	Expect(api.List(ctx, &list, inQueues())).To(Succeed())
	return slices.DeleteFunc(list.Items, func(job v2alpha1.DIJob) bool { return job.DeletionTimestamp != nil })
}

// submit submits a job of either lifecycle.
func (c *crowd) submit(ctx SpecContext) {
	GinkgoHelper()
	name := fmt.Sprintf("job-%d", c.submitted)
	c.submitted++
	if c.random.IntN(3) == 0 {
		c.done["coordinator-led jobs"]++
		applyContent(ctx, queueNamespace, ledJob([]string{"v1alpha1", "v2alpha1"}[c.random.IntN(2)], name, c.queue))
		return
	}
	c.done["worker-led jobs"]++
	job := queuedJob{name: name, queue: c.queue, collectors: 1 + c.random.IntN(4)}
	if c.random.IntN(3) == 0 {
		job.labels = []string{urgent, "kueue.x-k8s.io/priority-class: minor"}[c.random.IntN(2)]
	}
	if c.random.IntN(3) == 0 {
		job.command = `exit, "0"`
	}
	job.submit(ctx)
}

// change resizes, suspends, resumes or deletes a job, or deletes one of its pods.
func (c *crowd) change(ctx SpecContext, job *v2alpha1.DIJob) {
	GinkgoHelper()
	switch choice := c.random.IntN(10); {
	case choice < 4:
		c.done["resizes"]++
		c.resize(ctx, job)
	case choice < 6:
		c.done["suspensions and resumptions"]++
		suspend(ctx, job.Name, !state.IsSuspended(job))
	case choice < 8:
		c.done["deletions"]++
		c.remove(ctx, job.Name)
	default:
		if pods := queuedPods(ctx, Default, job.Name); len(pods) > 0 {
			c.done["lost pods"]++
			lost := core.CoreV1().Pods(queueNamespace).Delete(ctx, pods[c.random.IntN(len(pods))].Name, metav1.DeleteOptions{})
			Expect(client.IgnoreNotFound(lost)).To(Succeed())
		}
	}
}

// resize changes the number of collectors of a job.
func (c *crowd) resize(ctx SpecContext, job *v2alpha1.DIJob) {
	GinkgoHelper()
	count := 1 + c.random.IntN(5)
	if !state.IsCoordinatorLed(job) {
		scale(ctx, job.Name, count)
		return
	}
	if err := request(ctx, job.Name, []string{"add", "add", "delete"}[c.random.IntN(3)], count); err != nil {
		c.done["requests that failed, as their coordinator did not run"]++
	}
}

func (c *crowd) remove(ctx SpecContext, name string) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "delete", dijobs+"/"+name, "--namespace="+queueNamespace, "--wait=false", "--ignore-not-found")
}

// end resumes all jobs, and deletes those that have what they ask for until none is left. Coordinators may hold
// all quota while their members wait. Then one of them is deleted.
func (c *crowd) end(ctx SpecContext) {
	GinkgoHelper()
	for _, job := range c.jobs(ctx) {
		if state.IsSuspended(&job) && !state.IsFinished(&job.Status) {
			suspend(ctx, job.Name, false)
		}
	}
	progress := time.Now()
	for {
		jobs := c.jobs(ctx)
		if len(jobs) == 0 {
			return
		}
		ready := slices.DeleteFunc(slices.Clone(jobs), func(job v2alpha1.DIJob) bool { return !hasAll(&job) })
		if len(ready) == 0 && time.Since(progress) > 20*time.Second {
			ready = slices.DeleteFunc(slices.Clone(jobs), func(job v2alpha1.DIJob) bool {
				return !state.IsCoordinatorLed(&job) || job.Status.Phase != v2alpha1.JobRunning
			})
			ready = ready[:min(len(ready), 1)]
			c.done["coordinators that gave way"] += len(ready)
		}
		for i := range ready {
			c.remove(ctx, ready[i].Name)
			progress = time.Now()
		}
		stuck := make([]string, len(jobs))
		for i := range jobs {
			stuck[i] = fmt.Sprintf("%s %s %s", jobs[i].Name, jobs[i].Status.Phase, admission(&jobs[i]).Message)
		}
		Expect(time.Since(progress)).To(BeNumerically("<", patience), "stuck: %s", strings.Join(stuck, "; "))
		<-time.After(500 * time.Millisecond)
	}
}

// hasAll reports whether a job has ended, or runs with all its pods.
func hasAll(job *v2alpha1.DIJob) bool {
	status := &job.Status
	return state.IsFinished(status) || status.Phase == v2alpha1.JobRunning && status.Replicas == status.ReadyReplicas &&
		admission(job).Status == corev1.ConditionTrue && !strings.Contains(admission(job).Message, "wait")
}

// starts are times of jobs, each in order: until the Workload was admitted, from then until the first pod was
// bound to a node, and both together.
type starts struct{ admission, rest, pod []time.Duration }

// timeStarts submits jobs one after the other. The clock of the test measures all times, so they include its calls.
func timeStarts(ctx SpecContext, prefix, queue string) starts {
	GinkgoHelper()
	var found starts
	for i := range *queuesJobs / 2 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		job := queuedJob{name: name, queue: queue, collectors: 1}.object()
		var admitted time.Duration
		began := time.Now()
		submit(ctx, job)
		Eventually(func(g Gomega) {
			if admitted == 0 && isAdmitted(ctx, g) {
				admitted = time.Since(began)
			}
			pods := queuedPods(ctx, g, name)
			g.Expect(slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" })).To(BeTrue())
		}).WithContext(ctx).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Succeed())
		bound := time.Since(began)
		found.pod, found.admission, found.rest = append(found.pod, bound), append(found.admission, admitted), append(found.rest, bound-admitted)
		deleteJob(ctx, name)
		expectNoWorkloads(ctx)
	}
	for _, times := range [][]time.Duration{found.pod, found.admission, found.rest} {
		slices.Sort(times)
	}
	return found
}

// isAdmitted reports whether the only Workload is admitted.
func isAdmitted(ctx SpecContext, g Gomega) bool {
	GinkgoHelper()
	for _, workload := range readObjects(ctx, g, queueing.WorkloadKind) {
		conditions, _, _ := unstructured.NestedSlice(workload.Object, "status", "conditions")
		for _, condition := range conditions {
			if of, isMap := condition.(map[string]any); isMap && of["type"] == "Admitted" && of["status"] == "True" {
				return true
			}
		}
	}
	return false
}

// at returns a percentile of sorted times.
func at(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Round(time.Millisecond)
}
