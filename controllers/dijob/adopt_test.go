// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// takeOver reconciles until the operator writes nothing. It checks that the earlier objects still exist
// and are adopted, and that another reconcile changes nothing.
func (s *space) takeOver(ctx context.Context) {
	before := s.identities(ctx)
	Expect(s.settle(ctx)).To(Succeed())
	s.expectTakenOver(ctx, before)
}

func (s *space) expectTakenOver(ctx context.Context, before map[string]types.UID) {
	after := s.identities(ctx)
	for name, uid := range before {
		Expect(after).To(HaveKeyWithValue(name, uid))
	}
	s.expectStoredOwners(ctx)
	versions := s.versions(ctx)
	Expect(s.reconcile(ctx)).To(Succeed())
	Expect(s.versions(ctx)).To(Equal(versions))
}

// members returns a summary of the list: the pods of each member, and the GPUs of each DDP learner.
func (s *space) members(ctx context.Context) []string {
	list := s.membership(ctx)
	var told []string
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		told = append(told, fmt.Sprint(member.Slot, " ", member.PodName, " ", member.DDPGPUs, " ",
			membership.DDPPodNames("job", member, member.PodName)))
	}
	return told
}

func (s *space) conditions(ctx context.Context) map[string]corev1.ConditionStatus {
	told := map[string]corev1.ConditionStatus{}
	for _, condition := range s.job(ctx).Status.Conditions {
		told[condition.Type] = condition.Status
	}
	return told
}

// teamMembers is the expected list of legacy.team.
func teamMembers() []string {
	return []string{
		"collector-rz8jc job-collector-rz8jc [] []",
		"collector-2csfx job-collector-2csfx [] []",
		"learner-r8xbt job-learner-r8xbt [] []",
		"aggregator-7hc88 job-aggregator-7hc88 [8 2] [job-ddp-learner-zzzzz job-ddp-learner-bbbbb]",
	}
}

var _ = Describe("A job that v0.2.2 ran is taken over", func() {
	It("with collectors, learners and a unit", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitLegacy(ctx, "0").team(ctx)
		s.takeOver(ctx)
		Expect(s.created).To(Equal(map[string]int{"*v2alpha1.Membership job": 1}))
		Expect(s.members(ctx)).To(ConsistOf(teamMembers()))
		Expect(s.membership(ctx).Spec.CoordinatorInstance).To(Equal(string(s.identities(ctx)["job-coordinator"]) + "/0"))
		Expect(s.services(ctx)).To(ConsistOf(s.podNames(ctx)))
		status := s.job(ctx).Status
		Expect(status.Phase).To(Equal(v2alpha1.JobRunning))
		Expect(status.ReadyReplicas).To(BeEquivalentTo(7))
		Expect(s.conditions(ctx)).To(Equal(map[string]corev1.ConditionStatus{"Created": "False", "Running": "True"}))

		By("going on as any other")
		s.end(ctx, "job-coordinator", 0)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
		Expect(s.podNames(ctx)).To(ConsistOf("job-coordinator"))
	})

	DescribeTable("with a unit that was half made",
		func(ctx SpecContext, templateGPUs string, have func(*legacy, *corev1.Pod), want string) {
			s := newSpace(ctx)
			l := s.submitLegacy(ctx, templateGPUs)
			l.coordinator(ctx)
			have(l, l.pod(ctx, "aggregator", "job-aggregator-7hc88"))
			l.status(ctx, "Created", "Running")
			s.takeOver(ctx)
			Expect(s.members(ctx)).To(ConsistOf("aggregator-7hc88 job-aggregator-7hc88 " + want))
			Expect(s.podNames(ctx)).To(ConsistOf(append(s.replicaPods(ctx), "job-coordinator")))
			Expect(s.services(ctx)).To(ConsistOf(s.podNames(ctx)))
			s.expectRanks(ctx)
		},
		Entry("without its master", "0", func(l *legacy, aggregator *corev1.Pod) {
			l.ddp(context.Background(), aggregator, "job-ddp-learner-bbbbb", 4, 4, 8)
		}, "[4 4] ["+derived(0)+" job-ddp-learner-bbbbb]"),
		Entry("without any, but with a template that tells", "4", func(*legacy, *corev1.Pod) {}, "[4] ["+derived(0)+"]"),
	)

	It("with a collector that was evicted meanwhile, which is replaced and whose URL stays listed", func(ctx SpecContext) {
		s := newSpace(ctx)
		l := s.submitLegacy(ctx, "0")
		l.team(ctx)
		l.pod(ctx, "collector", "job-collector-ddddd", func(pod *corev1.Pod) {
			pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.members(ctx)).To(HaveLen(len(teamMembers()) + 1))
		Expect(s.podNames(ctx)).To(ConsistOf(append(s.replicaPods(ctx), "job-coordinator")))
		Expect(s.podNames(ctx)).NotTo(ContainElement("job-collector-ddddd"))
		Expect(s.listed(ctx)).To(ContainElement("job-collector-ddddd"))
	})

	It("and a list that is deleted then is built again as it was", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitLegacy(ctx, "0").team(ctx)
		s.takeOver(ctx)
		list := s.membership(ctx)
		Expect(shared.api.Delete(ctx, list)).To(Succeed())
		s.takeOver(ctx)
		Expect(s.membership(ctx).Spec).To(Equal(list.Spec))
	})

	It("and pods that only its cache has not seen are counted", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitLegacy(ctx, "0").team(ctx)
		live := s.operator.live
		s.operator = s.newOperator(staleList(onlyCoordinator))
		s.operator.live = live
		s.takeOver(ctx)
		Expect(s.members(ctx)).To(ConsistOf(teamMembers()))
	})
})

var _ = Describe("A replica that v0.2.2 made", func() {
	taken := func(ctx context.Context) *space {
		s := newSpace(ctx)
		s.submitLegacy(ctx, "0").team(ctx)
		s.takeOver(ctx)
		return s
	}
	unitIsNew := func(ctx context.Context, s *space) {
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(ConsistOf(append(s.replicaPods(ctx), "job-coordinator")))
		Expect(s.podNames(ctx)).To(HaveLen(7))
		Expect(s.podNames(ctx)).NotTo(ContainElements(HaveSuffix("7hc88"), HaveSuffix("zzzzz"), HaveSuffix("bbbbb")))
		Expect(s.services(ctx)).To(ConsistOf(s.podNames(ctx)))
		s.expectRanks(ctx)
	}

	It("is replaced when it is lost, and stays listed", func(ctx SpecContext) {
		s := taken(ctx)
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = s.name, "job-ddp-learner-zzzzz"
		Expect(shared.api.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		unitIsNew(ctx, s)
		Expect(s.listed(ctx)).To(ContainElement("job-aggregator-7hc88"))
	})
})

var _ = Describe("A change of the AggregatorConfig", func() {
	It("reaches new units only", func(ctx SpecContext) {
		s := newSpace(ctx)
		l := s.submitLegacy(ctx, "0")
		l.team(ctx)
		half := l.pod(ctx, "aggregator", "job-aggregator-hhhhh")
		l.ddp(ctx, half, "job-ddp-learner-hhhhh", 0, 8, 10)
		s.takeOver(ctx)
		before := s.identities(ctx)

		config := specs.Get[v1alpha1.AggregatorConfig](ctx, shared.api, s.name, "aggregator-config")
		config.Spec.Aggregator.Template = legacyTemplate("aggregator:newer", "0")
		Expect(shared.api.Update(ctx, config)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.identities(ctx)).To(Equal(before))

		s.edit(ctx, func(list *v2alpha1.Membership) {
			list.Spec.Members = append(list.Spec.Members, v2alpha1.Member{
				Slot: "new", Task: v2alpha1.TaskTypeLearner, PodName: "job-aggregator-nnnnn", DDPGPUs: []int32{2},
			})
		})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.images(ctx, "aggregator")).To(Equal(map[string]string{
			"job-aggregator-7hc88": "aggregator:old", "job-aggregator-hhhhh": "aggregator:old", "job-aggregator-nnnnn": "aggregator:newer",
		}))
	})
})

var _ = Describe("An operator that crashes after any of its writes of a take-over", func() {
	It("leaves the job as one that does not", func(ctx SpecContext) {
		afterEachWrite(func(writes int) bool {
			By(fmt.Sprintf("crashing after %d writes", writes))
			s := newSpace(ctx)
			l := s.submitLegacy(ctx, "0")
			l.team(ctx)
			half := l.pod(ctx, "aggregator", "job-aggregator-hhhhh")
			l.ddp(ctx, half, "job-ddp-learner-hhhhh", 0, 8, 10)
			before := s.identities(ctx)
			s.operator = s.newOperator(crashAfter(writes))
			err := s.settle(ctx)
			if err != nil {
				Expect(err).To(MatchError(errCrashed))
				s.operator = s.newOperator(interceptor.Funcs{})
				Expect(s.settle(ctx)).To(Succeed())
			}
			s.expectTakenOver(ctx, before)
			missing := membership.DDPPodName("job", "job-aggregator-hhhhh", 1)
			Expect(s.members(ctx)).To(ConsistOf(append(teamMembers(),
				"aggregator-hhhhh job-aggregator-hhhhh [8 2] [job-ddp-learner-hhhhh "+missing+"]")))
			Expect(s.created).To(Equal(map[string]int{
				"*v2alpha1.Membership job": 1, "*v1.Pod " + missing: 1, "*v1.Service " + missing: 1,
			}))
			Expect(s.services(ctx)).To(ConsistOf(s.podNames(ctx)))
			Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobRunning))
			return err != nil
		})
	})
})

func variable(name string, value int32) corev1.EnvVar {
	return corev1.EnvVar{Name: name, Value: strconv.Itoa(int(value))}
}

// derived returns the name of a DDP learner that the operator creates for the aggregator of the specs.
func derived(index int) string {
	return membership.DDPPodName("job", "job-aggregator-7hc88", index)
}

// edit changes the list as di-server does.
func (s *space) edit(ctx context.Context, change func(*v2alpha1.Membership)) {
	list := s.membership(ctx)
	change(list)
	Expect(shared.api.Update(ctx, list)).To(Succeed())
}

// listed returns the pods whose URLs are advertised to the coordinator.
func (s *space) listed(ctx context.Context) []string {
	list := s.membership(ctx)
	place := membership.Endpoints{Namespace: s.name, Job: "job", Ports: func(string, names.ReplicaType) int32 { return 22270 }}
	urls := place.Listed(&list.Spec, &list.Status)
	var pods []string
	for _, url := range append(urls.Collectors, urls.Learners...) {
		pods = append(pods, names.PodOfURL(url))
	}
	return pods
}

func (s *space) images(ctx context.Context, role string) map[string]string {
	found := map[string]string{}
	for _, pod := range s.pods(ctx) {
		if pod.Labels["replica-type"] == role {
			found[pod.Name] = pod.Spec.Containers[0].Image
		}
	}
	return found
}

// expectRanks expects that the DDP learners of each unit have every rank exactly once, and agree on the
// number of ranks.
func (s *space) expectRanks(ctx context.Context) {
	for _, member := range s.membership(ctx).Spec.Members {
		var start, world int32
		for _, gpus := range member.DDPGPUs {
			world += gpus
		}
		lost := membership.Losses(&s.membership(ctx).Status, member.Slot)
		for index, name := range membership.DDPPodNames("job", &member, membership.PodName("job", &member, lost)) {
			pod := specs.Get[corev1.Pod](ctx, shared.api, s.name, name)
			Expect(pod.Spec.Containers[0].Env).To(ContainElements(
				variable("START_RANK", start), variable("LOCAL_WORLD_SIZE", member.DDPGPUs[index]), variable("WORLD_SIZE", world),
			), name)
			start += member.DDPGPUs[index]
		}
	}
}

var _ = Describe("Admission that takes annotations off pods", func() {
	It("is reported, and rejected adoptions are retried rarely", func(ctx SpecContext) {
		s := newSpace(ctx)
		// Pods are patched in parallel.
		var patched atomic.Int64
		s.operator = s.newOperator(intercept(func(verb string, object client.Object, write func() error) error {
			if pod, isPod := object.(*corev1.Pod); isPod {
				pod.Annotations = nil
				if verb == patches {
					patched.Add(1)
				}
			}
			return write()
		}))
		s.submitWorkers(ctx, 3)
		for range 60 {
			Expect(s.reconcile(ctx)).To(Or(Succeed(), MatchError(ContainSubstring("annotation"))))
			s.advance(time.Second)
		}
		made := len(s.podNames(ctx))
		Expect(patched.Load()).To(And(BeNumerically(">", 0), BeNumerically("<=", 6*made)))
		Expect(s.created).To(HaveEach(1))
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionReplicaFailure, corev1.ConditionTrue, v2alpha1.ReasonFailedUpdate,
			ContainSubstring("admission removes annotation diengine/attempt")))
	})
})
