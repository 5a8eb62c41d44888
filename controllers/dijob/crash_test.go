// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

var errCrashed = errors.New("the operator has crashed")

// crashAfter makes every call fail after the given number of writes.
func crashAfter(writes int) interceptor.Funcs {
	// A channel counts the writes, because they run in parallel.
	left := make(chan struct{}, writes)
	for range writes {
		left <- struct{}{}
	}
	take := func() error {
		select {
		case <-left:
			return nil
		default:
			return errCrashed
		}
	}
	alive := func() error {
		if len(left) == 0 {
			return errCrashed
		}
		return nil
	}
	funcs := intercept(func(_ string, _ client.Object, write func() error) error {
		if err := take(); err != nil {
			return err
		}
		return write()
	})
	funcs.Get = func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		return errors.Join(alive(), next.Get(ctx, key, object, options...))
	}
	funcs.List = func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		return errors.Join(alive(), next.List(ctx, list, options...))
	}
	return funcs
}

// drive runs a job until it has finished. It replaces an operator that crashes after the given number of
// writes with a new one. It reports whether an operator crashed.
func (s *space) drive(ctx context.Context, writes int, move func()) (crashed bool) {
	s.operator = s.newOperator(crashAfter(writes))
	for range 60 {
		if err := s.settle(ctx); err != nil {
			Expect(err).To(MatchError(errCrashed))
			crashed = true
			s.operator = s.newOperator(interceptor.Funcs{})
			continue
		}
		if state.IsFinished(&s.job(ctx).Status) {
			return crashed
		}
		move()
	}
	Fail(fmt.Sprintf("the job does not come to its end, crashing after %d writes: %+v", writes, s.job(ctx).Status))
	return crashed
}

// crashesAtOnce is how many operators crash concurrently. Each waits for the API server most of the time.
const crashesAtOnce = 8

// crashStride reduces the writes that an operator crashes after. The slow tests try each write.
var crashStride = flag.Int("crash.stride", 4, "crash after every so many-th write; 1 for each")

// afterEachWrite runs a job with an operator that crashes after its first write, its second, and so on,
// until one does not crash. With a stride, the seed of the run selects the first write. Runs therefore
// differ and are repeatable.
func afterEachWrite(run func(writes int) (crashed bool)) {
	begin := 1 + int(GinkgoRandomSeed())%*crashStride
	for first := begin; ; first += crashesAtOnce * *crashStride {
		crashed := make([]bool, crashesAtOnce)
		var group sync.WaitGroup
		for i := range crashed {
			group.Go(func() {
				defer GinkgoRecover()
				crashed[i] = run(first + i**crashStride)
			})
		}
		group.Wait()
		if slices.Contains(crashed, false) {
			return
		}
	}
}

var _ = Describe("An operator that crashes after any of its writes", func() {
	It("leaves a worker-led job whole", func(ctx SpecContext) {
		afterEachWrite(func(writes int) bool {
			By(fmt.Sprintf("crashing after %d writes", writes))
			s := newSharedSpace(ctx)
			s.submitWorkers(ctx, 1)
			crashed := s.drive(ctx, writes, func() { s.moveWorkers(ctx) })
			status := s.job(ctx).Status
			Expect(status.Phase).To(Equal(v2alpha1.JobSucceeded))
			Expect(status.Restarts).To(BeEquivalentTo(1))
			Expect(status.CompletedRanks).To(Equal("0-2"))
			Expect(s.podNames(ctx)).To(ConsistOf("job-learner-0", "job-collector-0", "job-collector-1"))
			Expect(s.services(ctx)).To(BeEmpty())
			Expect(s.configMaps(ctx)).To(BeEmpty())
			s.expectOneNodes()
			Expect(s.created).To(Equal(map[string]int{
				"*v1.Service di-job": 1, "*v1.Pod job-learner-0": 2, "*v1.Pod job-collector-0": 2, "*v1.Pod job-collector-1": 2,
			}))
			return crashed
		})
	})

	It("leaves a coordinator-led job whole", func(ctx SpecContext) {
		afterEachWrite(func(writes int) bool {
			By(fmt.Sprintf("crashing after %d writes", writes))
			s := newLed(ctx, "")
			crashed := s.drive(ctx, writes, s.ledMoves(ctx))
			Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
			Expect(s.podNames(ctx)).To(ConsistOf("job-coordinator"))
			Expect(s.services(ctx)).To(BeEmpty())
			for object, times := range s.created {
				Expect(times).To(Equal(1), object)
			}
			// The Membership, five pods and the replacement of the lost collector, with their services.
			Expect(s.created).To(HaveLen(1 + 2*6))
			return crashed
		})
	})
})

// moveWorkers makes a collector fail once, and then all pods succeed.
func (s *space) moveWorkers(ctx context.Context) {
	status := s.job(ctx).Status
	switch {
	case status.Phase != v2alpha1.JobRunning:
		s.run(ctx)
	case status.Restarts == 0:
		s.end(ctx, "job-collector-1", 1)
	default:
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
	}
}

// ledMoves makes a coordinator run, request replicas, lose a collector and succeed.
func (s *space) ledMoves(ctx context.Context) func() {
	moves := []func(){
		func() { s.run(ctx) },
		func() { s.askForReplicas(ctx) },
		func() { s.run(ctx) },
		func() {
			pod := &corev1.Pod{}
			pod.Namespace, pod.Name = s.name, s.replicaPods(ctx)[0]
			Expect(shared.api.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		},
		func() { s.run(ctx) },
		func() { s.end(ctx, "job-coordinator", 0) },
	}
	return func() {
		moves[0]()
		moves = moves[1:]
	}
}

// expectOneNodes removes the ConfigMap of addresses from the created objects. It was created once, because
// all attempts use the same one.
func (s *space) expectOneNodes() {
	GinkgoHelper()
	before := len(s.created)
	maps.DeleteFunc(s.created, func(what string, times int) bool {
		return times == 1 && strings.HasPrefix(what, "*v1.ConfigMap di-job-nodes-")
	})
	Expect(before - len(s.created)).To(Equal(1))
}
