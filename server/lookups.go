// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// looksPerSecond and lookBurst bound how fast one sender has the API server
	// asked for what the cache does not know. The cache knows a pod long before its
	// program calls, so that few look-ups are ever needed.
	looksPerSecond = 5
	lookBurst      = 8
	// missingTime is how long a name is taken to be nobody's once the API server
	// has said so, and the cache does not know better.
	missingTime = 2 * time.Second
	// maxMissingNames bounds how many such names are remembered.
	maxMissingNames = 8192
)

// lookups reads from the API server what the cache does not know yet. What
// senders name decides what is read, so each sender has a rate of its own, and a
// name that was not found is remembered.
type lookups struct {
	store   store
	each    *pace
	missing *cache.LRUExpireCache
}

// missingName is a name that the API server has no object of.
type missingName struct {
	kind string
	key  types.NamespacedName
}

func newLookups(store store, clock cache.Clock) *lookups {
	return &lookups{
		store:   store,
		each:    newPace("look-ups for one sender", looksPerSecond, lookBurst),
		missing: cache.NewLRUExpireCacheWithClock(maxMissingNames, clock),
	}
}

// read reads an object live on behalf of a sender, patiently.
func (l *lookups) read(ctx context.Context, sender *subject, key types.NamespacedName, object client.Object) error {
	name := missingName{kind: fmt.Sprintf("%T", object), key: key}
	if known, found := l.missing.Get(name); found {
		if missing, isError := known.(error); isError {
			return missing
		}
	}
	if err := l.each.wait(ctx, sender.account()); err != nil {
		return err
	}
	err := persist(ctx, func(ctx context.Context) error { return l.store.look(ctx, key, object) })
	if apierrors.IsNotFound(err) {
		l.missing.Add(name, err, missingTime)
	}
	return err
}
