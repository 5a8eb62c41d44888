// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

const (
	// OperatorMemoryLimit is that of config/operator, and serverMemoryLimit that of config/server.
	OperatorMemoryLimit = "GOMEMLIMIT=690MiB"
	serverMemoryLimit   = "GOMEMLIMIT=460MiB"
	// garbage is the garbage collector's target in a deployment. The environment of a build may have another.
	garbage = "GOGC=100"
	// These settings enable Kubernetes' own gangs.
	podGroupGate = "GenericWorkload=true"
	gangGate     = "GangScheduling=true"
	podGroupAPI  = "scheduling.k8s.io/v1alpha2=true"
)

// Operator is a running operator with the addresses of its profiles and metrics.
type Operator struct {
	*program.Process
	Pprof, Metrics string
	quota          *quota
}

// Programs are the running programs.
type Programs struct {
	world *World
	// Operators are in the order in which they were started. The first is the leader.
	Operators        []*Operator
	Webhooks, Server *program.Process
	// Pprof are the addresses of profiles of the webhooks and the scheduler.
	Pprof struct{ Webhooks, Scheduler string }

	foreign []*program.Process
}

// start starts the programs, except for the operators.
func (p *Programs) start(ctx context.Context, o *Options) (err error) {
	if o.Scheduler == Real {
		if err := errors.Join(p.startScheduler(ctx, o.Gangs), p.startManager(ctx, o.Gangs)); err != nil {
			return err
		}
	}
	if p.Pprof.Webhooks, _, err = program.FreeAddresses(ctx); err != nil {
		return err
	}
	p.Webhooks, err = p.run(ctx, UserWebhooks, "webhook", OperatorMemoryLimit, func(address string) []string {
		return []string{"--webhook-address", address, "--webhook-url", "https://" + address, "--pprof-address", p.Pprof.Webhooks}
	})
	if err != nil || !o.Server {
		return err
	}
	p.Server, err = p.run(ctx, UserServer, "server", serverMemoryLimit, func(address string) []string {
		return []string{"--address", address, "--tls-address="}
	})
	return err
}

// StartOperator starts one more operator with sections of the configuration, which may use so many processors; all when the
// quota is 0. It returns when the operator's caches are synced.
func (p *Programs) StartOperator(ctx context.Context, quota float64, configuration string, flags ...string) (_ *Operator, err error) {
	started := &Operator{}
	if started.Pprof, started.Metrics, err = program.FreeAddresses(ctx); err != nil {
		return nil, err
	}
	if quota > 0 {
		if started.quota, err = newQuota(fmt.Sprintf("operator-%d", len(p.Operators))); err != nil {
			return nil, err
		}
	}
	if configuration != "" {
		flag, err := testkit.Configuration(p.world.Folder, configuration)
		if err != nil {
			return nil, err
		}
		// A file of the caller's own comes later, and replaces this one.
		flags = append([]string{flag}, flags...)
	}
	flags = append(flags, "--pprof-address", started.Pprof, "--metrics-address", started.Metrics)
	if started.Process, err = p.run(ctx, UserOperator, "operator", OperatorMemoryLimit, func(string) []string { return flags }); err != nil {
		return nil, err
	}
	p.Operators = append(p.Operators, started)
	if quota > 0 {
		err = started.quota.add(started.Process)
	}
	return started, err
}

// Limit limits each operator to a share of a processor.
func (p *Programs) Limit(share float64) error {
	var err error
	for _, each := range p.Operators {
		if each.quota != nil {
			err = errors.Join(err, each.quota.limit(share))
		}
	}
	return err
}

// StopOperators stops the operators that run, without limits.
func (p *Programs) StopOperators() error {
	var err error
	for _, each := range p.Operators {
		err = errors.Join(err, each.end((*program.Process).Stop))
	}
	p.Operators = nil
	return err
}

func (o *Operator) end(how func(*program.Process) error) error {
	var err error
	if o.quota != nil {
		err = o.quota.lift()
	}
	if !o.HasEnded() {
		err = errors.Join(err, how(o.Process))
	}
	if o.quota != nil {
		err = errors.Join(err, o.quota.remove())
	}
	return err
}

// All returns the running programs by name.
func (p *Programs) All() map[string][]*program.Process {
	all := map[string][]*program.Process{}
	for _, each := range p.Operators {
		all["operator"] = append(all["operator"], each.Process)
	}
	for name, each := range map[string]*program.Process{"webhooks": p.Webhooks, "di-server": p.Server} {
		if each != nil {
			all[name] = []*program.Process{each}
		}
	}
	return all
}

// kill kills all programs.
func (p *Programs) kill() error {
	var err error
	for _, each := range p.Operators {
		err = errors.Join(err, each.end((*program.Process).Kill))
	}
	for _, each := range append(p.foreign, p.Webhooks, p.Server) {
		if each != nil {
			err = errors.Join(err, each.Kill())
		}
	}
	return err
}

func (p *Programs) run(ctx context.Context, user, name, memoryLimit string, flags func(address string) []string) (*program.Process, error) {
	kubeconfig, err := p.world.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	return program.Start(ctx, &program.Command{
		Binary: p.world.Binary, Name: name, Folder: p.world.Folder, Environment: []string{kubeconfig, memoryLimit, garbage}, Flags: flags,
	})
}

// startForeign starts a program of Kubernetes without leader election. It has no limit of requests: the
// defaults, 50 and 20 a second, would be what is measured.
func (p *Programs) startForeign(ctx context.Context, name, user string, flags ...string) error {
	binary, err := program.BuildCluster(ctx, name)
	if err != nil {
		return err
	}
	kubeconfig, err := p.world.Kubeconfig(user)
	if err != nil {
		return err
	}
	_, path, _ := strings.Cut(kubeconfig, "=")
	common := []string{"--kubeconfig=" + path, "--leader-elect=false", "--kube-api-qps=5000", "--kube-api-burst=10000"}
	started, err := program.StartForeign(ctx, p.world.Folder, binary, append(common, flags...)...)
	if err != nil {
		return err
	}
	p.foreign = append(p.foreign, started)
	return nil
}

// startScheduler starts kube-scheduler. Everyone on this machine may read its profiles.
func (p *Programs) startScheduler(ctx context.Context, gangs bool) (err error) {
	if p.Pprof.Scheduler, _, err = program.FreeAddresses(ctx); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(p.Pprof.Scheduler)
	if err != nil {
		return fmt.Errorf("address of the scheduler: %w", err)
	}
	flags := []string{"--bind-address=" + host, "--secure-port=" + port, "--authorization-always-allow-paths=/debug/pprof/*"}
	if gangs {
		flags = append(flags, "--feature-gates="+podGroupGate+","+gangGate)
	}
	return p.startForeign(ctx, "kube-scheduler", UserScheduler, flags...)
}

// startManager starts the controllers of Kubernetes, without those that would miss the kubelets and the keys of
// tokens.
func (p *Programs) startManager(ctx context.Context, gangs bool) error {
	flags := []string{"--secure-port=0", "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-serviceaccount-token-controller"}
	if gangs {
		flags = append(flags, "--feature-gates="+podGroupGate)
	}
	return p.startForeign(ctx, "kube-controller-manager", UserManager, flags...)
}
