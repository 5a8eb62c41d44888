// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/webhooks"
)

// startAPI starts an API server that calls webhooks, for one test.
func startAPI(t *testing.T) *testkit.API {
	t.Helper()
	environment, err := testkit.StartAPI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := webhooks.InstallConfigurations(t.Context(), environment.Config); err != nil {
		t.Fatal(err)
	}
	return environment
}

// writeKubeconfigs returns a folder with a kubeconfig for each program's service account, which has the
// program's name.
func writeKubeconfigs(t *testing.T, environment *testkit.API, others ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, program := range append([]string{testkit.Operator, testkit.Server, testkit.Webhook}, others...) {
		user, err := testkit.Account(environment.Environment, program)
		if err != nil {
			t.Fatal(err)
		}
		content, err := user.KubeConfig()
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, program), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// elections are a cluster with webhooks and several operators, where one operator is the leader.
type elections struct {
	api         client.Client
	kubeconfigs string
}

func newElections(t *testing.T) *elections {
	t.Helper()
	environment := startAPI(t)
	e := &elections{kubeconfigs: writeKubeconfigs(t, environment)}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	quick := rest.CopyConfig(environment.Config)
	quick.QPS, quick.WarningHandler = -1, rest.NoWarnings{}
	if e.api, err = client.NewWithWatch(quick, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return e
}

// startCandidate starts an operator that serves its metrics and campaigns for the Lease.
func (e *elections) startCandidate(t *testing.T) (candidate *process, metricsURL string) {
	t.Helper()
	address := freeAddress(t)
	return start(t, e.kubeconfigs, nil, "operator", "--leader-elect", "--metrics-address="+address, "--probe-address=0", configured(t, "operator: {probeInterval: 0s}")),
		"http://" + address + "/metrics"
}

func (e *elections) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, e.api.Get(ctx, client.ObjectKey{Namespace: names.SystemNamespace, Name: leaderElectionID}, lease)
}

// leader waits until an operator other than the given one holds the Lease, and returns its
// identity.
func (e *elections) leader(t *testing.T, other string) (holder string) {
	t.Helper()
	await(t, "another operator is the leader", func(ctx context.Context) error {
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

// give overwrites the holder of the Lease.
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
	// The API server sees the address of the webhooks some time after they have published it.
	await(t, "job "+name+" is admitted", func(ctx context.Context) error { return e.api.Create(ctx, oldJob(name)) })
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

// read polls a job in the version that is not stored until stop is called. stop returns the number
// of reads and the first failure.
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

// reportsJobs reports whether an operator exports the metric of jobs.
func reportsJobs(t *testing.T, url string) bool {
	t.Helper()
	var text []byte
	await(t, "the metrics are served", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		text, err = io.ReadAll(response.Body)
		return errors.Join(err, response.Body.Close())
	})
	return strings.Contains(string(text), "di_orchestrator_jobs{")
}

const campaigningLine = "Attempting to acquire leader lease"

func (p *process) logs(t *testing.T, line string) {
	t.Helper()
	await(t, "it logs "+line, func(context.Context) error {
		if !strings.Contains(p.log(), line) {
			return errors.New("it does not")
		}
		return nil
	})
}

func TestAnOperatorThatLosesItsLeaseEndsAndAnotherActsWhileWebhooksServe(t *testing.T) {
	t.Parallel()
	e := newElections(t)
	first, firstMetrics := e.startCandidate(t)
	first.logs(t, "Waiting for the webhooks to convert jobs")
	hooks := startWebhooks(t, e.kubeconfigs)
	e.run(t, "one")
	e.leader(t, "")
	second, secondMetrics := e.startCandidate(t)
	second.logs(t, campaigningLine)
	if !reportsJobs(t, firstMetrics) || reportsJobs(t, secondMetrics) {
		t.Error("only the leader reports jobs by its metrics")
	}
	stop := e.read(t, "one")

	e.give(t, "another")
	if err := first.command.Wait(); err == nil || !strings.Contains(first.log(), "leader election lost") {
		t.Errorf("the operator that lost its Lease ends with %v", err)
	}
	leader := e.leader(t, "another")
	e.run(t, "two")
	if !reportsJobs(t, secondMetrics) {
		t.Error("the new leader does not report jobs by its metrics")
	}

	third, _ := e.startCandidate(t)
	third.logs(t, campaigningLine)
	if err := second.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	leader = e.leader(t, leader)
	e.run(t, "three")

	// An operator that stops releases the Lease.
	third.stop(t)
	if lease, err := e.lease(t.Context()); err != nil || ptr.Deref(lease.Spec.HolderIdentity, "") == leader {
		t.Errorf("it has stopped and holds the Lease: %v", err)
	}
	reads, err := stop()
	if err != nil || reads == 0 {
		t.Errorf("one of %d reads that had to be converted failed: %v", reads, err)
	}
	hooks.stop(t)
}
