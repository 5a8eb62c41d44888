// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// worker is one replica of a job whose workers find each other by rank. The
// first learner leads: it trains with everybody who announces itself.
type worker struct {
	system   System
	place    place
	task     string
	port     int
	interval time.Duration
	// leaderTimeout is how long a worker runs without hearing from the leader.
	leaderTimeout time.Duration
	// finishTimeout is how long the leader tries to tell everybody of the end.
	finishTimeout      time.Duration
	profilingsInterval time.Duration
	checkpoint         *checkpoint
	dialer             *peer.Dialer
}

func runWorker(ctx context.Context, system System, args []string) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	w := &worker{system: system}
	training := newTraining(system, flags)
	patience := newPatience(flags)
	w.checkpoint = newCheckpoint(flags)
	w.flags(flags)
	if err := system.Parse(flags, args); err != nil {
		return err
	}
	var err error
	if w.place, err = readPlace(system, w.task, w.port); err != nil {
		return err
	}
	w.dialer = peer.NewDialer(system.Dial)
	defer w.dialer.Close()
	if w.place.leads {
		return w.lead(ctx, training, patience)
	}
	return w.followLeader(ctx)
}

func (w *worker) flags(flags *flag.FlagSet) {
	flags.StringVar(&w.task, "task", "", "learner, collector or evaluator; found out by DI_<TASK>_NODES if not given")
	flags.IntVar(&w.port, "port", workerPort, "port of all workers")
	flags.DurationVar(&w.interval, "announce-interval", 2*time.Second,
		"pause between announcements to the leader, and between calls of workers that do not answer")
	flags.DurationVar(&w.leaderTimeout, "leader-timeout", 5*time.Minute,
		"time without the leader after which a worker fails")
	flags.DurationVar(&w.finishTimeout, "finish-timeout", time.Minute,
		"time for which the leader tries to tell workers of the end")
	flags.DurationVar(&w.profilingsInterval, "profilings-interval", time.Second, "least time between posts of profilings")
}

func (w *worker) identity() peer.Identity {
	return peer.Identity{
		Role: w.place.task, Name: w.system.Hostname, Rank: w.place.rank, Leads: w.place.leads, Ready: true,
	}
}

// followLeader serves the leader until it says that training has ended.
func (w *worker) followLeader(ctx context.Context) error {
	_, crew := newCrew(ctx)
	mux := peer.NewMux(w.identity)
	if w.place.task == taskLearner {
		mux.ServeLearner(&train.Local{})
	} else {
		mux.ServeCollector(train.LocalCollector{})
	}
	peer.Handle(mux, "POST /finish", func(context.Context, peer.Empty) (peer.Empty, error) {
		w.system.Log.Info("training has ended")
		crew.cancel(errDone)
		return peer.Empty{}, nil
	})
	if err := crew.serve(w.system, w.place.port, mux); err != nil {
		return crew.stop(err)
	}
	crew.start(w.announce)
	return crew.join()
}

// announce tells the leader of this worker, again and again, so that a leader
// that lost track learns of it again.
func (w *worker) announce(ctx context.Context) error {
	leader := ""
	heard := w.system.Now()
	for {
		if leader == "" {
			leader = w.findLeader(ctx)
		}
		if leader != "" {
			reception, err := w.dialer.Client(leader).Announce(ctx,
				peer.Announcement{Task: w.place.task, Rank: w.place.rank, Address: w.place.mine})
			if err == nil && reception.Finished {
				return errDone
			}
			if err == nil {
				heard = w.system.Now()
			} else {
				w.system.Log.Warn("the leader does not answer", "leader", leader, "error", err)
				leader = ""
			}
		}
		if silence := w.system.Now().Sub(heard); silence > w.leaderTimeout {
			return fmt.Errorf("leader: not heard of for %s", silence.Round(time.Second))
		}
		if err := pause(ctx, w.interval); err != nil {
			return err
		}
	}
}

// findLeader asks all other workers who they are.
func (w *worker) findLeader(ctx context.Context) string {
	for _, address := range w.place.others() {
		identity, err := w.dialer.Client(address).WhoAmI(ctx)
		if err == nil && identity.Leads {
			w.system.Log.Info("found the leader", "leader", address, "rank", identity.Rank)
			return address
		}
	}
	w.system.Log.Info("waiting for the leader")
	return ""
}

// lead trains with the workers that announce themselves and tells all of the end.
func (w *worker) lead(ctx context.Context, training *training, p *patience) error {
	profilings, err := diserver.NewProfilings(w.system.Getenv("DI_SERVER_URL"), w.system.Getenv("DI_JOB_ID"),
		w.profilingsInterval, w.system.httpClient(serverTimeout), w.system.Log)
	if err != nil {
		return fmt.Errorf("%w: DI_SERVER_URL: %w", ErrUsage, err)
	}
	if err := training.resume(w.checkpoint); err != nil {
		return err
	}
	ctx, crew := newCrew(ctx)
	f := newFlock(w, p)
	mux := peer.NewMux(w.identity)
	training.serve(mux)
	peer.Handle(mux, "POST /announce", f.receive)
	if err := crew.serve(w.system, w.place.port, mux); err != nil {
		return crew.stop(err)
	}
	go profilings.Run(ctx)
	own := &train.Local{}
	f.group.Add(w.place.mine, own)
	err = training.run(ctx, f.pool, f.group, func(p train.Progress) { profilings.Report(newProfile(p)) })
	profilings.Close()
	w.checkpoint.conclude(ctx, w.system, own, err)
	if err == nil {
		f.finish(ctx)
	}
	return crew.stop(err)
}

// serverTimeout bounds a post of profilings.
const serverTimeout = 10 * time.Second

// profile is what the job reports of itself.
type profile struct {
	Round  int     `json:"round"`
	Steps  int     `json:"steps"`
	Return float64 `json:"return"`
	// Reward is the mean return of the evaluation.
	Reward     float64 `json:"reward"`
	Target     float64 `json:"target"`
	Collectors int     `json:"collectors"`
}

func newProfile(p train.Progress) profile {
	return profile{
		Round: p.Round, Steps: p.Steps, Return: p.Return, Reward: p.Eval, Target: p.Target, Collectors: p.Collectors,
	}
}

// errUnknownTask answers workers that the leader has no use for.
var errUnknownTask = errors.New("task: want learner, collector or evaluator")
