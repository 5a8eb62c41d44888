// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// deployment contains the replicas of a program.
type deployment struct {
	name string
	// service routes to them; nil for none.
	service *service
	// start starts one replica and returns when it is ready.
	start func(ctx context.Context) (*program.Process, error)

	replicas []*replica
	// ended is the number of replicas that exited by themselves.
	ended int
}

type replica struct {
	*program.Process
	forget func()
}

// add starts an additional replica and returns when the service, if any, routes to it.
func (d *deployment) add(ctx context.Context) error {
	one, err := d.begin(ctx)
	if err != nil {
		return err
	}
	d.replicas = append(d.replicas, one)
	return nil
}

func (d *deployment) begin(ctx context.Context) (*replica, error) {
	process, err := d.start(ctx)
	if err != nil {
		return nil, err
	}
	if d.service == nil {
		return &replica{Process: process, forget: func() {}}, nil
	}
	one := &replica{Process: process, forget: d.service.follow(process)}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, harness.Patience, true, func(context.Context) (bool, error) {
		return d.service.leadsTo(process), nil
	})
	if err != nil {
		one.forget()
		return nil, errors.Join(fmt.Errorf("waiting for a replica of the %s: %w", d.name, err), process.Stop())
	}
	return one, nil
}

// restart restarts the replicas one after the other.
func (d *deployment) restart(ctx context.Context, end func(*program.Process) error) error {
	for i := range d.replicas {
		if err := d.replace(ctx, i, end); err != nil {
			return err
		}
	}
	return nil
}

// replace ends one replica and starts it again.
func (d *deployment) replace(ctx context.Context, i int, end func(*program.Process) error) error {
	err := end(d.replicas[i].Process)
	d.replicas[i].forget()
	if err != nil {
		return fmt.Errorf("ending a replica of the %s: %w", d.name, err)
	}
	next, err := d.begin(ctx)
	if err != nil {
		// The old replica has ended, so stop must not stop it.
		d.replicas = slices.Delete(d.replicas, i, i+1)
		return err
	}
	d.replicas[i] = next
	return nil
}

// revive restarts the replicas that exited by themselves, as a cluster does.
func (d *deployment) revive(ctx context.Context) error {
	for i := range d.replicas {
		if !d.replicas[i].HasEnded() {
			continue
		}
		d.ended++
		if err := d.replace(ctx, i, (*program.Process).Kill); err != nil {
			return err
		}
	}
	return nil
}

// killed returns a function that kills a process and returns when no new connection is routed to
// it.
func killed(ctx context.Context) func(*program.Process) error {
	return func(process *program.Process) error {
		if err := process.Kill(); err != nil {
			return err
		}
		return pace.Pause(ctx, endpointDelay)
	}
}

// stop stops all replicas concurrently.
func (d *deployment) stop() error {
	ended := make(chan error)
	for _, one := range d.replicas {
		go func() {
			err := one.Stop()
			one.forget()
			ended <- err
		}()
	}
	var err error
	for range d.replicas {
		err = errors.Join(err, <-ended)
	}
	d.replicas = nil
	return err
}
