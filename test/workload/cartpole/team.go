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
	// retryEvery is the pause before a failed process is called again.
	retryEvery = time.Second
	// attempts is the number of consecutive failed calls after which a process is lost.
	attempts = 5
)

// player plays units. learner takes steps.
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
	// minUnit is the least time that a unit takes.
	minUnit time.Duration

	mu   sync.Mutex // protects held
	held state
}

func (l *local) play(ctx context.Context, u unit) ([]int, error) {
	returns := u.play()
	return returns, pause(ctx, l.minUnit)
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

// team is a changing set of processes. A failed process is skipped for a while.
type team[T any] struct {
	// lost is called once per loss, with a member that failed too often in a row. It may remove the
	// member. A member that remains is retried indefinitely.
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

// add adds a process as a member. It replaces a member of the same name.
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

// record counts the failures of a member. A member that is not ready waits, but is never lost.
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

// These are the tasks of the members of a training.
const (
	taskCollector = "collector"
	taskEvaluator = "evaluator"
	taskLearner   = "learner"
)

// playAll lets the team play units and returns the results in the order of the units. It waits for
// players until ctx ends.
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
			_ = pause(ctx, retryEvery) // the next iteration detects the end of ctx
		}
	}
}

// playersFor returns the members that play such units. Collectors evaluate if there is no
// evaluator.
func playersFor(team *team[player], u unit) []*member[player] {
	if u.Evaluate {
		if evaluators := team.ready(taskEvaluator); len(evaluators) > 0 {
			return evaluators
		}
	}
	return team.ready(taskCollector)
}

// playMissing lets a member play units until none is left or one fails.
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

// stepAll lets all learners take a step. One answer suffices. It waits for a learner until ctx
// ends. The states of all answers must be bitwise equal.
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

// heldState returns the state that learners have, so that a new driver of the training continues
// where another one stopped. It waits until a learner has a state, enough learners have none, or
// ctx ends. The zero value is no state.
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
