// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model tests coordinator-led jobs against a model. It plays random requests, losses, and
// ends of the operator and of di-server. After each, the job must match a short model.
//
// API server, etcd, controllers and di-server are real. Machines and the coordinator are simulated:
// see machines and caller.
package model

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var (
	roundCount = flag.Int("model.rounds", 200, "rounds of random operations, over all jobs")
	jobCount   = flag.Int("model.jobs", 4, "jobs that are played with side by side")
	firstSeed  = flag.Uint64("model.seed", 0, "seed of the random choices, each job's a number on; 0 for another one each time")
	verbose    = flag.Bool("model.log", false, "print what operator and di-server log")
)

// cluster is the API server of all jobs.
type cluster struct {
	// operator and server are the configurations of the programs. client has all permissions.
	operator, server *rest.Config
	client           client.WithWatch
	log              logr.Logger
}

func TestJobsAreWhatTheModelSaysAfterRandomOperations(t *testing.T) {
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -model.seed=%d -model.rounds=%d -model.jobs=%d", seed, *roundCount, *jobCount)
	api := newCluster(t)
	faults, summaries := make([]error, *jobCount), make([]string, *jobCount)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for i := range faults {
		group.Go(func() {
			summaries[i], faults[i] = try(ctx, api, i, seed+uint64(i), *roundCount / *jobCount)
			if faults[i] != nil {
				cancel()
			}
		})
	}
	group.Wait()
	t.Log(strings.Join(summaries, "\n"))
	if err := errors.Join(faults...); err != nil {
		t.Errorf("%v\nreplay with -model.seed=%d -model.rounds=%d -model.jobs=%d", err, seed, *roundCount, *jobCount)
	}
}

// try plays one job until another job has failed, and reports what it played.
func try(all context.Context, api *cluster, number int, seed uint64, rounds int) (string, error) {
	ctx, cancel := context.WithCancel(all)
	defer cancel()
	t, err := newFixture(ctx, api, number, seed)
	if err != nil {
		return "", err
	}
	err = t.play(ctx, rounds)
	if all.Err() != nil {
		err = nil
	}
	cancel()
	err = errors.Join(err, t.wait())
	if err != nil {
		return t.summary(), fmt.Errorf("job %d, whose own seed is %d: %w\nhistory of its last rounds:\n%s", number, seed, err, t.tail())
	}
	return t.summary(), nil
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	log := logr.Discard()
	if *verbose {
		log = zap.New(zap.WriteTo(t.Output()), zap.UseDevMode(true))
	}
	logf.SetLogger(log)
	klog.SetLogger(log)
	environment, err := testkit.StartAPI(t.Context())
	expect.NoError(t, err)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	api, err := testkit.NewClient(environment.Config)
	expect.NoError(t, err)
	for _, name := range nodeNames() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		expect.NoError(t, api.Create(t.Context(), node))
		node.Status.Allocatable = corev1.ResourceList{names.DefaultGPU: *resource.NewQuantity(nodeGPUs, resource.DecimalSI)}
		expect.NoError(t, api.Status().Update(t.Context(), node))
	}
	made := &cluster{client: api, log: log}
	for program, config := range map[string]**rest.Config{testkit.Operator: &made.operator, testkit.Server: &made.server} {
		if *config, err = environment.As(program); err != nil {
			t.Fatal(err)
		}
	}
	return made
}
