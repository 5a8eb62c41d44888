// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// survivor is a job of the distributed example that loses its pods. Its training pauses after each
// round until the test lets it continue, so that a loss always precedes the end, even on a fast
// machine.
type survivor struct {
	namespace string
	name      string
	gpus      int
	// wanted are the desired numbers of its pods.
	wanted map[names.ReplicaType]int

	// round is the round up to which training may continue.
	round int
	// coordinator is the UID of the coordinator's pod, which only the test may end.
	coordinator types.UID
	// known are the replicas in answers to the coordinator. None of them may vanish from its list,
	// lost or not, unless the coordinator removes it.
	known set.Set[string]
}

// submit creates the job in the version of its manifest after changes to the specs of its pods.
func (s *survivor) submit(ctx SpecContext, changes ...func(role string, spec map[string]any)) {
	GinkgoHelper()
	s.round, s.known = 1, set.New[string]()
	job := readManifest("v1alpha1-distributed.yaml")
	job.SetName(s.name)
	job.SetNamespace(s.namespace)
	for role, spec := range podSpecs(job) {
		if role == string(names.ReplicaTypeCoordinator) {
			Expect(argsOf(spec)).To(ContainElement("--strict"))
			addArgs(spec, append(curve(), fmt.Sprintf("--pause-after=%d", s.round), fmt.Sprintf("--learner-gpus=%d", s.gpus))...)
		}
		for _, change := range changes {
			change(role, spec)
		}
	}
	submit(ctx, job)
}

func (s *survivor) selector() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: names.LabelDIJobName + "=" + s.name}
}

func (s *survivor) pods(ctx SpecContext, g Gomega) []corev1.Pod {
	GinkgoHelper()
	pods, err := core.CoreV1().Pods(s.namespace).List(ctx, s.selector())
	g.Expect(err).NotTo(HaveOccurred())
	return pods.Items
}

func roleOf(pod *corev1.Pod) names.ReplicaType {
	return names.ReplicaType(pod.Labels[names.LabelReplicaType])
}

// choose returns a pod for each of the roles, and different pods for a repeated role.
func (s *survivor) choose(ctx SpecContext, roles []names.ReplicaType) []corev1.Pod {
	GinkgoHelper()
	var chosen []corev1.Pod
	all := s.pods(ctx, Default)
	for _, role := range roles {
		i := slices.IndexFunc(all, func(pod corev1.Pod) bool { return roleOf(&pod) == role })
		Expect(i).To(BeNumerically(">=", 0), "a pod of role %s", role)
		chosen = append(chosen, all[i])
		all = slices.Delete(all, i, i+1)
	}
	return chosen
}

// expectRecovered waits until the job has all its pods again, ready, and none of the lost pods. It
// expects that only the test has ended the coordinator.
func (s *survivor) expectRecovered(ctx SpecContext, lost []corev1.Pod) {
	GinkgoHelper()
	gone := uids(lost)
	for i := range lost {
		if lost[i].UID == s.coordinator {
			s.coordinator, s.known = "", set.New[string]()
		}
	}
	Eventually(func(g Gomega) {
		pods := s.pods(ctx, g)
		found := map[names.ReplicaType]int{}
		for i := range pods {
			pod := &pods[i]
			if roleOf(pod) == names.ReplicaTypeCoordinator {
				s.checkCoordinator(pod)
			}
			g.Expect(gone.Has(pod.UID)).To(BeFalse(), "%s is still there", pod.Name)
			g.Expect(isReady(pod)).To(BeTrue(), "%s is to be ready", pod.Name)
			found[roleOf(pod)]++
		}
		g.Expect(found).To(Equal(s.wanted))
		var job v2alpha1.DIJob
		g.Expect(api.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.name}, &job)).To(Succeed())
		g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
		g.Expect(job.Status.ReadyReplicas).To(Equal(job.Status.Replicas))
		g.Expect(int(job.Status.Replicas)).To(Equal(len(pods)))
	}).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), "job %s at full strength", s.name)
}

// checkCoordinator fails immediately if the coordinator has exited by itself.
func (s *survivor) checkCoordinator(pod *corev1.Pod) {
	GinkgoHelper()
	if s.coordinator == "" && pod.DeletionTimestamp == nil {
		s.coordinator = pod.UID
	}
	if pod.Status.Phase == corev1.PodFailed || restarts(pod) > 0 || pod.UID != s.coordinator {
		StopTrying("the coordinator of job "+s.name+" ended by itself").Attach("pod", pod.Status).Now()
	}
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func restarts(pod *corev1.Pod) int32 {
	var total int32
	for i := range pod.Status.ContainerStatuses {
		total += pod.Status.ContainerStatuses[i].RestartCount
	}
	return total
}

func uids(pods []corev1.Pod) set.Set[types.UID] {
	found := set.New[types.UID]()
	for i := range pods {
		found.Insert(pods[i].UID)
	}
	return found
}

// letGoOn lets training complete some more rounds, so that the next loss occurs during training.
func (s *survivor) letGoOn(ctx SpecContext) {
	GinkgoHelper()
	s.round += 2
	Eventually(func(g Gomega) { s.pause(ctx, g, s.round) }).
		WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// release lets training continue to its end.
func (s *survivor) release(ctx SpecContext) {
	GinkgoHelper()
	Eventually(func(g Gomega) { s.pause(ctx, g, 0) }).
		WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// expectGoingOn waits until training has completed a round beyond those allowed so far, which it
// cannot have begun before.
func (s *survivor) expectGoingOn(ctx SpecContext) {
	GinkgoHelper()
	s.round++
	Eventually(func(g Gomega) {
		s.pause(ctx, g, s.round) // repeated because the coordinator may have been replaced
		g.Expect(s.driver().round(ctx, g)).To(Equal(s.round))
	}).WithTimeout(patience).WithPolling(200*time.Millisecond).Should(Succeed(), "round of job %s", s.name)
}

func (s *survivor) pause(ctx SpecContext, g Gomega, after int) {
	GinkgoHelper()
	s.driver().pause(ctx, g, after)
}

// driver returns the process that drives the training.
func (s *survivor) driver() driver {
	return driver{s.namespace, names.CoordinatorPod(s.name), names.DefaultPort(names.ReplicaTypeCoordinator)}
}

// dist calls di-server from the coordinator's pod and returns the names of the replicas in its
// answer.
func (s *survivor) dist(ctx SpecContext, args ...string) set.Set[string] {
	GinkgoHelper()
	answer := kubectlOutput(ctx, append([]string{
		"exec", "--namespace=" + s.namespace, names.CoordinatorPod(s.name), "--", "/cartpole", "dist",
	}, args...)...)
	var replicas struct{ Collectors, Learners []string }
	Expect(json.Unmarshal([]byte(answer), &replicas)).To(Succeed(), answer)
	found := set.New[string]()
	for _, url := range slices.Concat(replicas.Collectors, replicas.Learners) {
		name, _, ok := strings.Cut(url, "."+s.namespace+":")
		Expect(ok).To(BeTrue(), url)
		found.Insert(name)
	}
	return found
}

// giveUp removes replicas, which may vanish from the list.
func (s *survivor) giveUp(ctx SpecContext, args ...string) {
	GinkgoHelper()
	s.known = s.known.Difference(s.dist(ctx, append([]string{"--delete"}, args...)...))
}

// replace reports replicas as failed, so that they are replaced and may vanish from the list.
func (s *survivor) replace(ctx SpecContext, pods []corev1.Pod) {
	GinkgoHelper()
	var going []string
	for i := range pods {
		going = append(going, pods[i].Name)
	}
	s.dist(ctx, "--restart="+strings.Join(going, ","))
	s.known = s.known.Delete(going...)
}

// expectListed expects that di-server lists the job's replicas and, in addition, exactly all those
// that were lost since the coordinator started.
func (s *survivor) expectListed(ctx SpecContext) {
	GinkgoHelper()
	live := set.New[string]()
	for _, pod := range s.pods(ctx, Default) {
		if role := roleOf(&pod); role != names.ReplicaTypeCoordinator && role != names.ReplicaTypeDDPLearner {
			live.Insert(pod.Name)
		}
	}
	listed := s.dist(ctx)
	Expect(listed.SortedList()).To(Equal(live.Union(s.known).SortedList()), "list of job %s", s.name)
	s.known = listed
}

// expectSucceeded waits until the job has succeeded and expects the result of a training in one
// process.
func (s *survivor) expectSucceeded(ctx SpecContext, want string) {
	GinkgoHelper()
	expectJobSucceeded(ctx, s.namespace, s.name)
	pod, err := core.CoreV1().Pods(s.namespace).Get(ctx, names.CoordinatorPod(s.name), metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	s.checkCoordinator(pod)
	log, err := core.CoreV1().Pods(s.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(outcome(string(log))).To(Equal(want))
}

// explain prints the state of a job after a failure.
func (s *survivor) explain(ctx SpecContext) {
	explain(ctx, s.namespace, []string{
		"get", "pods", "-o=wide", "--selector=" + names.LabelDIJobName + "=" + s.name,
	}, []string{
		"get", dijobs + ",memberships", s.name, "-o=yaml",
	}, []string{
		"logs", names.CoordinatorPod(s.name), "--tail=40",
	})
}
