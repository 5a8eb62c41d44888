// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// errNoSuccessor means that a leaving server has no server to hand its shards to.
var errNoSuccessor = errors.New("no other server is active that could take the shards")

// shardState is the state of a shard: how many updates each pusher has made.
type shardState map[string]int64

// shardCopy is a shard on its way to another server.
type shardCopy struct {
	Shard int        `json:"shard"`
	State shardState `json:"state"`
}

// update is one update of a pusher to a shard. Its number counts the pusher's updates to that shard.
type update struct {
	Shard  int    `json:"shard"`
	Pusher string `json:"pusher"`
	Number int64  `json:"number"`
}

// holding describes the shards of a server.
type holding struct {
	// Initialized is set once the server has held a shard.
	Initialized bool               `json:"initialized"`
	Shards      map[int]shardState `json:"shards"`
}

// paramServer holds shards of counters. It hands them over when the membership gives them to others.
type paramServer struct {
	*stateful
	// held are protected by mu. A shard in moving accepts no update.
	held        map[int]shardState
	moving      map[int]bool
	initialized bool
}

func runParamServer(ctx context.Context, p *process, args []string) error {
	flags := flag.NewFlagSet("paramserver", flag.ContinueOnError)
	s := &paramServer{stateful: newStateful(p, flags), held: map[int]shardState{}, moving: map[int]bool{}}
	if err := p.parse(flags, args); err != nil {
		return err
	}
	if err := s.join(); err != nil {
		return err
	}
	mux := newMux(identity{Name: s.name})
	handle(mux, "POST /push", func(_ context.Context, u update) (empty, error) { return empty{}, s.push(u) })
	handle(mux, "POST /take", func(_ context.Context, c shardCopy) (empty, error) { return empty{}, s.take(c) })
	handle(mux, "GET /holding", func(context.Context, empty) (holding, error) { return s.holding(), nil })
	return s.run(ctx, map[int]http.Handler{workerPort: mux}, s.follow, func(ctx context.Context) error { return s.apply(ctx, s.arrange) })
}

// push counts an update. A repeated one counts once, and a gap means that updates were lost.
func (s *paramServer) push(u update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, isHeld := s.held[u.Shard]
	switch {
	case !isHeld || s.moving[u.Shard]:
		return errNotReady
	case u.Number > state[u.Pusher]+1:
		return fmt.Errorf("%w: shard %d has %d updates of %s, and this is number %d", errDiverged, u.Shard, state[u.Pusher], u.Pusher, u.Number)
	}
	state[u.Pusher] = max(state[u.Pusher], u.Number)
	return nil
}

// take takes a shard over. A server that leaves takes none. A server that holds it has a later state.
func (s *paramServer) take(given shardCopy) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stateOf(s.list, s.name) != stateActive {
		return errNotReady
	}
	if _, isHeld := s.held[given.Shard]; !isHeld {
		s.held[given.Shard] = maps.Clone(given.State)
		if s.held[given.Shard] == nil {
			s.held[given.Shard] = shardState{}
		}
		s.initialized = true
	}
	return nil
}

func (s *paramServer) holding() holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := holding{Initialized: s.initialized, Shards: map[int]shardState{}}
	for shard, state := range s.held {
		found.Shards[shard] = maps.Clone(state)
	}
	return found
}

// arrange makes the first server create the shards of a new job, and hands over the shards that a
// membership gives to others.
func (s *paramServer) arrange(ctx context.Context, list diserver.Membership) error {
	if err := s.create(ctx, list); err != nil {
		return err
	}
	for _, shard := range s.heldShards() {
		owner, isThere := ownerOf(list, shard)
		if !isThere {
			return errNoSuccessor
		}
		if owner.Name == s.name {
			s.freeze(shard, false)
			continue
		}
		state := s.freeze(shard, true)
		if _, err := call[empty](ctx, s.client, http.MethodPost, "http://"+owner.Address+"/take", shardCopy{shard, state}); err != nil {
			return fmt.Errorf("handing shard %d to %s: %w", shard, owner.Name, err)
		}
		s.drop(shard)
	}
	return nil
}

// create creates all shards, if this is the first server and no other has ever held one.
func (s *paramServer) create(ctx context.Context, list diserver.Membership) error {
	active, leaving := serversOf(list)
	if s.holding().Initialized || len(active) == 0 || active[0].Name != s.name {
		return nil
	}
	for _, other := range slices.Concat(active[1:], leaving) {
		found, err := call[holding](ctx, s.client, http.MethodGet, "http://"+other.Address+"/holding", empty{})
		if err != nil {
			return fmt.Errorf("asking %s for shards: %w", other.Name, err)
		}
		if found.Initialized {
			return nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for shard := range shards {
		s.held[shard] = shardState{}
	}
	s.initialized = true
	return nil
}

func (s *paramServer) heldShards() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.held))
}

// freeze makes a shard accept updates or not, and returns its state.
func (s *paramServer) freeze(shard int, isMoving bool) shardState {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving[shard] = isMoving
	return maps.Clone(s.held[shard])
}

func (s *paramServer) drop(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, shard)
	delete(s.moving, shard)
}
