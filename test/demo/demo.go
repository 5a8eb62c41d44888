// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo installs the operator by its chart into the cluster of the kubeconfig, trains the
// CartPole example jobs there in both API versions, and reports their progress. `make demo` runs it
// for people. The end-to-end tests run it for its assertions.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Options configure the demo.
type Options struct {
	// Config is the configuration of the cluster's clients.
	Config *rest.Config
	// Kubectl is the path of kubectl.
	Kubectl string
	// Helm is the path of Helm.
	Helm string
	// Root is the root folder of the checkout.
	Root string
	// History adds the history of jobs, and shows it at the end.
	History bool
	// Out receives the output for people.
	Out io.Writer
	// Terminal reports whether Out is a terminal whose lines may be redrawn.
	Terminal bool
}

// Demo is one run of the demo.
type Demo struct {
	Options
	client client.Client
	core   kubernetes.Interface
	clock  clock.PassiveClock
}

// New returns a demo that is ready to run.
func New(options Options) (*Demo, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	api, err := client.New(options.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	core, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client for logs: %w", err)
	}
	return &Demo{Options: options, client: api, core: core, clock: clock.RealClock{}}, nil
}

// Run installs the operator, submits the jobs, follows them until they have finished and prints a
// table of them. It returns the results. It returns an error if a job did not succeed or cannot be
// read in the other version.
func (d *Demo) Run(ctx context.Context) ([]Result, error) {
	if err := d.Install(ctx); err != nil {
		return nil, err
	}
	jobs, err := d.Submit(ctx)
	if err != nil {
		return nil, err
	}
	results, err := d.Follow(ctx, jobs)
	if err != nil {
		d.printTable(results)
		return results, err
	}
	d.step("Each job, read in the version that it was not written in")
	for i := range results {
		if err := d.readOther(ctx, &results[i]); err != nil {
			return results, err
		}
	}
	d.printTable(results)
	if err := failures(results); err != nil || !d.History {
		return results, err
	}
	return results, d.remember(ctx, &results[0])
}

// failures returns an error that names every job that did not succeed.
func failures(results []Result) error {
	var errs []error
	for _, result := range results {
		if result.Phase != v2alpha1.JobSucceeded {
			errs = append(errs, fmt.Errorf("job %s ended in phase %s, want %s", result.Name, result.Phase, v2alpha1.JobSucceeded))
		}
	}
	return errors.Join(errs...)
}

// readOther reads a job in the version in which it was not written and checks that it has the same
// phase there.
func (d *Demo) readOther(ctx context.Context, result *Result) error {
	key := client.ObjectKey{Namespace: result.Namespace, Name: result.Name}
	if result.Version == v2alpha1.Version {
		var job v1alpha1.DIJob
		if err := d.client.Get(ctx, key, &job); err != nil {
			return fmt.Errorf("reading job %s as %s: %w", result.Name, v1alpha1.Version, err)
		}
		fmt.Fprintf(d.Out, "  %-24s written as %s, read as %s: phase %s, %d roles in replicaStatus\n",
			result.Name, result.Version, v1alpha1.Version, job.Status.Phase, len(job.Status.ReplicaStatus))
		return samePhase(result, string(job.Status.Phase))
	}
	var job v2alpha1.DIJob
	if err := d.client.Get(ctx, key, &job); err != nil {
		return fmt.Errorf("reading job %s as %s: %w", result.Name, v2alpha1.Version, err)
	}
	fmt.Fprintf(d.Out, "  %-24s written as %s, read as %s: phase %s, %s, %d tasks\n",
		result.Name, result.Version, v2alpha1.Version, job.Status.Phase, job.Spec.Lifecycle, len(job.Spec.Tasks))
	return samePhase(result, string(job.Status.Phase))
}

func samePhase(result *Result, phase string) error {
	if phase != string(result.Phase) {
		return fmt.Errorf("job %s: phase %q in the other version, want %q", result.Name, phase, result.Phase)
	}
	return nil
}

func (d *Demo) step(format string, args ...any) {
	fmt.Fprintf(d.Out, "\n==> "+format+"\n", args...)
}
