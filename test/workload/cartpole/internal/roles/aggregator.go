// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// aggregator presents the parts of a data-parallel learner as one learner.
type aggregator struct {
	*following
	system System
	api    *diserver.Client
	dialer *peer.Dialer
	crew   *crew
	roster *roster

	mu       sync.Mutex // protects all below
	parts    map[string]peer.Identity
	ensemble train.Ensemble // nil until all parts are connected
	listed   []string       // the list that the ensemble was made of, sorted
}

func runAggregator(ctx context.Context, system System, args []string) error {
	flags := flag.NewFlagSet("aggregator", flag.ContinueOnError)
	a := &aggregator{
		system: system, following: newFollowing(flags, 3*time.Second, time.Minute), parts: map[string]peer.Identity{},
	}
	if err := system.Parse(flags, args); err != nil {
		return err
	}
	port, err := system.integer("AGGREGATOR_PORT", aggregatorPort)
	if err != nil {
		return err
	}
	if a.api, err = a.client(system); err != nil {
		return err
	}
	a.dialer = peer.NewDialer(system.Dial)
	defer a.dialer.Close()
	_, a.crew = newCrew(ctx)
	a.roster = a.following.roster(system, a.dialer, a.joined, a.left)
	mux := peer.NewMux(a.identity)
	mux.ServeLearner(a)
	if err := a.crew.serve(system, port, mux); err != nil {
		return a.crew.stop(err)
	}
	a.crew.start(a.follow)
	return a.crew.join()
}

func (a *aggregator) identity() peer.Identity {
	e, err := a.complete()
	return peer.Identity{Role: "aggregator", Name: a.system.name(), WorldSize: len(e), Ready: err == nil}
}

// follow reads the list of parts for as long as the process lives.
func (a *aggregator) follow(ctx context.Context) error {
	for {
		if err := a.look(ctx); err != nil {
			if ctx.Err() != nil || a.strict && !diserver.IsLater(err) {
				return err
			}
			a.system.Log.Warn("could not follow di-server's list", "error", err)
		}
		if err := pause(ctx, a.interval); err != nil {
			return err
		}
	}
}

func (a *aggregator) look(ctx context.Context) error {
	if failed := a.roster.failed(); len(failed) > 0 {
		if err := a.api.ReportFailed(ctx, diserver.Failed{Learners: podNames(failed)}); err != nil {
			return fmt.Errorf("report failed learners: %w", err)
		}
		a.system.Log.Warn("reported as failed", "learners", podNames(failed))
		a.roster.forget(failed)
	}
	list, err := a.api.OfAggregator(ctx)
	if err != nil {
		return fmt.Errorf("read di-server's list: %w", err)
	}
	if err := a.checkList(list.Learners); err != nil {
		return err
	}
	if err := a.roster.sync(ctx, a.crew, list.Learners); err != nil {
		return err
	}
	a.assemble(list.Learners)
	return nil
}

// checkList ends a strict aggregator whose list loses a part, or changes at all
// once it is complete: the deployed one cannot deal with that. Else a change
// takes the ensemble apart.
func (a *aggregator) checkList(listed []string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	listed = slices.Sorted(slices.Values(listed))
	if a.strict {
		for url := range a.parts {
			if !slices.Contains(listed, url) {
				return fmt.Errorf("strict mode: learner %s vanished from the aggregator's list", url)
			}
		}
	}
	if a.ensemble == nil || slices.Equal(listed, a.listed) {
		return nil
	}
	if a.strict {
		return fmt.Errorf("strict mode: the aggregator's list changed from %v to %v", a.listed, listed)
	}
	a.ensemble = nil
	return nil
}

func (a *aggregator) joined(url string, identity peer.Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[url] = identity
}

func (a *aggregator) left(url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.parts, url)
	a.ensemble = nil
}

// assemble makes the ensemble, in the order of ranks, once each rank of the world
// is listed and connected.
func (a *aggregator) assemble(listed []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ensemble != nil || len(listed) == 0 || len(a.parts) != len(listed) {
		return
	}
	ensemble := make(train.Ensemble, len(listed))
	for url, part := range a.parts {
		if part.WorldSize != len(listed) || part.Rank >= len(listed) || ensemble[part.Rank].Learner != nil {
			a.system.Log.Warn("learners do not add up", "url", url, "rank", part.Rank, "worldSize", part.WorldSize, "listed", len(listed))
			return
		}
		ensemble[part.Rank] = train.Member{Name: url, Learner: a.dialer.Client(url)}
	}
	a.ensemble, a.listed = ensemble, slices.Sorted(slices.Values(listed))
	a.system.Log.Info("all parts are connected", "worldSize", len(ensemble))
}

func (a *aggregator) complete() (train.Ensemble, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ensemble == nil {
		return nil, fmt.Errorf("%w: %d parts are connected", train.ErrNotReady, len(a.parts))
	}
	return a.ensemble, nil
}

// State implements train.Learner.
func (a *aggregator) State(ctx context.Context) (policy.State, error) {
	e, err := a.complete()
	if err != nil {
		return policy.State{}, err
	}
	return e.State(ctx)
}

// Step implements train.Learner. It is where the parts are compared.
func (a *aggregator) Step(ctx context.Context, r train.StepRequest) (policy.State, error) {
	e, err := a.complete()
	if err != nil {
		return policy.State{}, err
	}
	state, err := e.Step(ctx, r)
	if errors.Is(err, train.ErrDiverged) {
		a.system.Log.Error("the parts do not agree", "error", err)
	}
	if err == nil {
		a.system.Log.Info("step made", "round", state.Round, "worldSize", len(e), "hash", state.Hash())
	}
	return state, err
}
