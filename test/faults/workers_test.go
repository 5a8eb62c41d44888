// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/proxy"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// initial is how many replicas a workers job is made with.
const initial = 3

// workers is a worker-led job, the first of whose pods runs at an address of
// its own and calls di-server.
type workers struct {
	key     client.ObjectKey
	address string
}

func newWorkers(ctx context.Context) *workers {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(shared.live.Create(ctx, namespace)).To(Succeed())
	template := v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(`{"spec":{"containers":[{"name":"di-container","image":"di"}]}}`)}}
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "job"},
		Spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{
			Type: v2alpha1.TaskTypeCollector, Name: "collector", Replicas: ptr.To[int32](initial), Template: template,
		}}},
	}
	Expect(shared.live.Create(ctx, job)).To(Succeed())
	n := shared.addresses.Add(1)
	w := &workers{key: client.ObjectKeyFromObject(job), address: fmt.Sprintf("127.7.%d.%d", n/200, n%200+1)}
	w.expect(ctx, initial)
	var pod corev1.Pod
	Expect(shared.live.Get(ctx, client.ObjectKey{Namespace: w.key.Namespace, Name: names.WorkerPod("job", "collector", 0)}, &pod)).To(Succeed())
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP, pod.Status.PodIPs = w.address, []corev1.PodIP{{IP: w.address}}
	Expect(shared.live.Status().Update(ctx, &pod)).To(Succeed())
	return w
}

// call makes a call as deployed clients do: by a connection of its own, again
// where that breaks, and never after an answer. It returns the answer's data.
func (w *workers) call(ctx context.Context, url, method, path, body string, headers ...string) (json.RawMessage, error) {
	through := &http.Client{Transport: withHeaders{&http.Transport{DialContext: proxy.DialFrom(w.address), DisableKeepAlives: true}, headers}}
	var reply struct {
		Success bool
		Message string
		Data    json.RawMessage
	}
	err := diserver.Retry(ctx, time.Second, func() error {
		request, err := http.NewRequestWithContext(ctx, method, url+"/v2alpha1/job/"+w.key.Namespace+".job.0/"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		response, err := through.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
		content, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return &diserver.StatusError{Method: method, Path: path, Message: string(content), Status: response.StatusCode}
		}
		return json.Unmarshal(content, &reply)
	})
	if err == nil && !reply.Success {
		err = &diserver.LaterError{Method: method, Path: path, Message: reply.Message}
	}
	return reply.Data, err
}

// resize asks for so many replicas more, or fewer.
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

// expect waits until the job has exactly so many pods, as the operator made
// of what is wanted.
func (w *workers) expect(ctx context.Context, replicas int) {
	GinkgoHelper()
	Eventually(func() []int {
		var pods corev1.PodList
		Expect(shared.live.List(ctx, &pods, client.InNamespace(w.key.Namespace))).To(Succeed())
		alive := 0
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp == nil {
				alive++
			}
		}
		job := w.job(ctx)
		if job.Status.Scaling == nil {
			return nil
		}
		return []int{int(job.Status.Replicas), int(job.Status.Scaling.LastReplicas), alive}
	}).WithTimeout(patience).Should(HaveEach(replicas))
}

var _ = Describe("A worker", func() {
	It("outlives ten seconds without API server", func(ctx SpecContext) {
		var outages sync.WaitGroup
		for _, kind := range []proxy.State{proxy.Cut, proxy.BlackHole} {
			way := newProxy(ctx, apiAddress())
			served := newServer(ctx, "https://"+way.Address(), server.Times{Call: 2 * time.Second, BrokenWatch: 3 * time.Second}).waitReady()
			jobs := []*workers{newWorkers(ctx), newWorkers(ctx), newWorkers(ctx)}
			outages.Go(func() {
				defer GinkgoRecover()
				outliveAsWorkers(ctx, kind, way, served, jobs)
			})
		}
		outages.Wait()
	})

	It("is answered once when the API server's answer is lost on its way to the server", func(ctx SpecContext) {
		way := newGateway(shared.config)
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
		one, two := newServer(ctx, shared.config.Host, server.Times{}), newServer(ctx, shared.config.Host, server.Times{})
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
		Eventually(func() []byte { return job.job(ctx).Status.Profilings.Raw }).WithTimeout(patience).Should(MatchJSON(`{"round":3}`))
	})
})

// outliveAsWorkers breaks the way to the API server while workers call: one
// polls, the others write.
func outliveAsWorkers(ctx context.Context, kind proxy.State, way *proxy.Proxy, served *running, jobs []*workers) {
	GinkgoHelper()
	all, polled, stop := newCalls(), atomic.Int32{}, make(chan struct{})
	all.call(func() error {
		for {
			data, err := jobs[0].call(ctx, served.url, http.MethodGet, "replicas", "")
			if diserver.IsLater(err) {
				continue
			}
			if want := fmt.Sprintf(`["%s:22270","",""]`, jobs[0].address); err == nil && string(data) != want {
				err = fmt.Errorf("got %s, want %s", data, want)
			}
			if err != nil {
				return err
			}
			polled.Add(1)
			select {
			case <-stop:
				return nil
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	Eventually(polled.Load).WithTimeout(patience).Should(BeNumerically(">", 3))
	way.Set(kind)
	all.call(func() error { return jobs[0].report(ctx, served.url) })
	all.call(func() error { return jobs[1].resize(ctx, served.url, 2) })
	all.call(func() error { return jobs[2].resize(ctx, served.url, -1) })
	Consistently(func() []any { return []any{len(all.errors), all.done.Load()} }, "10s", "100ms").Should(Equal([]any{0, int32(0)}), string(kind))
	way.Set(proxy.Open)
	held := polled.Load()
	Eventually(polled.Load).WithTimeout(patience).Should(BeNumerically(">", held+3))
	close(stop)
	all.wait()
	Expect(jobs[0].job(ctx).Status.Profilings.Raw).To(MatchJSON(`{"loss":[0.5,null]}`))
	jobs[1].expect(ctx, initial+2)
	jobs[2].expect(ctx, initial-1)
}

// report reports what the job has learnt.
func (w *workers) report(ctx context.Context, url string) error {
	_, err := w.call(ctx, url, http.MethodPost, "profilings", `{"loss":[0.5,null]}`)
	return err
}
