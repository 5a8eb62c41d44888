// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/di-sim/internal/incluster"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// clusterOptions are the flags of cluster mode.
type clusterOptions struct {
	isOn bool
	// factor is how many simulated seconds pass in a real one, and life after how many of them another
	// operator starts.
	factor float64
	life   int
}

const (
	// reportInterval is the interval of a job's reports, in seconds: that of the simulator's rounds.
	reportInterval = 60
	maxFactor      = 1000
)

func (o *clusterOptions) addFlags(flags *flag.FlagSet) {
	flags.BoolVar(&o.isOn, "cluster", false, "run each policy in the operator as well, against an API server with simulated nodes; KUBEBUILDER_ASSETS names its programs")
	flags.Float64Var(&o.factor, "factor", 120, "with -cluster: simulated seconds in a real one")
	flags.IntVar(&o.life, "operator-life", 0, "with -cluster: simulated seconds after which another operator takes over; 0 for never")
}

// check refuses flags that cluster mode does not support.
func (o *clusterOptions) check(all *options) error {
	if !(o.factor >= 1 && o.factor <= maxFactor) {
		return fmt.Errorf("-factor is %g: must be from 1 to %d", o.factor, maxFactor)
	}
	if o.life < 0 {
		return fmt.Errorf("-operator-life is %d: must be 0 or more", o.life)
	}
	if !o.isOn {
		return nil
	}
	for _, policy := range all.policies {
		if policy.Baseline != nil {
			return fmt.Errorf("-policy %s: must be a policy of the operator with -cluster, goodput or fit", policy.Name)
		}
	}
	if all.settings.Rules.Lose > 0 || all.check || all.goals {
		return errors.New("-cluster: must be without -lose, -check and -goals")
	}
	return nil
}

// addCluster runs the policies of simulated outcomes in the operator, and returns all outcomes. Each comes
// after the one that it is compared with.
func addCluster(traces *experiment.Traces, o *options, simulated []*experiment.Outcome, progress io.Writer) ([]*experiment.Outcome, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	var all []*experiment.Outcome
	for _, outcome := range simulated {
		workloads, err := traces.Workloads(outcome.Load, o.workloads)
		if err != nil {
			return nil, err
		}
		measured, err := runCluster(ctx, o, outcome, workloads, progress)
		if err != nil {
			return nil, fmt.Errorf("-cluster, policy %s: %w", nameOf(outcome), err)
		}
		fmt.Fprintf(progress, "%s: the mean in the operator is %.3f of the simulator's\n", nameOf(outcome), measured.RatioTo(outcome))
		all = append(all, outcome, measured)
	}
	return all, nil
}

// runCluster runs the policy and row of an outcome in the operator.
func runCluster(ctx context.Context, o *options, of *experiment.Outcome, workloads []experiment.Workload, progress io.Writer) (*experiment.Outcome, error) {
	policy, err := experiment.FindPolicy(of.Policy)
	if err != nil {
		return nil, err
	}
	row := simulator.Row{Fixed: true}
	if policy.IsReporting {
		if row, err = experiment.FindRow(of.Row); err != nil {
			return nil, err
		}
	}
	measured := &experiment.Outcome{Policy: of.Policy, Row: of.Row, Load: of.Load, Cluster: &experiment.Cluster{Factor: o.cluster.factor}}
	var carried []time.Duration
	for i := range workloads {
		result, err := incluster.Run(ctx, o.settings.Jobs(&workloads[i]), incluster.Options{
			Rules: o.settings.Rules, Policy: policy.Allocation(o.settings), PolicyName: policy.Name, Row: row, Factor: o.cluster.factor,
			ReportInterval: reportInterval, OperatorLife: o.cluster.life, Clock: clock.RealClock{},
			Show: func(state incluster.State) {
				fmt.Fprintf(progress, "%s, %s, second %d: %d jobs submitted, %d train, %d done %s\n",
					nameOf(of), workloads[i].Name, state.Now, state.Submitted, state.Training, state.Done, state.Unsettled)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", workloads[i].Name, err)
		}
		measured.Workloads, measured.Results = append(measured.Workloads, workloads[i].Name), append(measured.Results, &result.Result)
		measured.Cluster.Took += result.Took
		measured.Cluster.Slow += result.Slow
		carried = append(carried, result.Carried...)
	}
	measured.Summary = simulator.Summarize(measured.Results...)
	measured.Cluster.CarriedP50, measured.Cluster.CarriedP99 = simulator.Percentile(carried, 50), simulator.Percentile(carried, 99)
	return measured, nil
}
