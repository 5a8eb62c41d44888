// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"flag"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// world is what a pod knows of the data-parallel learner that it is part of.
type world struct {
	size, localSize, startRank int
	port                       int
	// masterAddress and masterPort are set where the learner spans pods.
	masterAddress string
	masterPort    int
}

// spans reports whether there are other pods to be met.
func (w world) spans() bool {
	return w.size > w.localSize
}

func readWorld(system System) (world, error) {
	var w world
	numbers := []struct {
		key      string
		into     *int
		fallback int
	}{
		{"WORLD_SIZE", &w.size, 0},
		{"LOCAL_WORLD_SIZE", &w.localSize, 0},
		{"START_RANK", &w.startRank, 0},
		{"MASTER_PORT", &w.masterPort, 0},
		{"LEARNER_PORT", &w.port, learnerPort},
	}
	for _, n := range numbers {
		value, err := system.integer(n.key, n.fallback)
		if err != nil {
			return world{}, err
		}
		*n.into = value
	}
	w.masterAddress = system.Getenv("MASTER_ADDR")
	return w, w.check()
}

func (w world) check() error {
	if w.localSize < 1 || w.startRank+w.localSize > w.size {
		return fmt.Errorf("%w: WORLD_SIZE %d, LOCAL_WORLD_SIZE %d, START_RANK %d: want at least one local rank, all below WORLD_SIZE",
			ErrUsage, w.size, w.localSize, w.startRank)
	}
	if w.spans() && (w.masterAddress == "" || w.masterPort == 0) {
		return fmt.Errorf("%w: MASTER_ADDR %q, MASTER_PORT %d: both are needed by a learner that spans pods",
			ErrUsage, w.masterAddress, w.masterPort)
	}
	return nil
}

// runDDPLearner runs one learner for each GPU of the pod, on consecutive ports.
func runDDPLearner(ctx context.Context, system System, args []string) error {
	flags := flag.NewFlagSet("ddp-learner", flag.ContinueOnError)
	interval := flags.Duration("join-interval", 2*time.Second, "pause between calls of the master")
	if err := system.Parse(flags, args); err != nil {
		return err
	}
	w, err := readWorld(system)
	if err != nil {
		return err
	}
	_, crew := newCrew(ctx)
	if w.spans() && w.startRank == 0 {
		if err := crew.serve(system, w.masterPort, newMaster(system.name(), w.size)); err != nil {
			return crew.stop(err)
		}
	}
	for local := range w.localSize {
		p := &part{system: system, world: w, rank: w.startRank + local}
		if err := p.start(crew, w.port+local, *interval); err != nil {
			return crew.stop(err)
		}
	}
	return crew.join()
}

// part is one of the learners that work as one.
type part struct {
	train.Local
	system System
	world  world
	rank   int
	met    atomic.Bool // all parts have met
}

func (p *part) start(crew *crew, port int, interval time.Duration) error {
	mux := peer.NewMux(func() peer.Identity {
		return peer.Identity{
			Role: "ddp-learner", Name: p.system.name(), Rank: p.rank, WorldSize: p.world.size, Ready: p.met.Load(),
		}
	})
	mux.ServeLearner(p)
	if err := crew.serve(p.system, port, mux); err != nil {
		return err
	}
	if !p.world.spans() {
		p.met.Store(true)
		return nil
	}
	crew.start(func(ctx context.Context) error { return p.keepJoining(ctx, interval) })
	return nil
}

// Step implements train.Learner, once all parts have met. It logs the hash of each
// step for comparison.
func (p *part) Step(ctx context.Context, r train.StepRequest) (policy.State, error) {
	if !p.met.Load() {
		return policy.State{}, fmt.Errorf("rank %d: %w", p.rank, train.ErrNotReady)
	}
	state, err := p.Local.Step(ctx, r)
	if err == nil {
		p.system.Log.Info("step made", "rank", p.rank, "round", state.Round, "hash", state.Hash())
	}
	return state, err
}

// keepJoining calls the master for as long as the process lives, so that a
// master that was restarted learns of this part again.
func (p *part) keepJoining(ctx context.Context, interval time.Duration) error {
	dialer := peer.NewDialer(p.system.Dial)
	defer dialer.Close()
	master := dialer.Client(net.JoinHostPort(p.world.masterAddress, strconv.Itoa(p.world.masterPort)))
	for {
		joined, err := master.Join(ctx, peer.Join{Rank: p.rank, WorldSize: p.world.size})
		switch {
		case err != nil && !p.met.Load():
			p.system.Log.Info("waiting for the master", "rank", p.rank, "error", err)
		case err == nil && joined.Count == p.world.size && p.met.CompareAndSwap(false, true):
			p.system.Log.Info("all parts have met", "rank", p.rank, "worldSize", p.world.size)
		}
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
}

// newMaster is where the parts of a learner that spans pods meet.
func newMaster(name string, size int) *peer.Mux {
	var mu sync.Mutex // protects ranks
	ranks := map[int]bool{}
	mux := peer.NewMux(identify("master", name))
	peer.Handle(mux, "POST /join", func(_ context.Context, j peer.Join) (peer.Joined, error) {
		if j.WorldSize != size || j.Rank < 0 || j.Rank >= size {
			return peer.Joined{}, fmt.Errorf("join: got rank %d of %d, want a rank of %d", j.Rank, j.WorldSize, size)
		}
		mu.Lock()
		defer mu.Unlock()
		ranks[j.Rank] = true
		return peer.Joined{Count: len(ranks)}, nil
	})
	return mux
}
