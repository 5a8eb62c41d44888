// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
)

const (
	// lookupsPerSecond and lookupBurst limit the live reads for one sender. The cache usually has a pod long
	// before its program calls, so few live reads are needed.
	lookupsPerSecond = 5
	lookupBurst      = 8
	// notFoundTime is how long a NotFound of the API server is cached.
	notFoundTime = 2 * time.Second
	// maxNotFound bounds the cached names.
	maxNotFound = 8192
)

// Lookups reads objects that are not yet in the cache from the API server. Senders choose these objects, so
// each sender has a rate limit and a NotFound is cached.
type Lookups struct {
	cluster  store.Cluster
	rates    *limit.Rates
	notFound *cache.LRUExpireCache
}

// lookup names an object of a type.
type lookup struct {
	kind string
	key  types.NamespacedName
}

func newLookups(options Options) *Lookups {
	return &Lookups{
		cluster:  options.Cluster,
		rates:    limit.NewRates("look-ups for one sender", lookupsPerSecond, lookupBurst),
		notFound: cache.NewLRUExpireCacheWithClock(maxNotFound, options.Clock),
	}
}

// Find reads an object from the cache, or live if the cache does not have it.
func (l *Lookups) Find(ctx context.Context, key types.NamespacedName, object client.Object) error {
	err := l.cluster.Get(ctx, key, object)
	if !apierrors.IsNotFound(err) {
		return err
	}
	return l.Look(ctx, key, object)
}

// Look reads an object live on behalf of the sender of the request.
func (l *Lookups) Look(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return l.lookFor(ctx, SenderOf(ctx), key, object)
}

// lookFor reads an object live on behalf of a sender. It retries transient failures.
func (l *Lookups) lookFor(ctx context.Context, sender *Sender, key types.NamespacedName, object client.Object) error {
	name := lookup{kind: fmt.Sprintf("%T", object), key: key}
	if known, found := l.notFound.Get(name); found {
		if notFound, isError := known.(error); isError {
			return notFound
		}
	}
	if err := l.rates.Wait(ctx, sender.Account()); err != nil {
		return err
	}
	err := store.Retry(ctx, func(ctx context.Context) error { return l.cluster.Look(ctx, key, object) })
	if apierrors.IsNotFound(err) {
		l.notFound.Add(name, err, notFoundTime)
	}
	return err
}
