// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
	"opendilab.org/di-orchestrator/internal/promapi"
)

// Meter reads what pods used, for all callers of a server.
type Meter struct{ prometheus *promapi.Client }

// NewMeter returns a Meter that asks the Prometheus with the address.
func NewMeter(address string) (*Meter, error) {
	prometheus, err := promapi.New(address)
	return &Meter{prometheus}, err
}

// Curves returns what the pods of a job used since it was created, also those that are gone.
func (m *Meter) Curves(ctx context.Context, job *v2alpha1.DIJob, now time.Time) ([]api.Curve, error) {
	over := spanOf(job, now)
	queries := queriesOf(job, over.Step)
	found := make([][]api.Curve, len(queries))
	all, ctx := errgroup.WithContext(ctx)
	for i, one := range queries {
		all.Go(func() error {
			read, err := m.prometheus.Curves(ctx, one.text, over, mostRoles)
			found[i] = shown(read, one)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, explained(err)
	}
	return append([]api.Curve{}, slices.Concat(found...)...), nil
}

// shown returns curves as the page gets them, by role.
func shown(all []promapi.Curve, of query) []api.Curve {
	curves := make([]api.Curve, 0, len(all))
	for _, read := range all {
		curve := api.Curve{
			Name: strings.TrimSpace(read.Labels["role"] + " " + of.name), Kind: pages.KindUsage, Unit: of.unit, Points: make([][2]float64, 0, len(read.Points)),
		}
		for _, point := range read.Points {
			curve.Points = append(curve.Points, [2]float64{float64(point.At.UnixMilli()), point.Value / of.one})
		}
		if len(curve.Points) > 0 {
			curves = append(curves, curve)
		}
	}
	slices.SortFunc(curves, func(a, b api.Curve) int { return cmp.Compare(a.Name, b.Name) })
	return curves
}

// explained says why Prometheus has no answer. The cause itself names its address, or series of others.
func explained(err error) error {
	var failed *promapi.UpstreamError
	if !errors.As(err, &failed) {
		return err
	}
	var timeout net.Error
	switch {
	case errors.As(failed.Cause, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: it takes too long", err)
	case errors.As(failed.Cause, new(*net.DNSError)):
		return fmt.Errorf("%w: its host is not found", err)
	case errors.Is(failed.Cause, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: the connection is refused", err)
	case errors.As(failed.Cause, new(*tls.CertificateVerificationError)):
		return fmt.Errorf("%w: its certificate is not trusted", err)
	}
	return err
}
