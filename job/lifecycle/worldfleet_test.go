// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// mostJobs is how many jobs a fleet has at most.
const mostJobs = 5

// TestJobsInAWorldThatShardsAndLags applies random events to several jobs of both lifecycles, to the operators that
// divide them, and to their Leases. Jobs are deleted, and others get their names. No two operators may act on a job at a time, and
// the checks of each job's world must hold at every step. Then faults stop. Each job must have one operator, and reach its desired
// state, and nothing of a deleted job may be left.
func TestJobsInAWorldThatShardsAndLags(t *testing.T) {
	t.Parallel()
	(&game{policies: compiled(t, installed(t)), perform: performFleet}).playAll(t)
}

// fleet is a cluster with several jobs, each a world, and the operators that divide them.
type fleet struct {
	t expect.Test
	*course
	// worlds are the jobs, by number; nil for one that the story leaves out.
	worlds []*world
	clocks clocks
	// shards is the configured number of shards. started counts the processes that were ever started.
	shards, started int
	processes       []*process
	leases          map[string]*lease
	// policy is that of the allocator; "" if there is none. nodes are the nodes where it places jobs.
	policy string
	nodes  map[string]*corev1.Node
	// gone are the deleted jobs whose objects the garbage collector has not deleted yet, by the number of the job that has the name
	// now; nil for none. newJobs makes the next jobs.
	gone   []*world
	newJob func(number int, random *rand.Rand) *world
	// owners are the jobs that the objects belong to, by UID.
	owners map[types.UID]*world
}

// speaker names the job in each failed check.
type speaker struct {
	expect.Test
	name string
}

func (s speaker) Fatalf(format string, args ...any) {
	s.Test.Fatalf("%s: %s", s.name, fmt.Sprintf(format, args...))
}

func (s speaker) Errorf(format string, args ...any) { s.Fatalf(format, args...) }

func (s speaker) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

// performFleet plays a sequence of several jobs.
func performFleet(g *game, t expect.Test, course *course, seed uint64, told story) {
	random := rand.New(rand.NewPCG(seed, 0))
	f := &fleet{
		t: t, course: course, clocks: anyClocks(random), shards: 1 + random.IntN(3), leases: map[string]*lease{}, owners: map[types.UID]*world{},
		policy: []string{"", allocator.PolicyFit, allocator.PolicyGoodput}[random.IntN(3)], nodes: map[string]*corev1.Node{},
	}
	for _, name := range nodeNames {
		f.nodes[name] = newNode(name, 2+random.IntN(6))
	}
	count := 2 + random.IntN(mostJobs-1)
	f.gone = make([]*world, count)
	f.newJob = func(number int, random *rand.Rand) *world { return f.makeJob(g, number, random) }
	for number := range count {
		spec := rand.New(rand.NewPCG(seed, uint64(1_000_000+number)))
		f.worlds = append(f.worlds, nil)
		if !told.absent[number] {
			f.worlds[number] = f.newJob(number, spec)
		}
	}
	for range 2 {
		f.start(f.shards, random)
	}
	for range 3 {
		f.now = f.now.Add(time.Second)
		f.tickAll(random)
	}
	for _, step := range told.steps {
		f.happen(rand.New(rand.NewPCG(seed, 1+step)))
		f.elapse()
	}
	f.calm(random)
}

// makeJob returns the world of one of the jobs.
func (f *fleet) makeJob(g *game, number int, random *rand.Rand) *world {
	spec := anySpec
	if number%2 == 1 {
		spec = anyLedSpec
	}
	wanted := spec(random)
	if f.policy != "" && number%2 == 0 && (wanted.Preemptible || random.IntN(2) == 0) {
		anyPlaceable(random, &wanted)
	}
	if number%2 == 0 && !wanted.Preemptible && random.IntN(3) > 0 {
		anyFollower(random, &wanted)
	}
	w := newWorld(speaker{f.t, nameOfJob(number)}, wanted)
	w.work = work{producer: 5 + random.Float64()*30, consumer: 20 + random.Float64()*200, reported: f.now, sums: map[string]*v2alpha1.RoleRates{}}
	w.fleet, w.course, w.clocks, w.policies, w.isBusy = f, f.course, f.clocks, g.policies, random.IntN(2) == 0
	w.gangs = anyGangs(random, &w.job.Spec)
	// Versions and UIDs of other jobs differ.
	w.uids = 1_000_000 * (number + 1)
	w.job.Namespace, w.job.ResourceVersion = fmt.Sprintf("space-%d", number), strconv.Itoa(w.uids)
	w.job.UID = types.UID(fmt.Sprintf("job-%d", w.uids))
	if random.IntN(2) == 0 {
		w.settings.InlineNodes = -1
	}
	return w
}

func nameOfJob(number int) string { return fmt.Sprintf("job %d", number) }

// any returns one of the jobs; nil for one that is left out.
func (f *fleet) any(random *rand.Rand) *world { return f.worlds[random.IntN(len(f.worlds))] }

func (f *fleet) anyProcess(random *rand.Rand) *process {
	return f.processes[random.IntN(len(f.processes))]
}

// happen applies one random event to the cluster.
func (f *fleet) happen(random *rand.Rand) {
	f.now = f.now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
	switch choice := random.IntN(100); {
	case choice < 36:
		if w := f.any(random); w != nil {
			w.tell("something happens to job %s", w.job.Namespace)
			w.disturbAny(random)
		}
	case choice < 60:
		f.reconcile(f.anyActor(random), random)
	case choice < 75:
		f.hear(f.anyActor(random), random)
	case choice < 78:
		f.allocateAsLeader(random)
	case choice < 81:
		f.autoscale(f.anyActor(random), random)
	case choice < 84:
		f.befallNode(random)
	case choice < 86:
		f.befallName(random)
	case choice < 90:
		f.tickAll(random)
	case choice < 92:
		f.tickOften(f.anyProcess(random), random)
	case choice < 93:
		f.hang(f.anyActor(random), random)
	case choice < 98:
		f.befallProcess(f.anyProcess(random), random)
	default:
		f.now = f.now.Add(15 * time.Second)
		f.tell("time passes")
	}
}

// anyActor returns a process that reconciles jobs, if there is one.
func (f *fleet) anyActor(random *rand.Rand) *process {
	acting := slices.DeleteFunc(slices.Clone(f.processes), func(p *process) bool { return !p.leads && len(p.serves) == 0 })
	if len(acting) == 0 {
		return f.anyProcess(random)
	}
	return acting[random.IntN(len(acting))]
}

// disturbAny applies one random event to a job of a fleet that is not its operator's.
func (w *world) disturbAny(random *rand.Rand) {
	if !state.IsCoordinatorLed(w.job) && handshake.HasStateful(w.job) && random.IntN(4) > 0 {
		w.befallMembers(random)
	} else {
		w.disturb(random)
	}
}

// befallProcess stops, cuts off or restarts an operator, or changes the number of shards.
func (f *fleet) befallProcess(p *process, random *rand.Rand) {
	switch choice := random.IntN(14); {
	case choice > 11:
		f.rollBeside(p, random)
	case choice == 0:
		f.roll(p, random)
	case choice == 1:
		f.exit(p, "is killed", random)
	case choice < 5:
		p.isCut = !p.isCut
		f.tell("%s reaches the Leases: %v", p.Identity, !p.isCut)
	case choice < 7:
		f.tell("%s resyncs", p.Identity)
		f.learn(p, func() bool { return true })
		f.onAll(p, func(w *world) { w.resync() })
	case choice < 9:
		f.shards = 1 + random.IntN(4)
		f.tell("the number of shards is %d", f.shards)
	default:
		if at := slices.IndexFunc(f.processes, func(p *process) bool { return p.Count != f.shards }); at >= 0 {
			f.roll(f.processes[at], random)
		}
	}
}

// roll replaces a process by one with the configured number of shards.
func (f *fleet) roll(p *process, random *rand.Rand) {
	f.stop(p)
	f.start(f.shards, random)
}

// rollBeside replaces all processes but one, which cannot reach the Leases meanwhile, by those of another number of shards. They act
// as soon as they may.
func (f *fleet) rollBeside(p *process, random *rand.Rand) {
	f.shards = 1 + (f.shards+random.IntN(3))%4
	p.isCut = true
	f.tell("the number of shards is %d, and %s does not reach the Leases", f.shards, p.Identity)
	for _, other := range f.others(p) {
		f.roll(other, random)
	}
	for range 2 + random.IntN(4) {
		f.now = f.now.Add(time.Second)
		f.elapse()
		for _, other := range f.others(p) {
			f.tick(other, random)
		}
	}
	for _, other := range f.others(p) {
		f.reconcile(other, random)
	}
}

// tickAll makes all processes read the Leases, in any order.
func (f *fleet) tickAll(random *rand.Rand) {
	for _, at := range random.Perm(len(f.processes)) {
		f.tick(f.processes[at], random)
	}
}

// onEach calls a function for each job, as an operator sees it.
func (f *fleet) onEach(p *process, do func(*world)) {
	for number, w := range f.worlds {
		if w != nil {
			w.operator, w.standby = p.views[number], p.views[number]
			do(w)
		}
	}
}

// reconcile makes an operator reconcile some of its jobs, in any order. Its writes may fail, and it may die.
func (f *fleet) reconcile(p *process, random *rand.Rand) {
	for _, number := range random.Perm(len(f.worlds)) {
		w := f.worlds[number]
		if w == nil || random.IntN(3) == 0 || !p.runs(w) {
			continue
		}
		f.step(p, number, mostlyAlive(anyFate(random), random))
		if w.died {
			f.exit(p, "dies", random)
			return
		}
	}
}

// mostlyAlive returns the outcomes of writes. Few of them end the operator, because it runs several jobs.
func mostlyAlive(how func() fate, random *rand.Rand) func() fate {
	return func() fate {
		if outcome := how(); outcome < deadBefore || random.IntN(5) == 0 {
			return outcome
		}
		return refused
	}
}

// step makes an operator reconcile a job once.
func (f *fleet) step(p *process, number int, fate func() fate) bool {
	w := f.face(p, number)
	f.checkActor(p, w)
	f.tell("%s reconciles job %d", p.Identity, number)
	w.fate = fate
	changed := w.step()
	w.fate = nil
	f.checkOwners(w)
	return changed
}

// hear delivers some events to the caches of an operator.
func (f *fleet) hear(p *process, random *rand.Rand) {
	f.learn(p, func() bool { return random.IntN(3) == 0 })
	f.onAll(p, func(w *world) { w.hearAsLeader(random) })
	for _, name := range nodeNames {
		switch node := f.nodes[name]; {
		case random.IntN(2) == 0:
		case node == nil:
			delete(p.nodes, name)
		default:
			p.nodes[name] = node
		}
	}
}

// tickOften makes one process read the Leases a few times, while the others are slow.
func (f *fleet) tickOften(p *process, random *rand.Rand) {
	for range 4 {
		f.now = f.now.Add(time.Second)
		f.elapse()
		if slices.Contains(f.processes, p) {
			f.tick(p, random)
		}
	}
}

// allocateAsLeader makes the leader allocate, sometimes again at once. Its writes may fail, and it may die.
func (f *fleet) allocateAsLeader(random *rand.Rand) {
	at := slices.IndexFunc(f.processes, func(p *process) bool { return p.leads && p.mayAct })
	if at < 0 {
		return
	}
	if random.IntN(4) == 0 {
		f.allocateUnanswered(f.processes[at], random)
		return
	}
	fate := anyFate(random)
	for range 1 + random.IntN(3) {
		f.now = f.now.Add(time.Second)
		f.allocate(f.processes[at], fate)
	}
	if random.IntN(20) == 0 {
		f.exit(f.processes[at], "dies", random)
	}
}

// hang stops an operator while it writes, until another one has taken its shards and acts. It then writes the rest of what it
// has decided, and ends.
func (f *fleet) hang(p *process, random *rand.Rand) {
	number := slices.IndexFunc(f.worlds, func(w *world) bool { return w != nil && p.runs(w) })
	if number < 0 {
		return
	}
	w, left := f.face(p, number), random.IntN(8)
	view := w.operator
	w.beforeWrite = func() {
		if left--; left >= 0 {
			return
		}
		interrupted := w.pass
		w.beforeWrite, p.isHung = nil, true
		f.tell("%s hangs", p.Identity)
		f.replaceHung(number, random)
		f.tell("%s continues", p.Identity)
		w.operator, w.standby, w.pass = view, view, pass{failed: interrupted.failed, isFormer: true}
	}
	f.step(p, number, nil)
	w.beforeWrite = nil
	if p.isHung {
		f.exit(p, "has lost its Leases", random)
	}
}

// replaceHung makes time pass until the Leases of an operator that hangs have expired, and others act on one of its jobs.
func (f *fleet) replaceHung(number int, random *rand.Rand) {
	for range 6 {
		f.now = f.now.Add(5 * time.Second)
		f.elapse()
		for _, other := range slices.Clone(f.processes) {
			if !other.isHung {
				f.tick(other, random)
			}
		}
	}
	for range 1 + random.IntN(4) {
		for _, other := range f.processes {
			if !other.isHung && other.runs(f.worlds[number]) {
				f.hear(other, random)
				f.step(other, number, nil)
			}
		}
	}
}

// checkActor checks that no other operator acts on a job.
func (f *fleet) checkActor(p *process, w *world) {
	for _, other := range f.processes {
		if other != p && !other.isHung && other.runs(w) {
			f.t.Fatalf("%s of %d shards reconciles job %s, and so does %s of %d", p.Identity, p.Count, client.ObjectKeyFromObject(w.job), other.Identity, other.Count)
		}
	}
}

// checkOwners checks that no object has been one of another job.
func (f *fleet) checkOwners(w *world) {
	for _, pod := range w.pods {
		if of := f.owners[pod.UID]; of != nil && of != w {
			f.t.Fatalf("pod %s/%s has the UID %s of a pod of job %s", pod.Namespace, pod.Name, pod.UID, of.job.Namespace)
		}
		f.owners[pod.UID] = w
		if pod.Namespace != w.job.Namespace || len(pod.OwnerReferences) == 0 || !isOwnedByUnit(pod, w) {
			f.t.Fatalf("pod %s/%s of job %s belongs to %v", pod.Namespace, pod.Name, w.job.Namespace, pod.OwnerReferences)
		}
	}
}

// calm ends the faults. Each job must get one operator, and reach its desired state.
func (f *fleet) calm(random *rand.Rand) {
	f.tell("the cluster calms down")
	for _, p := range slices.Clone(f.processes) {
		p.isCut = false
		if p.Count != f.shards {
			f.roll(p, random)
		}
	}
	// The Leases of lost operators expire first. Shards may still move to other operators then.
	for round := 0; round < 100 && (round < 20 || f.idle() != nil); round++ {
		f.now = f.now.Add(time.Second)
		f.elapse()
		f.tickAll(random)
	}
	f.clearNames(random)
	f.assign()
	f.settleSizes()
	if f.policy != "" {
		f.settlePlaces()
	}
	for number, w := range f.worlds {
		if w == nil {
			continue
		}
		w.tell("job %d calms down", number)
		if state.IsCoordinatorLed(w.job) {
			w.calmLed()
		} else {
			w.calm(random)
		}
		f.checkOwners(w)
	}
}

// assign lets each job see what its only operator sees.
func (f *fleet) assign() {
	for number, w := range f.worlds {
		if w == nil {
			continue
		}
		at := slices.IndexFunc(f.processes, func(p *process) bool { return p.runs(w) })
		if at < 0 {
			f.t.Fatalf("no operator runs job %d: %s", number, f.outlineLeases())
		}
		f.checkActor(f.processes[at], w)
		w.operator, w.standby = f.processes[at].views[number], f.processes[at].views[number]
	}
}

// idle returns a job that no operator runs; nil for none.
func (f *fleet) idle() *world {
	for _, w := range f.worlds {
		if w != nil && !slices.ContainsFunc(f.processes, func(p *process) bool { return p.runs(w) }) {
			return w
		}
	}
	return nil
}

// shardOf returns the shard of a job if there are so many.
func shardOf(job *v2alpha1.DIJob, count int) int {
	return shards.Of(client.ObjectKeyFromObject(job), count)
}
