// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// reconnectAfter is the pause before a broken watch is resumed.
const reconnectAfter = 200 * time.Millisecond

// ErrGap reports that etcd no longer has changes that were not read yet.
var ErrGap = errors.New("the history has a gap: etcd was compacted before its changes were read")

// Change is one write of a key.
type Change struct {
	// Revision is the revision of the store that the write made.
	Revision int64
	Key      string
	// Value is the new value; nil if the key was deleted. Before is the value that it had.
	Value, Before []byte
}

// Follow calls give with each change of the keys that have a prefix, from a revision on, in the order of
// revisions and without a gap. It resumes after the connection broke, and returns when the context ends, when
// give fails, or with ErrGap.
func (s Store) Follow(ctx context.Context, prefix string, from int64, give func(Change) error) error {
	f := &follower{store: s, prefix: prefix, next: from, give: give}
	for {
		if err := f.follow(ctx); err != nil {
			return err
		}
		timer := time.NewTimer(reconnectAfter)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// Revision returns the current revision of the store.
func (s Store) Revision(ctx context.Context) (int64, error) {
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err := s.call(ctx, "kv/range", map[string]any{"key": []byte("/"), "limit": 1}, &answer)
	return answer.Header.Revision, err
}

// Compact forgets all revisions before one. A watch from an earlier one then fails.
func (s Store) Compact(ctx context.Context, revision int64) error {
	return s.call(ctx, "kv/compaction", map[string]any{"revision": revision}, nil)
}

// Bytes returns the size of the values that the store has in use.
func (s Store) Bytes(ctx context.Context) (int64, error) {
	var answer struct {
		InUse int64 `json:"dbSizeInUse,string"`
	}
	err := s.call(ctx, "maintenance/status", map[string]any{}, &answer)
	return answer.InUse, err
}

// follower is a watch that is resumed where it ended.
type follower struct {
	store  Store
	prefix string
	next   int64
	give   func(Change) error
}

type watchAnswer struct {
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Result struct {
		Canceled  bool   `json:"canceled"`
		Reason    string `json:"cancel_reason"`
		Compacted int64  `json:"compact_revision,string"`
		Events    []struct {
			Type   string    `json:"type"`
			KV     watchedKV `json:"kv"`
			Before Value     `json:"prev_kv"`
		} `json:"events"`
	} `json:"result"`
}

type watchedKV struct {
	Key      []byte `json:"key"`
	Value    []byte `json:"value"`
	Revision int64  `json:"mod_revision,string"`
}

// follow reads one watch. It returns nil if the watch ended and can be resumed.
func (f *follower) follow(ctx context.Context) error {
	raw, err := json.Marshal(map[string]any{"create_request": map[string]any{
		"key": []byte(f.prefix), "range_end": append([]byte(f.prefix), 0xff), "start_revision": f.next, "prev_kv": true,
	}})
	if err != nil {
		return fmt.Errorf("etcd: watch: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.store.URL.JoinPath("v3", "watch").String(), bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("etcd: watch: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil // etcd restarts, and the watch is resumed.
	}
	defer func() { _ = response.Body.Close() }()
	answers := json.NewDecoder(response.Body)
	for {
		var answer watchAnswer
		if err := answers.Decode(&answer); err != nil {
			return nil // etcd restarts, and the watch is resumed.
		}
		if answer.Result.Compacted > 0 {
			return fmt.Errorf("%w: revision %d is wanted, %d is the first", ErrGap, f.next, answer.Result.Compacted)
		}
		if answer.Error != nil || answer.Result.Canceled {
			return nil
		}
		if err := f.take(&answer); err != nil {
			return err
		}
	}
}

func (f *follower) take(answer *watchAnswer) error {
	for i := range answer.Result.Events {
		event := &answer.Result.Events[i]
		change := Change{Revision: event.KV.Revision, Key: string(event.KV.Key), Value: event.KV.Value, Before: event.Before.Value}
		if event.Type == "DELETE" {
			change.Value = nil
		}
		if err := f.give(change); err != nil {
			return err
		}
		// All changes of a revision are in one answer.
		f.next = change.Revision + 1
	}
	return nil
}
