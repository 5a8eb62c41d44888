// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// initial is the initial number of replicas of a worker-led job.
const initial = 3

// workers is a worker-led job whose first pod runs at its own address and calls di-server.
type workers struct{ caller }

func newWorkers(ctx context.Context) *workers {
	GinkgoHelper()
	w := &workers{submit(ctx, v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{
		Type: v2alpha1.TaskTypeCollector, Name: "collector", Replicas: ptr.To[int32](initial),
	}}})}
	w.expect(ctx, initial)
	w.runPod(ctx, names.WorkerPod(w.key.Name, "collector", 0))
	return w
}

// call calls di-server as deployed clients do. It uses a new connection, retries after a connection
// error, and never after an answer. It returns the answer's data.
func (w *workers) call(ctx context.Context, url, method, path, body string, headers ...string) (json.RawMessage, error) {
	var data json.RawMessage
	err := diserver.Retry(ctx, time.Second, func() error {
		request, err := http.NewRequestWithContext(ctx, method, url+"/v2alpha1/job/"+w.key.Namespace+".job.0/"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		data, err = diserver.Send(w.http(headers), request)
		return err
	})
	return data, err
}

// resize requests a change of the number of replicas.
func (w *workers) resize(ctx context.Context, url string, by int, headers ...string) error {
	method := http.MethodPost
	if by < 0 {
		method, by = http.MethodDelete, -by
	}
	_, err := w.call(ctx, url, method, "replicas", fmt.Sprintf(`{"replicas":%d}`, by), headers...)
	return err
}

func (w *workers) job(ctx context.Context) *v2alpha1.DIJob {
	GinkgoHelper()
	var job v2alpha1.DIJob
	Expect(shared.live.Get(ctx, w.key, &job)).To(Succeed())
	return &job
}

// expect waits until the status of the job reports exactly the given number of replicas, current and
// last, and the job has as many pods.
func (w *workers) expect(ctx context.Context, replicas int) {
	GinkgoHelper()
	Eventually(func() []int {
		job := w.job(ctx)
		if job.Status.Scaling == nil {
			return nil
		}
		return []int{int(job.Status.Replicas), int(job.Status.Scaling.LastReplicas), w.pods(ctx)}
	}).Should(HaveEach(replicas))
}

var _ = Describe("A worker", func() {
	It("outlives ten seconds without API server", func(ctx SpecContext) {
		outlive(ctx, func(ctx context.Context, url string) outage {
			jobs := []*workers{newWorkers(ctx), newWorkers(ctx), newWorkers(ctx)}
			return outage{
				want: fmt.Sprintf(`["%s:22270","",""]`, jobs[0].address),
				list: func() (string, error) {
					data, err := jobs[0].call(ctx, url, http.MethodGet, "replicas", "")
					return string(data), err
				},
				writes: []func() error{
					func() error { return jobs[0].report(ctx, url) },
					func() error { return jobs[1].resize(ctx, url, 2) },
					func() error { return jobs[2].resize(ctx, url, -1) },
				},
				check: func() {
					GinkgoHelper()
					Expect(jobs[0].job(ctx).Status.Profilings.Raw).To(MatchJSON(`{"loss":[0.5,null]}`))
					jobs[1].expect(ctx, initial+2)
					jobs[2].expect(ctx, initial-1)
				},
			}
		})
	})

	It("is answered once when the API server's answer is lost on its way to the server", func(ctx SpecContext) {
		way := newGateway(shared.account)
		served := newServer(ctx, way.url, server.Times{}).waitReady()
		job := newWorkers(ctx)
		for _, by := range []int{3, -1, -1, 4} {
			way.lost.Store(1)
			Expect(job.resize(ctx, served.url, by)).To(Succeed())
			Expect(way.lost.Load()).To(BeZero(), "it was written twice")
		}
		way.lost.Store(1)
		Expect(job.report(ctx, served.url)).To(Succeed())
		Expect(way.lost.Load()).To(BeNumerically("<", 1))
		job.expect(ctx, initial+5)
	})

	It("gets all that it asks for of two servers while the operator and others write the job", func(ctx SpecContext) {
		one, two := newServer(ctx, shared.account.Host, server.Times{}), newServer(ctx, shared.account.Host, server.Times{})
		servers := []*running{one.waitReady(), two.waitReady()}
		job := newWorkers(ctx)
		all := newCalls()
		const writers, rounds = 6, 4
		for writer := range writers {
			url := servers[writer%2].url
			all.call(func() error {
				for round := range rounds {
					if err := job.resize(ctx, url, 2, names.HeaderIdempotencyKey, fmt.Sprint("more ", writer, round)); err != nil {
						return err
					}
					if _, err := job.call(ctx, url, http.MethodPost, "profilings", `{"round":`+strconv.Itoa(round)+`}`); err != nil {
						return err
					}
				}
				return job.resize(ctx, url, -1, names.HeaderIdempotencyKey, fmt.Sprint("fewer ", writer))
			})
		}
		all.wait()
		job.expect(ctx, initial+writers*(2*rounds-1))
		Eventually(func() []byte { return job.job(ctx).Status.Profilings.Raw }).Should(MatchJSON(`{"round":3}`))
	})
})

// report posts the job's profilings.
func (w *workers) report(ctx context.Context, url string) error {
	_, err := w.call(ctx, url, http.MethodPost, "profilings", `{"loss":[0.5,null]}`)
	return err
}
