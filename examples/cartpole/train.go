// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

const (
	target    = 195 // the mean reward at which CartPole counts as solved
	maxSteps  = 500
	maxRounds = 2000
	episodes  = 20
	noise     = 0.5
)

// policy pushes right if the weighted sum of the state is positive.
type policy [4]float64

// game is the work of a player: episodes with one policy.
type game struct {
	Policy policy `json:"policy"`
	Seed   uint64 `json:"seed"`
}

// player plays a game and returns its mean reward.
type player func(ctx context.Context, g game) (float64, error)

// progress is the result of a round. Reward is that of the best policy so far.
type progress struct {
	Round   int     `json:"round"`
	Reward  float64 `json:"reward"`
	Players int     `json:"players"`
	// Best is the best policy.
	Best policy `json:"best"`
	// Took is the duration of the round.
	Took time.Duration `json:"-"`
}

var errMissed = errors.New("the target was not reached")

// train climbs: in each round every player tries a random change of the best policy. Players may be
// added, removed or fail between the rounds. Training continues after the last progress of an
// earlier process, and saves its own when it is stopped.
func train(ctx context.Context, players func(context.Context) []player, report func(progress), saved checkpoint) error {
	last, err := saved.load()
	if err != nil {
		return err
	}
	if err := climb(ctx, players, report, &last); ctx.Err() != nil {
		return errors.Join(err, saved.save(last))
	} else if err != nil {
		return err
	}
	return saved.remove()
}

func climb(ctx context.Context, players func(context.Context) []player, report func(progress), last *progress) error {
	for last.Round < maxRounds && last.Reward < target {
		begun, present := time.Now(), players(ctx)
		if len(present) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(retryEvery):
			}
			continue
		}
		trials := tryAll(ctx, present, last.Best, uint64(last.Round)+1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, tried := range trials {
			if tried.reward >= last.Reward {
				last.Best, last.Reward = tried.game.Policy, tried.reward
			}
		}
		last.Round, last.Players, last.Took = last.Round+1, len(present), time.Since(begun)
		report(*last)
	}
	if last.Reward < target {
		return fmt.Errorf("%w: %.1f after %d rounds", errMissed, last.Reward, maxRounds)
	}
	return nil
}

// checkpoint is the path of a file on a volume that the next pod finds, too. Without a path nothing
// is saved.
type checkpoint string

func (c checkpoint) load() (saved progress, err error) {
	content, err := os.ReadFile(string(c))
	if errors.Is(err, fs.ErrNotExist) || c == "" {
		return progress{}, nil
	}
	if err != nil {
		return progress{}, fmt.Errorf("reading the checkpoint: %w", err)
	}
	if err := json.Unmarshal(content, &saved); err != nil {
		return progress{}, fmt.Errorf("reading the checkpoint %s: %w", c, err)
	}
	return saved, nil
}

// save replaces the file at once: a process that is killed meanwhile leaves the earlier one.
func (c checkpoint) save(last progress) error {
	if c == "" {
		return nil
	}
	content, err := json.Marshal(last)
	if err != nil {
		return fmt.Errorf("encoding the checkpoint: %w", err)
	}
	partial := string(c) + ".partial"
	if err := os.WriteFile(partial, content, 0o600); err != nil {
		return fmt.Errorf("saving the checkpoint: %w", err)
	}
	if err := os.Rename(partial, string(c)); err != nil {
		return fmt.Errorf("saving the checkpoint: %w", err)
	}
	return nil
}

func (c checkpoint) remove() error {
	if err := os.Remove(string(c)); c != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the checkpoint: %w", err)
	}
	return nil
}

type trial struct {
	game   game
	reward float64
}

// tryAll lets all players try a change concurrently. A player that fails has no result in this
// round.
func tryAll(ctx context.Context, players []player, best policy, round uint64) []trial {
	trials := make([]trial, len(players))
	var wait sync.WaitGroup
	for i, play := range players {
		random := rand.New(rand.NewPCG(round, uint64(i)))
		trials[i].game = game{Policy: best, Seed: random.Uint64()}
		for w := range best {
			trials[i].game.Policy[w] += noise * random.NormFloat64()
		}
		wait.Go(func() {
			var err error
			if trials[i].reward, err = play(ctx, trials[i].game); err != nil {
				fmt.Fprintln(os.Stderr, "a player failed:", err)
			}
		})
	}
	wait.Wait()
	return trials
}

// playHere plays in this process.
func playHere(_ context.Context, g game) (float64, error) {
	random := rand.New(rand.NewPCG(g.Seed, 0))
	steps := 0
	for range episodes {
		steps += episode(g.Policy, random)
	}
	return float64(steps) / episodes, nil
}

// episode returns the number of steps for which the pole stays up: the task of Barto, Sutton and
// Anderson (1983) with the constants and limits of CartPole-v1.
func episode(p policy, random *rand.Rand) int {
	const force, step, gravity, total, pole, half = 10, 0.02, 9.8, 1.1, 0.1, 0.5
	var s [4]float64 // position, velocity, angle, angular velocity
	for i := range s {
		s[i] = 0.1*random.Float64() - 0.05
	}
	for n := 1; n <= maxSteps; n++ {
		push := -float64(force)
		if p[0]*s[0]+p[1]*s[1]+p[2]*s[2]+p[3]*s[3] > 0 {
			push = force
		}
		sin, cos := math.Sincos(s[2])
		acceleration := (push + pole*half*s[3]*s[3]*sin) / total
		angular := (gravity*sin - cos*acceleration) / (half * (4.0/3 - pole*cos*cos/total))
		linear := acceleration - pole*half*angular*cos/total
		s = [4]float64{s[0] + step*s[1], s[1] + step*linear, s[2] + step*s[3], s[3] + step*angular}
		if math.Abs(s[0]) > 2.4 || math.Abs(s[2]) > 12*2*math.Pi/360 {
			return n
		}
	}
	return maxSteps
}
