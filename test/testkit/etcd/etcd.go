// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcd reads and writes the store of an API server directly. It stores thousands of jobs in
// seconds and returns objects exactly as stored.
package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const (
	// batch is the number of objects in one write; etcd accepts 1.5 MB.
	batch = 100
	// page is the number of objects in one read.
	page = 500
)

// Store is an etcd server.
type Store struct {
	// URL is the URL for clients.
	URL *url.URL
}

// Job returns the key of a job.
func Job(namespace, name string) string {
	return "/registry/" + v2alpha1.GroupName + "/dijobs/" + namespace + "/" + name
}

// Value is what is stored at a key.
type Value struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Get reads one value.
func (s Store) Get(ctx context.Context, key string) ([]byte, error) {
	found, err := s.find(ctx, map[string]any{"key": []byte(key)})
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("etcd has %d values at %s, expected 1", len(found), key)
	}
	return found[0].Value, nil
}

// Each calls give for all values whose keys have the prefix, ordered by key.
func (s Store) Each(ctx context.Context, prefix string, give func(Value) error) error {
	from, end := []byte(prefix), append([]byte(prefix), 0xff)
	for {
		found, err := s.find(ctx, map[string]any{"key": from, "range_end": end, "limit": page})
		if err != nil {
			return err
		}
		for _, value := range found {
			if err := give(value); err != nil {
				return err
			}
		}
		if len(found) < page {
			return nil
		}
		from = slices.Concat(found[len(found)-1].Key, []byte{0})
	}
}

// Put writes values in batches.
func (s Store) Put(ctx context.Context, values []Value) error {
	for first := 0; first < len(values); first += batch {
		var puts []any
		for _, value := range values[first:min(first+batch, len(values))] {
			puts = append(puts, map[string]any{"requestPut": value})
		}
		if err := s.call(ctx, "kv/txn", map[string]any{"success": puts}, nil); err != nil {
			return err
		}
	}
	return nil
}

// SetFull raises or clears the alarm of a member whose quota is used up, as when its disk is full: etcd then refuses
// everything that needs space.
func (s Store) SetFull(ctx context.Context, isFull bool) error {
	action := "DEACTIVATE"
	if isFull {
		action = "ACTIVATE"
	}
	return s.call(ctx, "maintenance/alarm", map[string]any{"action": action, "alarm": "NOSPACE"}, nil)
}

func (s Store) find(ctx context.Context, what map[string]any) ([]Value, error) {
	var found struct {
		KVs []Value `json:"kvs"`
	}
	err := s.call(ctx, "kv/range", what, &found)
	return found.KVs, err
}

// call calls etcd through its JSON gateway.
func (s Store) call(ctx context.Context, method string, message, into any) (err error) {
	raw, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL.JoinPath("v3", method).String(), bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", method, response.Status)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("etcd: %s: %w", method, err)
	}
	return nil
}
