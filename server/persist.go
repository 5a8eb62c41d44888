// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

// errNotYet says that what a request waits for is not there yet.
var errNotYet = errors.New("the job's Membership does not exist yet")

// persist does an attempt again until it succeeds or fails for a reason that
// does not pass, and at most until the request's time is over. A deployed
// client gives its job up at the first error status, so it is rather kept
// waiting than told of what passes.
func persist(ctx context.Context, attempt func(context.Context) error) error {
	var last error
	err := patience().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		last = attempt(ctx)
		if passes(last) {
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) {
		return failure(KindUnavailable, "the request could not be done in time, try again").because(last)
	}
	return err
}

// patience returns the delays between attempts.
func patience() wait.DelayFunc {
	return wait.Backoff{
		Duration: 20 * time.Millisecond,
		Factor:   1.6,
		Jitter:   0.5,
		Steps:    64,
		Cap:      time.Second,
	}.DelayFunc()
}

// passes tells whether an error is of a kind that goes away without anybody
// changing the request.
func passes(err error) bool {
	if err == nil {
		return false
	}
	var network net.Error
	return errors.Is(err, errNotYet) ||
		apierrors.IsConflict(err) ||
		apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) ||
		utilnet.IsConnectionRefused(err) ||
		utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) ||
		errors.As(err, &network) && network.Timeout()
}
