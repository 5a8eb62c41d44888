// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
)

// report writes what a job reports of itself, as di-server does.
func (r *rounds) report(ctx context.Context, name, report string) {
	job := r.get(ctx, name)
	job.Status.Profilings = &v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(report)}}
	Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
}

// speedup is the report of a job that has trained with up to some replicas: 1.6 times as fast with two, four
// times with eight.
func speedup(most int) string {
	var steps []string
	for replicas := 1; replicas <= most; replicas *= 2 {
		synchronize := 0.1
		if replicas == 1 {
			synchronize = 0
		}
		steps = append(steps, fmt.Sprintf(`{"nodes":1,"replicas":%d,"samples":%d,"seconds":%g,"compute_seconds":%g}`,
			replicas, 64/replicas, synchronize+0.8/float64(replicas), 0.8/float64(replicas)))
	}
	return `{"version":1,"batch":{"initial":64,"max":64},"gradient":{"sqr":1,"var":100},"steps":[` + strings.Join(steps, ",") + `]}`
}

// grow runs rounds in which a job reports what it measured with the replicas that it has.
func (r *rounds) grow(ctx context.Context, name string, rounds int) int {
	for range rounds {
		r.report(ctx, name, speedup(len(r.get(ctx, name).Status.Allocation)))
		r.next(ctx, time.Minute)
	}
	return len(r.get(ctx, name).Status.Allocation)
}

func (r *rounds) usage(ctx context.Context, name string) *v2alpha1.AllocationUsage {
	usage := r.get(ctx, name).Status.AllocationUsage
	Expect(usage).NotTo(BeNil())
	return usage
}

func (r *rounds) storedGroups(ctx context.Context) string {
	stored := &corev1.ConfigMap{}
	Expect(shared.api.Get(ctx, r.groups, stored)).To(Succeed())
	var all []string
	for _, text := range stored.Data {
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

// archiveGroups records the stored groups, as the history does.
func (r *rounds) archiveGroups(ctx context.Context, history *store.Store) {
	stored := &corev1.ConfigMap{}
	Expect(shared.api.Get(ctx, r.groups, stored)).To(Succeed())
	var groups []record.Group
	for key, text := range stored.Data {
		if strings.HasPrefix(key, "group-") {
			group, err := record.ReadGroup(text)
			Expect(err).NotTo(HaveOccurred())
			groups = append(groups, group)
		}
	}
	Expect(history.KeepGroups(ctx, groups)).To(Succeed())
}

// unreadable returns how many jobs reported what the allocator cannot read.
func (r *rounds) unreadable() float64 {
	const name = "di_orchestrator_allocator_unreadable_reports_total"
	families, err := r.registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// finish sets what the operator writes when a job has succeeded.
func (r *rounds) finish(ctx context.Context, name string) {
	job, now := r.get(ctx, name), metav1.NewTime(r.clock.Now())
	job.Status.Phase, job.Status.CompletionTimestamp = v2alpha1.JobSucceeded, &now
	job.Status.Conditions = append(job.Status.Conditions, v2alpha1.DIJobCondition{Type: "Succeeded", Status: corev1.ConditionTrue})
	Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
}

func (s *space) newGoodputRounds(ctx context.Context) *rounds {
	r := s.newRounds(interceptor.Funcs{})
	r.policy, r.groups = goodput.New(goodput.DefaultSettings()), types.NamespacedName{Namespace: r.name, Name: "groups"}
	r.newNode(ctx, "a", 8)
	r.newNode(ctx, "b", 8)
	r.start(interceptor.Funcs{})
	return r
}

// restart replaces the operator by another.
func (r *rounds) restart() {
	r.policy = goodput.New(goodput.DefaultSettings())
	r.start(interceptor.Funcs{})
}

var _ = Describe("A round of the allocator with policy goodput", func() {
	It("grows a job that reports a speedup, and shrinks it for another", func(ctx SpecContext) {
		r := newSpace(ctx).newGoodputRounds(ctx)
		r.submitElastic(ctx, "one", 1, 8)
		r.next(ctx, 0)
		started := len(r.get(ctx, "one").Status.Allocation)
		Expect(started).To(BeNumerically(">=", 1))
		Expect(r.usage(ctx, "one").Policy).NotTo(BeEmpty())
		grown := r.grow(ctx, "one", 6)
		Expect(grown).To(BeNumerically(">", started))
		Expect(r.usage(ctx, "one").Restarts).To(BeNumerically(">", 0))

		r.submitElastic(ctx, "two", 1, 8)
		r.next(ctx, time.Minute)
		r.grow(ctx, "two", 6)
		one, two := len(r.get(ctx, "one").Status.Allocation), len(r.get(ctx, "two").Status.Allocation)
		Expect([]int{one, two}).To(HaveEach(BeNumerically(">=", 1)))
		Expect(one + two).To(BeNumerically("<=", 8))
		Expect(one).To(BeNumerically("<", grown))
	})

	It("continues with the stored usage after a change of leader", func(ctx SpecContext) {
		r := newSpace(ctx).newGoodputRounds(ctx)
		r.submitElastic(ctx, "one", 1, 8)
		r.next(ctx, 0)
		r.grow(ctx, "one", 5)
		before, writes := r.usage(ctx, "one"), r.writes
		r.restart()
		r.next(ctx, time.Second)
		Expect(r.writes).To(Equal(writes), "a new leader changes nothing within a minute")
		r.next(ctx, time.Minute)
		after := r.usage(ctx, "one")
		Expect(after.AccountedAt.After(before.AccountedAt.Time)).To(BeTrue())
		Expect(after.AttainedMilliseconds).To(BeNumerically(">", before.AttainedMilliseconds))
		Expect(after.Restarts).To(BeNumerically(">=", before.Restarts))
		Expect(after.WorkMilliseconds).To(BeNumerically(">=", before.WorkMilliseconds))
	})

	It("stores what a group has shown, and counts a job that has succeeded once, also after a change of leader", func(ctx SpecContext) {
		r := newSpace(ctx).newGoodputRounds(ctx)
		r.submitElastic(ctx, "one", 1, 1)
		r.next(ctx, 0)
		r.grow(ctx, "one", 4)
		Expect(r.storedGroups(ctx)).To(ContainSubstring(`"observations"`))
		Expect(r.usage(ctx, "one").UsefulThousandths).To(BeNumerically(">", 0))
		r.finish(ctx, "one")
		r.next(ctx, time.Second)
		Expect(r.usage(ctx, "one").Counted).To(BeTrue())
		Expect(r.storedGroups(ctx)).To(ContainSubstring(`"finished":1`))
		for range 3 {
			r.restart()
			r.next(ctx, 2*time.Minute)
		}
		Expect(r.storedGroups(ctx)).To(ContainSubstring(`"finished":1`))

		By("placing another job of the group")
		r.submitElastic(ctx, "two", 1, 1)
		r.next(ctx, time.Minute)
		Expect(r.where(ctx, "two")).To(HavePrefix("True"))
		Expect(r.storedGroups(ctx)).To(ContainSubstring(`"finished":1`))
	})

	It("takes from the history what a group had shown before the ConfigMap was lost, and counts no job again", func(ctx SpecContext) {
		r := newSpace(ctx).newGoodputRounds(ctx)
		history, err := store.OpenSQLite(ctx, filepath.Join(GinkgoT().TempDir(), "history.db"))
		Expect(err).NotTo(HaveOccurred())
		r.archive = history
		r.restart()
		r.submitElastic(ctx, "one", 1, 1)
		r.next(ctx, 0)
		r.grow(ctx, "one", 4)
		r.finish(ctx, "one")
		r.next(ctx, time.Second)
		Expect(r.storedGroups(ctx)).To(ContainSubstring(`"finished":1`))
		r.archiveGroups(ctx, history)
		Expect(shared.api.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.groups.Namespace, Name: r.groups.Name}})).To(Succeed())

		r.restart()
		r.submitElastic(ctx, "two", 1, 1)
		r.next(ctx, time.Minute)
		r.grow(ctx, "two", 4)
		Expect(r.storedGroups(ctx)).To(And(ContainSubstring(`"finished":1`), ContainSubstring(`"observations"`)))
		r.finish(ctx, "two")
		r.next(ctx, time.Minute)
		Expect(r.storedGroups(ctx)).To(ContainSubstring(`"finished":2`))

		By("taking the history away")
		Expect(history.Close()).To(Succeed())
		r.submitElastic(ctx, "three", 1, 1, func(spec *v2alpha1.DIJobSpec) { spec.Group = "new" })
		r.next(ctx, time.Minute)
		Expect(r.where(ctx, "three")).To(HavePrefix("True"))
	})

	It("replaces groups that another program broke", func(ctx SpecContext) {
		r := newSpace(ctx).newGoodputRounds(ctx)
		broken := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.groups.Namespace, Name: r.groups.Name}, Data: map[string]string{"group-0": "{", "note": "hello"},
		}
		Expect(shared.api.Create(ctx, broken)).To(Succeed())
		r.submitElastic(ctx, "one", 1, 1)
		r.next(ctx, 0)
		r.grow(ctx, "one", 3)
		Expect(r.storedGroups(ctx)).To(And(ContainSubstring(`"observations"`), Not(ContainSubstring("hello"))))

		By("changing the ConfigMap at the same time")
		Expect(shared.api.Get(ctx, r.groups, broken)).To(Succeed())
		broken.Data = nil
		Expect(shared.api.Update(ctx, broken)).To(Succeed())
		r.finish(ctx, "one")
		r.next(ctx, time.Minute)
		r.next(ctx, time.Minute)
		Expect(r.storedGroups(ctx)).To(ContainSubstring(`"finished":1`))
	})

	It("ignores a report that it cannot read", func(ctx SpecContext) {
		r := newSpace(ctx).newGoodputRounds(ctx)
		r.submitElastic(ctx, "one", 1, 1)
		r.next(ctx, 0)
		for range 3 {
			r.report(ctx, "one", fmt.Sprintf(`{"version":1,"steps":"none at %s"}`, r.clock.Now()))
			r.next(ctx, time.Minute)
		}
		Expect(r.where(ctx, "one")).To(HavePrefix("True"))
		Expect(r.unreadable()).To(Equal(1.0))
	})
})

// restless is a policy that says something else about a job in each round.
type restless struct {
	decided
	rounds *int
}

func (p restless) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	*p.rounds++
	placements := p.decided.Optimize(round)
	for name, placement := range placements {
		placement.Message = fmt.Sprintf("round %d", *p.rounds)
		placement.Usage = allocation.Usage{At: round.Now, Work: float64(*p.rounds)}
		placements[name] = placement
	}
	return placements
}

var _ = Describe("A round of the allocator with a policy whose messages change", func() {
	It("writes a job once a minute, and at once when its placement changes", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		a := r.newNode(ctx, "a", 8)
		placements := decided{"one": {a.Name}}
		r.policy = restless{placements, new(int)}
		r.start(interceptor.Funcs{})
		r.submitElastic(ctx, "one", 1, 4)
		r.next(ctx, 0)
		writes := r.writes
		for range 125 {
			r.next(ctx, time.Second)
		}
		Expect(r.writes-writes).To(Equal(2), "in 125 seconds")
		placements["one"] = []string{a.Name, a.Name}
		r.next(ctx, time.Second)
		Expect(r.writes - writes).To(Equal(3))
		Expect(r.get(ctx, "one").Status.Allocation).To(HaveLen(2))
	})
})
