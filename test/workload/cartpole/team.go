// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// retryEvery is the pause before a process that failed is called again.
	retryEvery = time.Second
	// attempts is the number of failed calls in a row after which a process is lost.
	attempts = 5
)

// player plays units, learner makes steps.
type (
	player interface {
		play(ctx context.Context, u unit) ([]int, error)
	}
	learner interface {
		step(ctx context.Context, request stepRequest) (state, error)
		// last returns the state after the last step, the zero value before the first.
		last(ctx context.Context) (state, error)
	}
)

// local plays and learns in this process.
type local struct {
	mu   sync.Mutex // protects held
	held state
}

func (l *local) play(_ context.Context, u unit) ([]int, error) {
	return u.play(), nil
}

func (l *local) step(_ context.Context, request stepRequest) (state, error) {
	next, err := request.step()
	if err != nil {
		return state{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = next
	return next, nil
}

func (l *local) last(context.Context) (state, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, nil
}

// team is a changing set of processes. One that fails is left out for a while.
type team[T any] struct {
	// lost is called once per loss, with a member that failed too often in a row. It
	// may remove the member; one that stays is retried without end.
	lost func(name string, err error)

	mu      sync.Mutex // protects members
	members map[string]*member[T]
}

type member[T any] struct {
	name, task string
	does       T
	failures   int
	retryAt    time.Time
}

// add makes a process a member, in place of one of the same name.
func (t *team[T]) add(name, task string, does T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.members == nil {
		t.members = map[string]*member[T]{}
	}
	t.members[name] = &member[T]{name: name, task: task, does: does}
}

func (t *team[T]) remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.members, name)
}

// count is the number of members of a task.
func (t *team[T]) count(task string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	count := 0
	for _, m := range t.members {
		if m.task == task {
			count++
		}
	}
	return count
}

// ready returns the members of a task that have not just failed.
func (t *team[T]) ready(task string) []*member[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*member[T]
	for _, m := range t.members {
		if m.task == task && !time.Now().Before(m.retryAt) {
			all = append(all, m)
		}
	}
	return all
}

// record counts the failures of a member. One that is not ready yet waits, but is
// never lost.
func (t *team[T]) record(m *member[T], err error) {
	t.mu.Lock()
	if err != nil {
		m.retryAt = time.Now().Add(retryEvery)
	}
	switch {
	case err == nil:
		m.failures = 0
	case !errors.Is(err, errNotReady):
		m.failures++
	}
	isLost := err != nil && m.failures == attempts && !errors.Is(err, errNotReady)
	t.mu.Unlock()
	if isLost && t.lost != nil {
		t.lost(m.name, err)
	}
}

// Tasks of the members of a training.
const (
	taskCollector = "collector"
	taskEvaluator = "evaluator"
	taskLearner   = "learner"
)

// playAll has units played and returns their returns in the order of the units. It
// waits for players as long as ctx lasts.
func playAll(ctx context.Context, team *team[player], units []unit) ([][]int, error) {
	returns := make([][]int, len(units))
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("wait for collectors: %w", err)
		}
		missing := make(chan int, len(units))
		for i := range units {
			if returns[i] == nil {
				missing <- i
			}
		}
		close(missing)
		if len(missing) == 0 {
			return returns, nil
		}
		present := playersFor(team, units[0])
		var wait sync.WaitGroup
		for _, m := range present {
			wait.Go(func() { playMissing(ctx, team, m, units, missing, returns) })
		}
		wait.Wait()
		if len(present) == 0 {
			_ = pause(ctx, retryEvery) // the end of ctx is found next
		}
	}
}

// playersFor returns who plays such units. Collectors evaluate where no evaluator
// does.
func playersFor(team *team[player], u unit) []*member[player] {
	if u.Evaluate {
		if evaluators := team.ready(taskEvaluator); len(evaluators) > 0 {
			return evaluators
		}
	}
	return team.ready(taskCollector)
}

// playMissing has a member play units until none is left or one fails.
func playMissing(ctx context.Context, team *team[player], m *member[player], units []unit, missing <-chan int, returns [][]int) {
	for i := range missing {
		played, err := m.does.play(ctx, units[i])
		if ctx.Err() != nil {
			return
		}
		team.record(m, err)
		if err != nil {
			return
		}
		returns[i] = played
	}
}

// stepAll has all learners make a step, of which one suffices. It waits for one as
// long as ctx lasts. Learners that answer must agree bit by bit.
func stepAll(ctx context.Context, team *team[learner], request stepRequest) (state, error) {
	for {
		next, found, err := stepOnce(ctx, team, request)
		if err != nil || found {
			return next, err
		}
		if err := pause(ctx, retryEvery); err != nil {
			return state{}, fmt.Errorf("wait for learners: %w", err)
		}
	}
}

func stepOnce(ctx context.Context, team *team[learner], request stepRequest) (next state, found bool, err error) {
	present := team.ready(taskLearner)
	states, errs := make([]state, len(present)), make([]error, len(present))
	var wait sync.WaitGroup
	for i, m := range present {
		wait.Go(func() { states[i], errs[i] = m.does.step(ctx, request) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return state{}, false, ctx.Err()
	}
	for i, m := range present {
		switch {
		case errors.Is(errs[i], errDiverged):
			return state{}, false, errs[i]
		case errs[i] == nil && found && states[i] != next:
			return state{}, false, diverged(next, states[i], m.name)
		case errs[i] == nil:
			next, found = states[i], true
		}
		team.record(m, errs[i])
	}
	return next, found, nil
}

func diverged(one, other state, name string) error {
	return fmt.Errorf("%w: after round %d learner %s has hash %s, another one %s", errDiverged, other.Round, name, other.hash(), one.hash())
}

// heldState returns the state that learners hold, so a new driver of the training
// continues where another one stopped. It waits until a learner holds a state, enough
// learners hold none, or ctx ends; the zero value is none.
func heldState(ctx context.Context, team *team[learner], enough int) state {
	for {
		without := 0
		for _, m := range team.ready(taskLearner) {
			held, err := m.does.last(ctx)
			if err == nil && held.Round > 0 {
				return held
			}
			if err == nil {
				without++
			}
		}
		if without >= enough || pause(ctx, retryEvery) != nil {
			return state{}
		}
	}
}
