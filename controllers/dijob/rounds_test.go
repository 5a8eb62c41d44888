// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	allocatorcontroller "opendilab.org/di-orchestrator/controllers/allocator"
)

// rounds is an allocator that reads only the space. The spec sets its clock.
type rounds struct {
	*space
	allocator *allocatorcontroller.Reconciler
	registry  *prometheus.Registry
	clock     *clocktesting.FakePassiveClock
	// policy is the allocator's policy if the spec sets one.
	policy allocation.Policy
	// groups names the ConfigMap of groups if the spec sets one.
	groups types.NamespacedName
	// tenants are the allocator's tenants if the spec sets some, and also is a namespace whose jobs are its jobs, too.
	tenants []shares.Tenant
	also    string
	// topology are the labels of domains if the spec sets some.
	topology []string
	// told are the Events of the allocator.
	told *told
	// archive keeps groups that the ConfigMap has lost, if the spec sets one.
	archive allocatorcontroller.Archive
}

func (s *space) newRounds(faults interceptor.Funcs) *rounds {
	r := &rounds{space: s, clock: clocktesting.NewFakePassiveClock(time.Now())}
	r.start(faults)
	return r
}

// start creates an allocator that has placed nothing yet.
func (r *rounds) start(faults interceptor.Funcs) {
	counting := interceptor.NewClient(interceptor.NewClient(shared.operator, interceptor.Funcs{List: r.listSpace}), r.counting())
	seen := interceptor.NewClient(counting, faults)
	r.registry, r.told = prometheus.NewRegistry(), &told{critic: newCritic()}
	var err error
	r.allocator, err = allocatorcontroller.New(seen, counting, allocatorcontroller.Options{
		Policy: r.policy, Groups: r.groups, Archive: r.archive, Recorder: r.told, Registerer: r.registry, Clock: r.clock,
		Tenants: r.tenants, Topology: r.topology,
	})
	Expect(err).NotTo(HaveOccurred())
}

// listSpace lists the objects of the space.
func (r *rounds) listSpace(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	if _, ofNodes := list.(*corev1.NodeList); ofNodes {
		return next.List(ctx, list, client.MatchingLabels{"space": r.name})
	}
	if r.also == "" {
		return next.List(ctx, list, append(options, client.InNamespace(r.name))...)
	}
	var all []runtime.Object
	for _, namespace := range []string{r.name, r.also} {
		if err := next.List(ctx, list, append(slices.Clone(options), client.InNamespace(namespace))...); err != nil {
			return err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		all = append(all, items...)
	}
	return meta.SetList(list, all)
}

// told is a recorder that keeps the Events, by reason.
type told struct {
	*critic
	notes map[string][]string
}

func (t *told) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	t.critic.Eventf(regarding, related, kind, reason, action, note, args...)
	if t.notes == nil {
		t.notes = map[string][]string{}
	}
	t.notes[reason] = append(t.notes[reason], fmt.Sprintf(note, args...))
}

// next runs a round after a time.
func (r *rounds) next(ctx context.Context, after time.Duration) {
	Expect(r.try(ctx, after)).To(Succeed())
}

func (r *rounds) try(ctx context.Context, after time.Duration) error {
	r.clock.SetTime(r.clock.Now().Add(after))
	_, err := r.allocator.Reconcile(ctx, ctrl.Request{})
	return err
}

// submitElastic submits a job of collectors of two CPUs each.
func (r *rounds) submitElastic(ctx context.Context, name string, least, most int32, changes ...func(*v2alpha1.DIJobSpec)) {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: r.name, Name: name}, Spec: v2alpha1.DIJobSpec{
		Preemptible: true, Elastic: &v2alpha1.Elastic{MinReplicas: &least, MaxReplicas: &most},
		Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Template: r.demandingTemplate()}},
	}}
	for _, change := range changes {
		change(&job.Spec)
	}
	Expect(shared.api.Create(ctx, job)).To(Succeed())
}

func (r *rounds) get(ctx context.Context, name string) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{}
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: r.name, Name: name}, job)).To(Succeed())
	return job
}

// change changes a job's spec.
func (r *rounds) change(ctx context.Context, name string, change func(*v2alpha1.DIJobSpec)) {
	job := r.get(ctx, name)
	change(&job.Spec)
	Expect(shared.api.Update(ctx, job)).To(Succeed())
}

// where reports whether and where a job is placed, with the reason. It omits the prefix of nodes.
func (r *rounds) where(ctx context.Context, name string) string {
	return strings.ReplaceAll(placement(r.get(ctx, name)), r.name+"-", "")
}

func placement(job *v2alpha1.DIJob) string {
	var words []string
	for _, condition := range job.Status.Conditions {
		if condition.Type == v2alpha1.ConditionAllocated {
			words = append(words, string(condition.Status), condition.Reason)
		}
	}
	return strings.Join(append(words, job.Status.Allocation...), " ")
}

// decided is a policy with fixed placements.
type decided map[string][]string

func (d decided) Allocate(job *allocation.Job, _ []*allocation.Node) allocation.Placement {
	return allocation.Placement{Nodes: d[job.Name.Name], Reason: allocation.ReasonPlaced}
}

func (d decided) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	placements := map[types.NamespacedName]allocation.Placement{}
	for _, job := range round.Jobs {
		placements[job.Name] = d.Allocate(job, round.Nodes)
	}
	return placements
}

func twoCPUs() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
}

// editNode changes a node, and then its status.
func editNode(ctx context.Context, node *corev1.Node, change func(*corev1.Node)) {
	Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
	change(node)
	status := node.Status.DeepCopy()
	Expect(shared.api.Update(ctx, node)).To(Succeed())
	node.Status = *status
	Expect(shared.api.Status().Update(ctx, node)).To(Succeed())
}

var _ = Describe("A round of the allocator", func() {
	It("writes nothing where nothing has changed, and is one in each cycle", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		r.newNode(ctx, "a", 8)
		r.submitElastic(ctx, "one", 1, 3)
		r.submitElastic(ctx, "two", 2, 4)
		r.next(ctx, 0)
		Expect([]string{r.where(ctx, "one"), r.where(ctx, "two")}).To(Equal([]string{"True Placed a a a", "False InsufficientCapacity"}))
		writes := r.writes
		for range 3 {
			r.next(ctx, time.Minute)
		}
		Expect(r.writes).To(Equal(writes))

		result, err := r.allocator.Reconcile(ctx, ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(time.Second))
		r.clock.SetTime(r.clock.Now().Add(time.Minute))
		Expect(r.allocator.Reconcile(ctx, ctrl.Request{})).To(HaveField("RequeueAfter", time.Minute))
	})

	It("tells a job that waits once a cycle why, however often that changes", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		r.newNode(ctx, "a", 1)
		r.submitElastic(ctx, "one", 1, 1)
		r.next(ctx, 0)
		r.newNode(ctx, "b", 1)
		writes := r.writes
		for range 5 {
			r.next(ctx, time.Second)
		}
		Expect(r.writes).To(Equal(writes))
		r.next(ctx, time.Minute)
		Expect(r.writes).To(Equal(writes + 1))
		Expect(r.get(ctx, "one").Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("insufficient capacity on 2 nodes"))))
		r.newNode(ctx, "c", 2)
		r.next(ctx, time.Second)
		Expect(r.where(ctx, "one")).To(Equal("True Placed c"))
	})

	It("follows changes of jobs", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		r.newNode(ctx, "a", 8)
		urgent := func(spec *v2alpha1.DIJobSpec) { spec.Priority = v2alpha1.PriorityHigh }
		// A job of lower priority would be preempted.
		r.submitElastic(ctx, "one", 4, 4, urgent)
		r.next(ctx, 0)
		r.submitElastic(ctx, "two", 1, 2)
		r.submitElastic(ctx, "urgent", 1, 2, urgent)
		r.next(ctx, time.Minute)
		Expect([]string{r.where(ctx, "one"), r.where(ctx, "two"), r.where(ctx, "urgent")}).To(Equal(
			[]string{"True Placed a a a a", "False InsufficientCapacity", "False InsufficientCapacity"}))

		By("asking for more than there is room for")
		r.change(ctx, "one", func(spec *v2alpha1.DIJobSpec) {
			spec.Elastic.MinReplicas, spec.Elastic.MaxReplicas = ptr.To(int32(5)), ptr.To(int32(5))
		})
		r.next(ctx, time.Minute)
		Expect(r.where(ctx, "one")).To(Equal("True PartiallyPlaced a a a a"))

		By("making its range less, as di-server does on request")
		r.change(ctx, "one", func(spec *v2alpha1.DIJobSpec) {
			spec.Elastic.MinReplicas, spec.Elastic.MaxReplicas = ptr.To(int32(1)), ptr.To(int32(1))
		})
		r.next(ctx, time.Minute)
		Expect([]string{r.where(ctx, "one"), r.where(ctx, "two"), r.where(ctx, "urgent")}).To(Equal(
			[]string{"True Placed a", "True PartiallyPlaced a", "True Placed a a"}))

		By("suspending it, and resuming it")
		r.change(ctx, "urgent", func(spec *v2alpha1.DIJobSpec) { spec.Suspend = ptr.To(true) })
		r.next(ctx, time.Minute)
		Expect(r.where(ctx, "urgent")).To(Equal("False Suspended"))
		r.change(ctx, "urgent", func(spec *v2alpha1.DIJobSpec) { spec.Suspend = ptr.To(false) })
		r.next(ctx, time.Minute)
		Expect(r.where(ctx, "urgent")).To(Equal("True Placed a a"))

		By("finishing it")
		job := r.get(ctx, "urgent")
		job.Status.Conditions = append(job.Status.Conditions, v2alpha1.DIJobCondition{Type: "Succeeded", Status: corev1.ConditionTrue})
		Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
		r.submitElastic(ctx, "three", 2, 2)
		r.next(ctx, time.Minute)
		Expect(r.where(ctx, "three")).To(Equal("True Placed a a"))
	})

	It("preempts jobs of lower priority, and places them again when there is capacity", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		r.newNode(ctx, "a", 8)
		r.submitElastic(ctx, "elastic", 1, 2)
		r.submitElastic(ctx, "fixed", 2, 2)
		r.next(ctx, 0)
		r.submitElastic(ctx, "urgent", 2, 2, func(spec *v2alpha1.DIJobSpec) { spec.Priority = v2alpha1.PriorityHigh })
		r.next(ctx, time.Minute)
		Expect([]string{r.where(ctx, "elastic"), r.where(ctx, "fixed"), r.where(ctx, "urgent")}).To(Equal(
			[]string{"True Placed a a", "False InsufficientCapacity", "True Placed a a"}))
		Expect(r.get(ctx, "fixed").Status.Conditions).To(ContainElement(HaveField("Message", HavePrefix(
			fmt.Sprintf("stopped for job %s/urgent of higher priority: insufficient capacity on 1 node", r.name)))))
		Expect(shared.api.Delete(ctx, r.get(ctx, "urgent"))).To(Succeed())
		r.next(ctx, time.Minute)
		Expect(r.where(ctx, "fixed")).To(Equal("True Placed a a"))
	})

	It("honours a place that a person wrote, if the job may have it", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		a, b := r.newNode(ctx, "a", 8), r.newNode(ctx, "b", 8)
		r.submitElastic(ctx, "one", 2, 2)
		r.next(ctx, 0)
		byHand := func(nodes ...string) {
			job := r.get(ctx, "one")
			job.Status.Allocation = nodes
			Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
			r.next(ctx, time.Minute)
		}
		byHand(b.Name, a.Name)
		Expect(r.where(ctx, "one")).To(Equal("True Placed b a"))
		byHand(b.Name, "elsewhere")
		Expect(r.where(ctx, "one")).To(Or(Equal("True Placed a a"), Equal("True Placed b b")))
		byHand(b.Name)
		Expect(r.where(ctx, "one")).To(Equal("True Placed b b"))
	})

	It("leaves a job the place that another program gave it on nodes that have not said yet that they are ready", func(ctx SpecContext) {
		s := newSpace(ctx)
		r := s.newRounds(interceptor.Funcs{})
		for _, name := range []string{"-x", "-y"} {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name + name, Labels: map[string]string{"space": s.name}}}
			Expect(shared.api.Create(ctx, node)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(shared.api.Delete(ctx, node)).To(Succeed()) })
		}
		s.submit(ctx, v2alpha1.DIJobSpec{Preemptible: true, Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: r.demandingTemplate()},
		}})
		r.next(ctx, 0)
		Expect(r.where(ctx, "job")).To(Equal("False InsufficientCapacity"))
		for moves, nodes := range [][]string{{"-x", "-y"}, {"-y", "-x"}} {
			s.allocate(ctx, s.name+nodes[0], s.name+nodes[1])
			Expect(s.settle(ctx)).To(Succeed())
			r.next(ctx, time.Minute)
			Expect(s.settle(ctx)).To(Succeed())
			r.next(ctx, time.Minute)
			Expect(r.where(ctx, "job")).To(Equal("True Placed " + strings.Join([]string{nodes[0][1:], nodes[1][1:]}, " ")))
			Expect(s.podNames(ctx)).To(HaveLen(2))
			Expect(s.job(ctx).Status.Reschedules).To(BeEquivalentTo(moves))
		}
	})

	It("leaves a job its place whose template can no longer be read, and says so", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		r.newNode(ctx, "a", 4)
		r.submitElastic(ctx, "one", 1, 2)
		r.next(ctx, 0)
		// The webhook refuses such a template, but an earlier version may have stored one.
		r.start(interceptor.Funcs{
			List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				err := next.List(ctx, list, options...)
				if jobs, ok := list.(*v2alpha1.DIJobList); ok {
					for i := range jobs.Items {
						jobs.Items[i].Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":"none"}}`)
					}
				}
				return err
			},
		})
		r.next(ctx, time.Minute)
		Expect(r.where(ctx, "one")).To(Equal("True InvalidSpec a a"))
	})

	It("does not restart a job that it finds running when it places it first, though ranks have succeeded", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		a, b := r.newNode(ctx, "a", 4), r.newNode(ctx, "b", 4)
		e := r.submitEarlier(ctx, v113(), func(spec *v2alpha1.DIJobSpec) {
			spec.Preemptible = true
			for i := range spec.Tasks {
				spec.Tasks[i].Template = r.demandingTemplate()
			}
		})
		on := func(node *corev1.Node, changes ...func(*corev1.Pod)) func(*corev1.Pod) {
			return func(pod *corev1.Pod) {
				pod.Spec.NodeName = node.Name
				pod.Spec.Containers[0].Resources.Requests = twoCPUs()
				for _, change := range changes {
					change(pod)
				}
			}
		}
		// Another pod occupies the capacity of the ranks that succeeded.
		e.team(ctx, map[string]func(*corev1.Pod){
			"job-learner-0": on(a), "job-collector-0": on(b), "job-collector-1": on(a, ended(0)), "job-evaluator-0": on(b),
		})
		foreign := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.name, Name: "foreign"},
			Spec: corev1.PodSpec{NodeName: a.Name, Containers: []corev1.Container{{
				Name: "own", Image: "image", Resources: corev1.ResourceRequirements{Requests: twoCPUs()},
			}}},
		}
		Expect(shared.api.Create(ctx, foreign)).To(Succeed())
		e.status(ctx, v2alpha1.JobRunning, func(status *v2alpha1.DIJobStatus) { status.Replicas = 0 })
		before := e.uids(ctx)
		for range 3 {
			r.next(ctx, time.Minute)
			Expect(r.settle(ctx)).To(Succeed())
		}
		Expect(r.where(ctx, "job")).To(Equal("True Placed a b a b"))
		Expect(e.uids(ctx)).To(Equal(before))
		status := r.job(ctx).Status
		Expect([]any{status.Reschedules, status.Restarts, status.Phase, status.CompletedRanks}).To(Equal(
			[]any{int32(0), int32(0), v2alpha1.Phase("Running"), "2"}))
	})

	It("leaves a job where it is while its pods are replaced, on nodes that are full of it", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		a := r.newNode(ctx, "a", 4)
		r.newNode(ctx, "b", 4)
		r.submitElastic(ctx, "job", 2, 2)
		r.next(ctx, 0)
		Expect(r.settle(ctx)).To(Succeed())
		for _, pod := range r.pods(ctx) {
			Expect(shared.api.SubResource("binding").Create(ctx, &pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: a.Name}})).To(Succeed())
		}
		r.run(ctx)
		// A finalizer and a node keep it terminating until the spec releases it.
		pod := r.pods(ctx)[0]
		Expect(shared.api.Delete(ctx, &pod)).To(Succeed())
		Expect(r.pods(ctx)[0].DeletionTimestamp).NotTo(BeNil())
		r.submitElastic(ctx, "other", 1, 2)
		r.next(ctx, time.Minute)
		Expect([]string{r.where(ctx, "job"), r.where(ctx, "other")}).To(Equal([]string{"True Placed a a", "True Placed b b"}))
	})

	It("gives no job capacity that another could not release", func(ctx SpecContext) {
		refused := ""
		r := newSpace(ctx).newRounds(intercept(func(verb string, object client.Object, write func() error) error {
			if verb == patchesStatus && object.GetName() == refused {
				return errors.New("not now")
			}
			return write()
		}))
		r.newNode(ctx, "a", 4)
		r.submitElastic(ctx, "one", 2, 2)
		r.next(ctx, 0)
		r.submitElastic(ctx, "two", 2, 2)
		r.change(ctx, "one", func(spec *v2alpha1.DIJobSpec) { spec.Suspend = ptr.To(true) })
		refused = "one"
		Expect(r.try(ctx, time.Minute)).To(MatchError(ContainSubstring("not now")))
		Expect(r.where(ctx, "two")).NotTo(ContainSubstring("True"))
		refused = ""
		r.next(ctx, time.Minute)
		r.next(ctx, time.Minute)
		Expect([]string{r.where(ctx, "one"), r.where(ctx, "two")}).To(Equal([]string{"False Suspended", "True Placed a a"}))
	})

	It("releases the place of one of two jobs that wait for each other, also if a third waits", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		places := decided{}
		r.policy = places
		r.start(interceptor.Funcs{})
		r.newNode(ctx, "a", 4)
		r.newNode(ctx, "b", 4)
		r.submitElastic(ctx, "one", 2, 2)
		r.submitElastic(ctx, "two", 1, 1)
		maps.Copy(places, decided{"one": {r.name + "-a", r.name + "-a"}, "two": {r.name + "-b"}})
		r.next(ctx, 0)
		r.submitElastic(ctx, "fresh", 1, 1)
		maps.Copy(places, decided{"one": {r.name + "-b", r.name + "-b"}, "two": {r.name + "-a"}, "fresh": {r.name + "-a"}})
		r.next(ctx, time.Minute)
		r.next(ctx, time.Minute)
		Expect([]string{r.where(ctx, "one"), r.where(ctx, "two"), r.where(ctx, "fresh")}).To(
			Equal([]string{"True Placed b b", "True Placed a", "True Placed a"}))
	})

	It("never exceeds capacity, with a stale cache and after a change of leader", func(ctx SpecContext) {
		const cpus, pods = 8, 4
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		old := map[string]client.ObjectList{}
		random := rand.New(rand.NewPCG(1, 1))
		lagging := interceptor.Funcs{
			List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				jobs, ofJobs := list.(*v2alpha1.DIJobList)
				if !ofJobs {
					return next.List(ctx, list, options...)
				}
				if last, seen := old["jobs"].(*v2alpha1.DIJobList); seen && random.IntN(3) > 0 {
					last.DeepCopyInto(jobs)
					return nil
				}
				err := next.List(ctx, list, options...)
				old["jobs"] = jobs.DeepCopy()
				return err
			},
		}
		r.start(lagging)
		var nodes []*corev1.Node
		for _, name := range []string{"a", "b"} {
			nodes = append(nodes, r.newNode(ctx, name, cpus))
		}
		for step := range 40 {
			name := fmt.Sprint("job-", random.IntN(6))
			switch random.IntN(6) {
			case 0, 1:
				job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: r.name, Name: name}}
				if shared.api.Get(ctx, client.ObjectKeyFromObject(job), job) != nil {
					r.submitElastic(ctx, name, 1, int32(1+random.IntN(3)))
				}
			case 2:
				job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: r.name, Name: name}}
				Expect(client.IgnoreNotFound(shared.api.Delete(ctx, job))).To(Succeed())
			case 3:
				r.start(lagging)
			case 4:
				editNode(ctx, nodes[random.IntN(2)], func(node *corev1.Node) { node.Spec.Unschedulable = !node.Spec.Unschedulable })
			}
			// The write of a changed job is refused. The next round places the job.
			_ = r.try(ctx, 6*time.Minute)
			var jobs v2alpha1.DIJobList
			Expect(shared.api.List(ctx, &jobs, client.InNamespace(r.name))).To(Succeed())
			taken := map[string]int{}
			for i := range jobs.Items {
				for _, node := range jobs.Items[i].Status.Allocation {
					taken[node]++
				}
			}
			for node, count := range taken {
				Expect(count).To(BeNumerically("<=", pods), "step %d: node %s", step, node)
			}
		}
	})
})

var _ = Describe("A preemptible job without an allocator", func() {
	It("says that it waits for another, and runs when that has placed it", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.operator.options.NoAllocator = true
		r := s.newRounds(interceptor.Funcs{})
		r.submitElastic(ctx, "job", 2, 2)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.placed(ctx)).To(Equal("False NoAllocator"))
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobPending))
		job := s.job(ctx)
		job.Status.Allocation = []string{"a", "b"}
		Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.placed(ctx)).To(Equal("True Allocated a b"))
		Expect(s.podNames(ctx)).To(HaveLen(2))
	})
})

// failing makes patches of statuses fail while refuse is true.
func failing(refuse *bool) interceptor.Funcs {
	return intercept(func(verb string, _ client.Object, write func() error) error {
		if verb == patchesStatus && *refuse {
			return errors.New("no")
		}
		return write()
	})
}
