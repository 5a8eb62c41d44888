// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/admissionprobe"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/jobs"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// userOthers is the user of calls of other clients.
const userOthers = "bench-others"

const (
	namespace = "default"
	// jobBytes is the size of a job with three roles, each with a pod template.
	jobBytes = 7_000
)

// world is an API server, two operators, and two replicas of the webhooks behind the Service
// through which the API server calls them.
type world struct {
	*harness.World
	bench     *bench
	hooks     *service
	webhooks  *deployment
	operators *deployment
	// calls is the Service of servers, if there are any.
	calls   *service
	servers *deployment
	// others calls the API server without a rate limit or retries.
	others *caller
}

// newWorld starts a world without webhooks and operators. The caller stops it.
func (b *bench) newWorld(ctx context.Context, options *controlplane.Options) (_ *world, err error) {
	options.Users = []string{harness.UserOperator, harness.UserWebhooks, harness.UserServer, userOthers}
	plane, err := b.NewWorld(options)
	if err != nil {
		return nil, err
	}
	w := &world{World: plane, bench: b}
	defer func() {
		if err != nil {
			harness.Close(&err, w.stop)
		}
	}()
	user, err := w.User(userOthers)
	if err != nil {
		return nil, err
	}
	if w.others, err = newCaller(user.Config()); err != nil {
		return nil, err
	}
	if w.hooks, err = startService(ctx, false); err != nil {
		return nil, err
	}
	w.webhooks = &deployment{name: "webhooks", service: w.hooks, start: func(ctx context.Context) (*program.Process, error) {
		return w.StartWebhooks(ctx, w.hooks.address())
	}}
	w.operators = &deployment{name: "operator", start: func(ctx context.Context) (*program.Process, error) {
		return w.StartOperator(ctx, append([]string{"--leader-elect"}, strings.Fields(b.operatorFlags)...)...)
	}}
	return w, nil
}

// newRunning starts a world with two replicas of the webhooks and two operators. The caller stops it.
func (b *bench) newRunning(ctx context.Context) (*world, error) {
	w, err := b.newWorld(ctx, &controlplane.Options{})
	if err != nil {
		return nil, err
	}
	start := func() error {
		if err := w.InstallWebhooks(ctx); err != nil {
			return err
		}
		if err := w.startOperators(ctx); err != nil {
			return err
		}
		return w.waitAdmitted(ctx)
	}
	if err := start(); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

// startOperators starts two replicas of the webhooks and two operators, and returns when
// they are ready.
func (w *world) startOperators(ctx context.Context) error {
	w.Say("starting two replicas of the webhooks and two operators")
	for _, of := range []*deployment{w.webhooks, w.webhooks, w.operators, w.operators} {
		if err := of.add(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitAdmitted returns when the API server calls the webhooks for a job.
func (w *world) waitAdmitted(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, harness.Patience, true, func(ctx context.Context) (bool, error) {
		last = admissionprobe.Probe(ctx, w.API, namespace)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until jobs are admitted: %w", errors.Join(err, last))
	}
	return nil
}

// stop stops everything.
func (w *world) stop() (err error) {
	defer harness.Close(&err, w.Stop)
	for _, one := range []*service{w.hooks, w.calls} {
		if one != nil {
			defer harness.Close(&err, one.close)
		}
	}
	for _, one := range []*deployment{w.servers, w.operators, w.webhooks} {
		if one != nil {
			err = errors.Join(err, one.stop())
		}
	}
	return err
}

// makeJobs creates jobs at v1alpha1.
func (w *world) makeJobs(ctx context.Context, count int) error {
	w.Say("creating %d jobs", count)
	for i := range count {
		job, err := newJob(jobName(i), jobBytes)
		if err != nil {
			return err
		}
		if err := w.API.Create(ctx, job); err != nil {
			return fmt.Errorf("creating job %s: %w", job.GetName(), err)
		}
	}
	return nil
}

// newJob returns a job at v1alpha1 of about the given size, without a status.
func newJob(name string, size int) (*unstructured.Unstructured, error) {
	raw, err := jobs.Of(namespace, name, size)
	if err != nil {
		return nil, err
	}
	job := &unstructured.Unstructured{}
	if err := job.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decoding a job: %w", err)
	}
	unstructured.RemoveNestedField(job.Object, "status")
	return job, nil
}

func jobName(i int) string {
	return fmt.Sprintf("job-%05d", i)
}

// caller calls the API server without retries. Kubernetes' clients would retry in the background
// when the API server requests it.
type caller struct {
	http *http.Client
	url  string
}

func newCaller(config *rest.Config) (*caller, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("URL of the API server: %w", err)
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("HTTP client: %w", err)
	}
	return &caller{http: http, url: strings.TrimSuffix(base.String(), "/")}, nil
}

// pathOf returns the API path of a job in a version, or of all jobs if the name is empty.
func pathOf(version, name string) string {
	return strings.TrimSuffix("/apis/"+v2alpha1.GroupName+"/"+version+"/namespaces/"+namespace+"/dijobs/"+name, "/")
}

// do makes one call, which must succeed, and returns the answer.
func (c *caller) do(ctx context.Context, method, path, kind string, body []byte) (_ []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("calling: %w", err)
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("calling: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s: %s", response.Status, messageOf(answer))
	}
	return answer, nil
}

// messageOf returns the message in an error answer of the API server.
func messageOf(answer []byte) string {
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil || status.Message == "" {
		return fmt.Sprintf("%.300q", answer)
	}
	return status.Message
}

// get, list, create and label make a call of their kind for jobs of a version.
func (c *caller) get(ctx context.Context, version, name string) error {
	_, err := c.do(ctx, http.MethodGet, pathOf(version, name), "", nil)
	return err
}

func (c *caller) list(ctx context.Context, version string, limit int) error {
	_, err := c.do(ctx, http.MethodGet, fmt.Sprintf("%s?limit=%d", pathOf(version, ""), limit), "", nil)
	return err
}

// label patches a label of a job with a new value each time.
func (c *caller) label(ctx context.Context, version, name string, number int) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"touched":"%d"}}}`, number)
	_, err := c.do(ctx, http.MethodPatch, pathOf(version, name), "application/merge-patch+json", patch)
	return err
}

// create creates a job as a dry run.
func (c *caller) create(ctx context.Context, number int) error {
	raw, err := jobs.Of(namespace, fmt.Sprintf("unstored-%d", number), jobBytes)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodPost, pathOf(v1alpha1.Version, "")+"?dryRun=All", "application/json", raw)
	return err
}
