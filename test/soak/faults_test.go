// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
	"opendilab.org/di-orchestrator/test/testkit/wallclock"
)

// faultKind is one way to disturb the installation.
type faultKind struct {
	name string
	// weight is how many of these are in one bag of faults.
	weight int
	do     disturb
}

// disturb disturbs and returns when that is over. It returns false if there was nothing to disturb.
type disturb func(f *faults, ctx context.Context, random *rand.Rand) (bool, error)

func faultKinds() []faultKind {
	return []faultKind{
		{"kill -9 of a program", 6, (*faults).kill},
		{"SIGSTOP of a program", 4, (*faults).pause},
		{"cut from the API server", 3, through(proxy.Cut)},
		{"hanging connections", 3, through(proxy.BlackHole)},
		{"lost answers", 3, through(proxy.Mute)},
		{"lost answers of di-server", 3, toServers(proxy.Mute)},
		{"cut from di-server", 2, toServers(proxy.Cut)},
		{"429 for a program", 2, (*faults).overload},
		{"clock moved", 3, (*faults).moveClock},
		{"crash of an API server", 1, (*faults).crashAPIServer},
		{"API server hangs", 1, (*faults).hangAPIServer},
		{"crash of etcd", 1, crash(controlplane.Etcd)},
		{"slow etcd", 1, (*faults).slowEtcd},
		{"disk of etcd full", 1, (*faults).fillDisk},
		{"deletion that the garbage collector misses", 1, (*faults).missDeletion},
		{"compaction", 2, (*faults).compact},
		{"pod deleted", 6, onPod("a stranger deletes the pod", remove)},
		{"pod deleted by force", 3, onPod("a stranger deletes the pod by force", removeByForce)},
		{"pod failed", 5, onPod("the program in the pod fails", fail)},
		{"pod evicted", 3, onPod("the kubelet evicts the pod", evict)},
		{"pod relabelled", 3, onPod("a stranger changes labels and annotations of the pod", relabel)},
		{"node lost", 2, (*faults).loseNode},
		{"shards changed", 1, (*faults).reshard},
		{"authority rotated", 1, (*faults).rotate},
		{"program of the other version", 4, (*faults).changeVersion},
		{"CRDs of the other version", 1, (*faults).changeDefinitions},
	}
}

// faults disturbs a world by a seeded schedule.
type faults struct {
	world  *world
	random *rand.Rand
	// rate is the number of faults a second, and longest the longest duration of one.
	rate    float64
	longest time.Duration
	// bag has the kinds that are next, in a random order, so that each kind has its share at any time. The first bag has
	// one of each, so that a short run has all.
	bag    []faultKind
	hasAll bool

	// control is locked while the control plane is disturbed, and clients while the way to di-server is.
	control, clients sync.Mutex
	// compacted is the last revision that etcd has forgotten.
	compacted int64
	mutex     sync.Mutex
	done      map[string]int
	failed    error
}

// run disturbs until the context ends, and returns when all disturbances are over.
func (f *faults) run(ctx context.Context) error {
	var running sync.WaitGroup
	for pace.Pause(ctx, time.Duration(f.random.ExpFloat64()/f.rate*float64(time.Second))) == nil {
		kind := f.next()
		random := rand.New(rand.NewPCG(f.random.Uint64(), 0))
		running.Go(func() {
			// A disturbance ends also if the window has ended.
			did, err := kind.do(f, context.WithoutCancel(ctx), random)
			// One that found nothing to disturb tries again while the window lasts.
			for !did && err == nil && pace.Pause(ctx, time.Second) == nil {
				did, err = kind.do(f, context.WithoutCancel(ctx), random)
			}
			f.mutex.Lock()
			defer f.mutex.Unlock()
			if err != nil {
				f.failed = fmt.Errorf("%s: %w", kind.name, err)
			}
			if did {
				f.done[kind.name]++
			}
		})
	}
	running.Wait()
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.failed
}

func (f *faults) next() *faultKind {
	if len(f.bag) == 0 {
		for _, kind := range faultKinds() {
			count := 1
			if f.hasAll {
				count = kind.weight
			}
			for range count {
				f.bag = append(f.bag, kind)
			}
		}
		f.hasAll = true
		f.random.Shuffle(len(f.bag), func(i, j int) { f.bag[i], f.bag[j] = f.bag[j], f.bag[i] })
	}
	kind := f.bag[0]
	f.bag = f.bag[1:]
	return &kind
}

// lasting returns how long a disturbance lasts: from one second on, short ones more often.
func (f *faults) lasting(random *rand.Rand) time.Duration {
	share := random.Float64()
	return time.Second + time.Duration(share*share*float64(f.longest-time.Second))
}

// around records a fault around what disturbs. The programs need some time after it.
func (f *faults) around(kind, target string, do func() error) error {
	fault := history.Fault{Kind: kind, Target: target, Begin: time.Now()}
	f.world.log.Add(history.Entry{Fault: &fault})
	err := do()
	over := fault
	over.End = time.Now()
	f.world.log.Add(history.Entry{Fault: &over})
	return err
}

// onProgram disturbs a random program that no other fault disturbs.
func (f *faults) onProgram(kind string, random *rand.Rand, do func(*instance) error) (bool, error) {
	chosen := f.world.instances[random.IntN(len(f.world.instances))]
	if !chosen.faulty.TryLock() {
		return false, nil
	}
	defer chosen.faulty.Unlock()
	return true, f.around(kind, chosen.name, func() error { return do(chosen) })
}

func (f *faults) kill(ctx context.Context, random *rand.Rand) (bool, error) {
	return f.onProgram("kill", random, func(i *instance) error { return i.restart(ctx) })
}

// moveClock starts a program again with another wall clock.
func (f *faults) moveClock(ctx context.Context, random *rand.Rand) (bool, error) {
	return f.onProgram("clock", random, func(i *instance) error {
		i.mutex.Lock()
		i.offset = wallclock.Offset(random, clocksApart)
		i.mutex.Unlock()
		return i.restart(ctx)
	})
}

func (f *faults) pause(ctx context.Context, random *rand.Rand) (bool, error) {
	return f.onProgram("pause", random, func(i *instance) error {
		process := i.running()
		if process == nil || process.HasEnded() {
			return nil
		}
		if err := syscall.Kill(process.ID(), syscall.SIGSTOP); err != nil {
			return fmt.Errorf("pausing %s: %w", i.name, err)
		}
		_ = pace.Pause(ctx, f.lasting(random))
		if err := syscall.Kill(process.ID(), syscall.SIGCONT); err != nil {
			return fmt.Errorf("continuing %s: %w", i.name, err)
		}
		return i.waitReady(ctx)
	})
}

// through disturbs a program's way to the API server.
func through(state proxy.State) disturb {
	return func(f *faults, ctx context.Context, random *rand.Rand) (bool, error) {
		return f.onProgram(string(state), random, func(i *instance) error {
			i.way.Set(state)
			_ = pace.Pause(ctx, f.lasting(random))
			// What hung or got no answer is cut: the other end may have given up.
			i.way.Set(proxy.Cut)
			i.way.Set(proxy.Open)
			return i.waitReady(ctx)
		})
	}
}

// toServers disturbs the way of clients to di-server, for less than a client repeats a call.
func toServers(state proxy.State) disturb {
	return func(f *faults, ctx context.Context, random *rand.Rand) (bool, error) {
		if !f.clients.TryLock() {
			return false, nil
		}
		defer f.clients.Unlock()
		return true, f.around(string(state), "clients", func() error {
			f.world.servers.Set(state)
			_ = pace.Pause(ctx, time.Duration(500+random.IntN(4000))*time.Millisecond)
			f.world.servers.Set(proxy.Cut)
			f.world.servers.Set(proxy.Open)
			return nil
		})
	}
}

// overload makes API Priority and Fairness refuse all requests of a program.
func (f *faults) overload(ctx context.Context, random *rand.Rand) (bool, error) {
	return f.onProgram("overload", random, func(i *instance) error {
		flow := controlplane.Refusing("soak-refuses-"+i.name, testkit.AccountName(i.account()))
		if err := f.world.eventually(ctx, "refusing "+i.name, func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(f.world.API.Create(ctx, flow))
		}); err != nil {
			return err
		}
		_ = pace.Pause(ctx, f.lasting(random))
		if err := f.world.eventually(ctx, "serving "+i.name, func(ctx context.Context) error {
			return client.IgnoreNotFound(f.world.API.Delete(ctx, flow))
		}); err != nil {
			return err
		}
		return i.waitReady(ctx)
	})
}

// crash kills a part of the control plane and starts it again.
func crash(name string) disturb {
	return func(f *faults, ctx context.Context, random *rand.Rand) (bool, error) {
		if !f.control.TryLock() {
			return false, nil
		}
		defer f.control.Unlock()
		return true, f.around("crash", name, func() error {
			return f.world.Crash(ctx, name, time.Duration(random.IntN(3000))*time.Millisecond)
		})
	}
}

// apiServers are the API servers, in the order of their addresses.
func apiServers() []string { return []string{controlplane.APIServer, controlplane.OtherAPIServer} }

func (f *faults) crashAPIServer(ctx context.Context, random *rand.Rand) (bool, error) {
	return crash(apiServers()[random.IntN(2)])(f, ctx, random)
}

// hangAPIServer pauses an API server: its clients hang, and find what it has cached old afterwards.
func (f *faults) hangAPIServer(ctx context.Context, random *rand.Rand) (bool, error) {
	if !f.control.TryLock() {
		return false, nil
	}
	defer f.control.Unlock()
	chosen := apiServers()[random.IntN(2)]
	return true, f.around("hang", chosen, func() error { return f.world.Hang(ctx, chosen, f.lasting(random)) })
}

// slowEtcd makes each request to etcd take up to a fifth of a second longer.
func (f *faults) slowEtcd(ctx context.Context, random *rand.Rand) (bool, error) {
	if !f.control.TryLock() {
		return false, nil
	}
	defer f.control.Unlock()
	return true, f.around("slow", controlplane.Etcd, func() error { return f.world.Slow(ctx, controlplane.Etcd, f.lasting(random)) })
}

// fillDisk makes etcd refuse all writes, so that the API servers answer each with an error.
func (f *faults) fillDisk(ctx context.Context, random *rand.Rand) (bool, error) {
	if !f.control.TryLock() {
		return false, nil
	}
	defer f.control.Unlock()
	return true, f.around("full", controlplane.Etcd, func() error {
		if err := f.world.Etcd().SetFull(ctx, true); err != nil {
			return err
		}
		_ = pace.Pause(ctx, f.lasting(random))
		return f.world.Etcd().SetFull(ctx, false)
	})
}

// missDeletion recreates a job while the garbage collector is cut off, and lets the API server that the collector prefers
// forget what happened: the collector then sees the new job alone, and never deletes what the old one left.
func (f *faults) missDeletion(ctx context.Context, random *rand.Rand) (bool, error) {
	if !f.control.TryLock() {
		return false, nil
	}
	defer f.control.Unlock()
	return true, f.around("missed deletion", controlplane.OtherAPIServer, func() error {
		f.world.collector.Set(proxy.Cut)
		defer f.world.collector.Set(proxy.Open)
		one, index := &user{world: f.world, random: random}, random.IntN(f.world.options.jobs)
		if err := f.world.eventually(ctx, "a job is recreated", func(ctx context.Context) error { return one.recreate(ctx, index) }); err != nil {
			return err
		}
		return f.world.Crash(ctx, controlplane.OtherAPIServer, 0)
	})
}

// compact forgets all revisions that are recorded. A program whose watch is behind has to list again.
func (f *faults) compact(ctx context.Context, _ *rand.Rand) (bool, error) {
	if !f.control.TryLock() {
		return false, nil
	}
	defer f.control.Unlock()
	revision := f.world.revision.Load()
	// etcd refuses to forget the same revisions twice.
	if revision == f.compacted {
		return false, nil
	}
	f.compacted = revision
	return true, f.around("compaction", controlplane.Etcd, func() error { return f.world.Etcd().Compact(ctx, revision) })
}

// change is something that happens to a pod.
type change func(ctx context.Context, w *world, pod *corev1.Pod, random *rand.Rand) error

// onPod does something to a living pod. That is recorded first: the programs see it only afterwards.
func onPod(what string, do change) disturb {
	return func(f *faults, ctx context.Context, random *rand.Rand) (bool, error) {
		var living []*corev1.Pod
		for _, pod := range f.world.kubelet.Pods() {
			isOurs := pod.Namespace == namespace && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
			if isOurs && !f.world.isDown(pod.Spec.NodeName) {
				living = append(living, pod)
			}
		}
		if len(living) == 0 {
			return false, nil
		}
		pod := living[random.IntN(len(living))]
		f.world.log.Add(history.Entry{Cause: &history.Cause{What: what, Pod: string(pod.UID)}})
		return true, f.world.eventually(ctx, what, func(ctx context.Context) error { return do(ctx, f.world, pod.DeepCopy(), random) })
	}
}

func remove(ctx context.Context, w *world, pod *corev1.Pod, _ *rand.Rand) error {
	return gone(w.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
}

func removeByForce(ctx context.Context, w *world, pod *corev1.Pod, _ *rand.Rand) error {
	return gone(w.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(0)))
}

// fail ends a pod with an error. A coordinator's failure would end its job, so it is deleted instead.
func fail(ctx context.Context, w *world, pod *corev1.Pod, random *rand.Rand) error {
	if names.RoleOf(pod) == names.ReplicaTypeCoordinator {
		return remove(ctx, w, pod, random)
	}
	pods.End(&pod.Status, 1)
	return gone(w.API.Status().Update(ctx, pod))
}

func evict(ctx context.Context, w *world, pod *corev1.Pod, _ *rand.Rand) error {
	pods.End(&pod.Status, 137)
	pod.Status.Reason = "Evicted"
	pods.Disrupt(&pod.Status, corev1.PodReasonTerminationByKubelet)
	return gone(w.API.Status().Update(ctx, pod))
}

// relabel changes what strangers have no business with.
func relabel(ctx context.Context, w *world, pod *corev1.Pod, random *rand.Rand) error {
	patches := []string{
		`{"metadata":{"labels":{"diengine/shard":"2-of-7"}}}`,
		`{"metadata":{"labels":{"diengine/job":"another"}}}`,
		`{"metadata":{"labels":{"replica-type":"another"}}}`,
		`{"metadata":{"annotations":{"diengine/slot":"another","diengine/rank":"1"}}}`,
		`{"metadata":{"labels":{"stranger":"was-here"},"annotations":{"stranger":"was here"}}}`,
	}
	return gone(w.API.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patches[random.IntN(len(patches))]))))
}
