// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
)

const (
	// unknownTime is how long the server does not query the API server again about an address without a pod.
	// unknownGatewayTime is the same where unauthenticated calls are admitted.
	unknownTime        = 2 * time.Second
	unknownGatewayTime = 10 * time.Second
	// unknownRetention is how long the server remembers an unknown address.
	unknownRetention = 10 * time.Minute
	// maxUnknown bounds the unknown addresses that are remembered.
	maxUnknown = 8192
	// addressesPerSecond and addressBurst limit the live lists of pods by address. All senders share this
	// limit.
	addressesPerSecond = 5
	addressBurst       = 10
	// cacheInterval is how often the cache is polled for an address.
	cacheInterval = 50 * time.Millisecond
)

// Authenticator authenticates the senders of requests.
type Authenticator struct {
	options Options
	lookups *Lookups
	// reviewRates limits the token reviews of one address. strangerRates limits those of all addresses that
	// belong to no job, together.
	reviewRates, strangerRates *limit.Rates
	// listRates limits the live lists of pods by address.
	listRates *limit.Rates
	// reviews caches the results of token reviews by the hash of the token.
	reviews *cache.LRUExpireCache
	// unknown records when the API server had no pod for an address. Callers behind a gateway call once a
	// second, so the record saves many lists.
	unknown *cache.LRUExpireCache
}

func newAuthenticator(options Options, lookups *Lookups) *Authenticator {
	return &Authenticator{
		options: options, lookups: lookups,
		reviewRates:   limit.NewRates("tokens to review from one address", reviewsPerSecond, reviewBurst),
		strangerRates: limit.NewRates("tokens to review from addresses of no job", strangersPerSecond, strangerBurst),
		listRates:     limit.NewRates("addresses to look up", addressesPerSecond, addressBurst),
		reviews:       cache.NewLRUExpireCacheWithClock(maxReviews, options.Clock),
		unknown:       cache.NewLRUExpireCacheWithClock(maxUnknown, options.Clock),
	}
}

// Authenticate authenticates the sender of a request and records it in the context. It refuses unknown senders
// in ModeEnforce, and pods of no job in every mode except ModeDisabled. It runs before any step that costs API
// calls.
func (a *Authenticator) Authenticate(ctx context.Context, by *http.Request) error {
	sender := &Sender{by: byNothing, address: by.RemoteAddr}
	if a.options.Mode != ModeDisabled {
		if err := a.identify(ctx, sender, by.Header.Get("Authorization")); err != nil {
			return err
		}
	}
	if known, found := ctx.Value(requestKey{}).(*request); found {
		known.sender = sender
	}
	var refused error
	switch {
	case a.options.Mode == ModeDisabled:
	case sender.by == byNothing && a.options.Mode != ModeLegacy:
		refused = errUnknown(sender)
	case sender.user == nil && sender.pod != nil && store.JobOwner(sender.pod) == nil:
		refused = errForeign(sender)
	}
	if refused != nil {
		a.options.Metrics.count(sender, false)
	}
	return refused
}

// identify resolves a sender by its token. Without a token it resolves the sender by its address.
func (a *Authenticator) identify(ctx context.Context, sender *Sender, authorization string) error {
	if authorization != "" {
		return a.resolveToken(ctx, sender, authorization)
	}
	from, _ := netip.ParseAddrPort(sender.address)
	if !from.IsValid() {
		// For example, the peer of a Unix socket has no address.
		return nil
	}
	return a.resolveAddress(ctx, sender, from.Addr().Unmap())
}

// resolveAddress resolves a sender by its address. A container may run before the cache has its pod's address,
// so resolveAddress waits for an unknown address. The wait is bounded: it is just long enough that a job's pod
// is not refused.
func (a *Authenticator) resolveAddress(ctx context.Context, sender *Sender, address netip.Addr) error {
	if err := a.resolveCached(ctx, sender, address); err != nil || sender.by != byNothing {
		return err
	}
	if a.options.Mode == ModeLegacy && a.isGateway(address) {
		// Without this case, every call through the gateway would wait.
		return a.resolveLive(ctx, sender, address, unknownGatewayTime)
	}
	if err := a.pollCache(ctx, sender, address); err != nil || sender.by != byNothing {
		return err
	}
	if err := a.resolveLive(ctx, sender, address, unknownTime); err != nil || sender.by != byNothing {
		return err
	}
	if err := a.pollCache(ctx, sender, address); err != nil || sender.by != byNothing {
		return err
	}
	if broken := a.options.Watches.Broken(); broken > 0 {
		return failure.TimedOut(fmt.Errorf("finding the pod at %s: a watch has been broken for %s", address, broken))
	}
	return nil
}

// pollCache polls the cache for half of AddressTimeout.
func (a *Authenticator) pollCache(ctx context.Context, sender *Sender, address netip.Addr) error {
	bounded, cancel := context.WithTimeout(ctx, a.options.AddressTimeout/2)
	defer cancel()
	err := wait.PollUntilContextCancel(bounded, cacheInterval, false, func(ctx context.Context) (bool, error) {
		err := a.resolveCached(ctx, sender, address)
		return sender.by != byNothing, err
	})
	if wait.Interrupted(err) {
		return context.Cause(ctx)
	}
	return err
}

// resolveCached resolves a sender by the pods of its address in the cache.
func (a *Authenticator) resolveCached(ctx context.Context, sender *Sender, address netip.Addr) error {
	pods, err := a.options.Cluster.Pods(ctx, store.AddressIndex, address.String())
	if err != nil {
		return fmt.Errorf("finding the pod at %s: %w", address, err)
	}
	sender.resolve(pods, a.options.StrictAddresses)
	return nil
}

// isGateway reports whether the address was unknown before. By the second call, the cache would have a pod's
// address.
func (a *Authenticator) isGateway(address netip.Addr) bool {
	_, known := a.unknown.Get(address)
	return known
}

// resolveLive resolves a sender by the pods of its address in the API server. This list scans all pods, so it
// runs at most once per pause for each address.
func (a *Authenticator) resolveLive(ctx context.Context, sender *Sender, address netip.Addr, pause time.Duration) error {
	if last, known := a.unknown.Get(address); known {
		if asked, isTime := last.(time.Time); isTime && a.options.Clock.Since(asked) < pause {
			return nil
		}
	}
	if err := a.listRates.Wait(ctx, ""); err != nil {
		return err
	}
	var list corev1.PodList
	selector := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("status.podIP", address.String())}
	err := store.Retry(ctx, func(ctx context.Context) error { return a.options.Cluster.LiveList(ctx, &list, selector) })
	if err != nil {
		return fmt.Errorf("finding the pod at %s: %w", address, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		if pod := &list.Items[i]; len(store.PodAddresses(pod)) > 0 {
			pods = append(pods, pod)
		}
	}
	if sender.resolve(pods, a.options.StrictAddresses); sender.by == byNothing {
		a.unknown.Add(address, a.options.Clock.Now(), unknownRetention)
	}
	return nil
}
