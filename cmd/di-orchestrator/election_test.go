// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zaptest/observer"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/test/webhooks"
)

// way is an operator's way to the API server.
type way struct {
	mutex sync.Mutex
	// writes are what its controllers have written.
	writes []string
	// noLeases has calls about Leases not be answered.
	noLeases atomic.Bool
}

func (w *way) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(request *http.Request) (*http.Response, error) {
		switch path := request.URL.Path; {
		case strings.Contains(path, "/leases"):
			if w.noLeases.Load() {
				<-request.Context().Done()
				return nil, context.Cause(request.Context())
			}
		// What every operator keeps, and Events, which tell of what was.
		case strings.Contains(path, "/secrets/"), strings.Contains(path, "/events"), strings.Contains(path, "webhookconfigurations"),
			strings.Contains(path, "/customresourcedefinitions/"):
		case request.Method != http.MethodGet:
			w.mutex.Lock()
			w.writes = append(w.writes, request.Method+" "+path)
			w.mutex.Unlock()
		}
		return next.RoundTrip(request)
	})
}

// taken returns what was written, and forgets it.
func (w *way) taken() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	writes := w.writes
	w.writes = nil
	return writes
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// candidate is an operator in this process, one of several.
type candidate struct {
	way
	address  string
	lines    *observer.ObservedLogs
	registry *prometheus.Registry
	// stop stops it, and says what it ended with.
	stop func() error
}

// startCandidate starts an operator; the API server calls the webhooks of one of them.
func startCandidate(t *testing.T, config *rest.Config, called string) *candidate {
	t.Helper()
	started := &candidate{address: freeAddress(t), registry: prometheus.NewRegistry()}
	var options operatorOptions
	options.addFlags(pflag.NewFlagSet("operator", pflag.ContinueOnError))
	options.leaderElect, options.namespace, options.probeInterval = true, names.SystemNamespace, 0
	options.metricsAddress, options.probeAddress = "0", "0"
	options.webhookAddress, options.webhookURL = started.address, "https://"+started.address
	if called != "" {
		options.webhookURL = "https://" + called
	}
	log, lines := testkit.ObserveLog()
	started.lines = lines
	config = rest.CopyConfig(config)
	config.Wrap(started.wrap)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serveOperator(ctx, config, log, &options, observers{metrics: started.registry}) }()
	started.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := started.stop(); err != nil {
			t.Errorf("the operator ends with %v", err)
		}
		if t.Failed() {
			for _, line := range lines.All() {
				t.Log(started.address, line.Time.Format(time.StampMilli), line.Message, line.ContextMap())
			}
		}
	})
	return started
}

// has is nil once an operator has logged a line so often.
func (c *candidate) has(message string, times int) func(context.Context) error {
	return func(context.Context) error {
		if found := c.lines.FilterMessageSnippet(message).Len(); found < times {
			return fmt.Errorf("it has logged that %d times", found)
		}
		return nil
	}
}

// tells reports whether an operator tells of jobs by its metrics.
func (c *candidate) tells(t *testing.T) bool {
	t.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "di_orchestrator_jobs" {
			return true
		}
	}
	return false
}

// elections are a cluster with operators one of which is elected.
type elections struct {
	config *rest.Config
	api    client.Client
}

// startAPI starts an API server that calls webhooks, for one test.
func startAPI(t *testing.T) *envtest.Environment {
	t.Helper()
	environment, err := testkit.StartAPI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := webhooks.InstallWebhooks(t.Context(), environment.Config); err != nil {
		t.Fatal(err)
	}
	return environment
}

func newElections(t *testing.T) *elections {
	t.Helper()
	environment := startAPI(t)
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	quick := rest.CopyConfig(environment.Config)
	quick.QPS, quick.WarningHandler = -1, rest.NoWarnings{}
	api, err := client.New(quick, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &elections{config: environment.Config, api: api}
}

func (e *elections) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, e.api.Get(ctx, client.ObjectKey{Namespace: names.SystemNamespace, Name: leaderElectionID}, lease)
}

// elected waits until somebody else than another one holds the Lease, and returns who.
func (e *elections) elected(t *testing.T, other string) (holder string) {
	t.Helper()
	await(t, "another operator is elected", func(ctx context.Context) error {
		lease, err := e.lease(ctx)
		if err != nil {
			return err
		}
		if holder = ptr.Deref(lease.Spec.HolderIdentity, ""); holder == "" || holder == other {
			err = fmt.Errorf("%q holds the Lease", holder)
		}
		return err
	})
	return holder
}

// give gives the Lease to somebody, whoever holds it.
func (e *elections) give(t *testing.T, holder string) {
	t.Helper()
	await(t, "the Lease is given to another", func(ctx context.Context) error {
		lease, err := e.lease(ctx)
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &metav1.MicroTime{Time: time.Now()}
		return e.api.Update(ctx, lease)
	})
}

func oldJob(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec":     map[string]any{"coordinator": podTemplate()},
	}}
}

// run creates a job, and waits until an operator has acted on it.
func (e *elections) run(t *testing.T, name string) {
	t.Helper()
	if err := e.api.Create(t.Context(), oldJob(name)); err != nil {
		t.Fatal(err)
	}
	await(t, "job "+name+" is acted on", func(ctx context.Context) error {
		found := oldJob(name)
		if err := e.api.Get(ctx, client.ObjectKeyFromObject(found), found); err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(found.Object, "status", "phase"); phase != "Created" {
			return fmt.Errorf("it is in phase %q", phase)
		}
		return nil
	})
}

// read reads a job in the version that is not stored, until it is told to stop. Then it
// says how often, and what failed.
func (e *elections) read(t *testing.T, name string) (stop func() (int, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reads, ended := 0, make(chan error, 1)
	go func() {
		for {
			found := oldJob(name)
			err := e.api.Get(ctx, client.ObjectKeyFromObject(found), found)
			if err != nil {
				if errors.Is(ctx.Err(), context.Canceled) {
					err = nil
				}
				ended <- err
				return
			}
			reads++
		}
	}()
	return func() (int, error) {
		cancel()
		err := <-ended
		return reads, err
	}
}

const lostLine = "Lost the lease"

func TestWebhooksOutliveALostLeaseAndWhoLostItCanBeElectedAgain(t *testing.T) {
	t.Parallel()
	e := newElections(t)
	first := startCandidate(t, e.config, "")
	if err := webhooks.WaitCalled(t.Context(), e.config); err != nil {
		t.Fatal(err)
	}
	e.run(t, "one")
	firstName := e.elected(t, "")
	second := startCandidate(t, e.config, first.address)
	await(t, "the second operator campaigns", second.has("Attempting to acquire leader lease", 1))
	stop := e.read(t, "one")

	// An API server that does not answer about Leases: the first one cannot renew its
	// own. All conversions are asked of it all the time.
	first.noLeases.Store(true)
	await(t, "the first operator has lost the lease", first.has(lostLine, 1))
	first.taken()
	e.elected(t, firstName)
	e.run(t, "two")
	if writes := first.taken(); len(writes) > 0 {
		t.Errorf("after it has lost the lease the first operator wrote %v", writes)
	}
	if first.tells(t) {
		t.Error("it still tells of jobs by its metrics")
	}
	await(t, "the second operator tells of jobs by its metrics", func(context.Context) error {
		if !second.tells(t) {
			return errors.New("it does not")
		}
		return nil
	})

	// Somebody takes the lease away by force.
	first.noLeases.Store(false)
	e.give(t, firstName)
	await(t, "the second operator has lost the lease", second.has(lostLine, 1))
	second.taken()
	e.run(t, "three")
	if writes := second.taken(); len(writes) > 0 {
		t.Errorf("after it has lost the lease the second operator wrote %v", writes)
	}

	reads, err := stop()
	if err != nil || reads == 0 {
		t.Errorf("of %d reads that had to be converted one failed: %v", reads, err)
	}
	t.Logf("%d reads that had to be converted", reads)

	// It is given back at once.
	if err := first.stop(); err != nil {
		t.Errorf("the first operator ends with %v", err)
	}
	if lease, err := e.lease(t.Context()); err != nil || ptr.Deref(lease.Spec.HolderIdentity, "") == firstName {
		t.Errorf("it has stopped and holds the lease: %v", err)
	}
	e.elected(t, firstName)
	if complaints := first.lines.FilterMessageSnippet("stop sequence").All(); len(complaints) > 0 {
		t.Errorf("it complains as it stops: %v", complaints)
	}
}
