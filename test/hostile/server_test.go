// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build hostile

package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
)

// refusals are the outcomes of callers who are not allowed to call.
var refusals = []string{"401", "403", noAnswer}

// onServer are attacks on di-server from pods of no job, pods of other jobs, pods of the job itself
// and addresses of no pod.
func onServer() []attack {
	asStranger := func(m message) func(context.Context, *world, int) string {
		return func(ctx context.Context, w *world, attacker int) string {
			return w.fromPod(ctx, fmt.Sprintf("stranger-%d", attacker), m)
		}
	}
	asNobody := func(m message) func(context.Context, *world, int) string {
		return func(ctx context.Context, w *world, attacker int) string {
			sent := m
			sent.from, sent.url = unusedAddress(attacker), "http://"+w.server.Address+m.url
			return send(ctx, &sent)
		}
	}
	lookUps, reports := &lookUps{}, &reports{}
	victim := "namespace=" + bystanders + "&coordinator=" + names.CoordinatorPod("job-0")
	body := func(members string) []byte {
		return fmt.Appendf(nil, `{"namespace":%q,"coordinator":%q,%s}`, bystanders, names.CoordinatorPod("job-0"), members)
	}
	return []attack{
		{name: "a pod of no job reads nothing", gets: refusals, step: asStranger(message{method: "GET", url: "/v1alpha1/replicas?" + victim})},
		{name: "a pod of no job creates nothing", gets: refusals, step: asStranger(message{method: "POST", url: "/v1alpha1/replicas", body: body(`"collectors":{"replicas":1}`)})},
		{name: "a pod of no job deletes nothing", gets: refusals, step: asStranger(message{method: "DELETE", url: "/v1alpha1/replicas", body: body(`"collectors":{"replicas":1}`)})},
		{name: "an address of no pod is refused", gets: refusals, step: asNobody(message{method: "GET", url: "/v1alpha1/replicas?" + victim})},
		{name: "an address of no pod creates nothing", gets: refusals, step: asNobody(message{method: "POST", url: "/v1alpha1/replicas", body: body(`"collectors":{"replicas":1}`)})},
		{name: "what proxies say of the caller is ignored", gets: refusals, step: func(ctx context.Context, w *world, attacker int) string {
			return asNobody(message{method: "GET", url: "/v1alpha1/replicas?" + victim, header: http.Header{
				"X-Forwarded-For": {w.callers[0].From}, "X-Real-Ip": {w.callers[0].From}, "Forwarded": {"for=" + w.callers[0].From},
			}})(ctx, w, attacker)
		}},
		{name: "300 million GPUs with an exponent are refused", gets: refusals, step: asStranger(message{
			method: "POST", url: "/v1alpha1/replicas", body: body(`"learners":{"replicas":1,"gpus":"1e300000000"}`),
		})},
		{name: "a quantity of ten million digits of a job's own pod is refused", gets: []string{"400", noAnswer}, step: asOwn(func(pod string) message {
			return message{method: "POST", url: "/v1alpha1/replicas", body: fmt.Appendf(nil,
				`{"namespace":%q,"coordinator":%q,"learners":{"replicas":1,"memory":1e-10000000}}`, intruders, pod)}
		})},
		{name: "a report of 1 MiB of a stranger is not read", gets: refusals, step: asStranger(message{
			method: "POST", url: "/v1alpha1/replicas/failed", body: body(`"collectors":["a"` + strings.Repeat(`,"a"`, 250_000) + `]`),
		})},
		{name: "worthless tokens are refused", gets: refusals, step: func(ctx context.Context, w *world, attacker int) string {
			return asNobody(message{method: "GET", url: "/v1alpha1/replicas?" + victim, header: http.Header{
				"Authorization": {fmt.Sprintf("Bearer e30.e30.%d", time.Now().UnixNano())},
			}})(ctx, w, attacker)
		}},
		{name: "names that are made up cost next to no live request", gets: refusals, step: lookUps.step, holds: lookUps.areFew},
		{name: "paths that are made up find nothing", gets: []string{"400", "401", "403", "404", "501", "301", "307", noAnswer}, step: madeUpPath},
		{name: "heads that never end are cut off", step: func(ctx context.Context, w *world, attacker int) string {
			return holdMany(ctx, 250, func() string {
				return hold(ctx, unusedAddress(attacker), w.server.Address, false, []byte("GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 60_000)))
			})
		}},
		{name: "connections that say nothing are bounded", step: func(ctx context.Context, w *world, attacker int) string {
			return holdMany(ctx, 500, func() string { return hold(ctx, unusedAddress(attacker), w.server.Address, false, nil) })
		}},
		{name: "bodies that never end are cut off", step: func(ctx context.Context, w *world, attacker int) string {
			return holdMany(ctx, 50, func() string {
				return hold(ctx, unusedAddress(attacker), w.server.Address, false,
					[]byte("POST /v1alpha1/replicas HTTP/1.1\r\nHost: s\r\nContent-Length: 60000\r\n\r\n{"))
			})
		}},
		{name: "a job that polls without a pause delays no other", step: asOwn(func(pod string) message {
			return message{method: "GET", url: "/v1alpha1/replicas?namespace=" + intruders + "&coordinator=" + pod}
		})},
		{name: "a job that resizes without a pause delays no other", step: asOwn(func(pod string) message {
			return message{method: "POST", url: "/v1alpha1/replicas", body: fmt.Appendf(nil,
				`{"namespace":%q,"coordinator":%q,"collectors":{"replicas":1}}`, intruders, pod)}
		})},
		{name: "profilings without a pause do not fill etcd", step: reports.step, holds: reports.areFew},
	}
}

// fromPod sends a message from the address of a pod of no job.
func (w *world) fromPod(ctx context.Context, name string, m message) string {
	if w.kubelet.address(intruders, name) == "" {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: intruders, Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if err := client.IgnoreAlreadyExists(w.API.Create(ctx, pod)); err != nil {
			return failed(ctx)
		}
		err := eventually(ctx, "pod "+name+" has an address", func(context.Context) error {
			if w.kubelet.address(intruders, name) == "" {
				return errors.New("it has none")
			}
			return nil
		})
		if err != nil {
			return failed(ctx)
		}
	}
	return w.sendAs(ctx, name, m)
}

// sendAs sends a message to di-server from the address of a pod of the intruders.
func (w *world) sendAs(ctx context.Context, pod string, m message) string {
	m.from, m.url = w.kubelet.address(intruders, pod), "http://"+w.server.Address+m.url
	return send(ctx, &m)
}

// asOwn returns a step that sends a message as the coordinator of an intruder's job.
func asOwn(of func(pod string) message) func(context.Context, *world, int) string {
	return func(ctx context.Context, w *world, _ int) string {
		pod := names.CoordinatorPod("own")
		if w.kubelet.address(intruders, pod) == "" {
			if _, err := w.running(ctx, ledJob("own", v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner)); err != nil {
				return failed(ctx)
			}
		}
		return w.sendAs(ctx, pod, of(pod))
	}
}

// cost counts calls and the API requests that they cause.
type cost struct{ calls, mark, began atomic.Int64 }

// add counts a call and returns its number. The first call marks the audit log.
func (c *cost) add(w *world) (int64, error) {
	if c.began.CompareAndSwap(0, time.Now().UnixNano()) {
		mark, err := w.Mark()
		if err != nil {
			return 0, err
		}
		c.mark.Store(int64(mark))
	}
	return c.calls.Add(1), nil
}

// requests counts the requests of di-server since the first call.
func (c *cost) requests(w *world, counts func(*controlplane.Event) bool) (int, error) {
	found := 0
	err := w.Events(controlplane.Mark(c.mark.Load()), func(event *controlplane.Event) error {
		if event.User.Username == testkit.AccountName(testkit.Server) && counts(event) {
			found++
		}
		return nil
	})
	return found, err
}

// begun returns how many units of time have begun since the first call.
func (c *cost) begun(unit time.Duration) int {
	return int(time.Since(time.Unix(0, c.began.Load()))/unit) + 1
}

// lookUps counts the live reads that calls with invented names cause.
type lookUps struct{ cost }

// mostCalls is the number of calls with invented names. mostLive is the maximum number of live
// reads for them.
const mostCalls, mostLive = 300, 10

func (l *lookUps) step(ctx context.Context, w *world, attacker int) string {
	call, err := l.add(w)
	if err != nil {
		return err.Error()
	}
	if call > mostCalls {
		<-ctx.Done()
		return outOfTime
	}
	url := fmt.Sprintf("/v1alpha1/replicas?namespace=%s&coordinator=made-up-%d-coordinator", bystanders, call)
	if call%2 == 0 {
		url = fmt.Sprintf("/v2alpha1/%s.made-up-%d/replicas", bystanders, call)
	}
	return w.fromPod(ctx, fmt.Sprintf("stranger-%d", attacker), message{method: "GET", url: url})
}

func (l *lookUps) areFew(_ context.Context, w *world) error {
	live, err := l.requests(w, func(event *controlplane.Event) bool {
		return event.Verb == "get" && strings.Contains(event.ObjectRef.Name, "made-up")
	})
	if err == nil && live > mostLive {
		err = fmt.Errorf("%d calls with made-up names cost %d live requests, more than %d", min(l.calls.Load(), mostCalls), live, mostLive)
	}
	return err
}

// reports counts the bytes that profilings write into etcd.
type reports struct{ cost }

// mostBytes is the maximum that one job may write into etcd in a minute.
const mostBytes = mebi

func (r *reports) step(ctx context.Context, w *world, _ int) string {
	job := workerJob("profiled")
	pod := names.WorkerPod(job.Name, "collector", 0)
	if w.kubelet.address(intruders, pod) == "" {
		if _, err := w.running(ctx, job); err != nil {
			return failed(ctx)
		}
	}
	if _, err := r.add(w); err != nil {
		return err.Error()
	}
	report := fmt.Appendf(nil, `{"data":{"step":%d,"text":"%s"}}`, time.Now().UnixNano(), bytes.Repeat([]byte("x"), 60<<10))
	return w.sendAs(ctx, pod, message{method: "POST", url: "/v2alpha1/" + intruders + "." + job.Name + "/profilings", body: report})
}

// areFew checks that the number of writes times the size of the job stays below the limit for the
// minutes of the attack.
func (r *reports) areFew(ctx context.Context, w *world) error {
	job, err := w.job(ctx, workerJob("profiled"))
	if err != nil {
		return err
	}
	stored, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("encoding a job: %w", err)
	}
	writes, err := r.requests(w, func(event *controlplane.Event) bool { return event.Verb == "patch" && event.ObjectRef.Name == job.Name })
	minutes := r.begun(time.Minute)
	if wrote := writes * len(stored); err == nil && wrote > minutes*mostBytes {
		err = fmt.Errorf("%d reports wrote %d bytes in %d minutes, more than %d a minute", writes, wrote, minutes, mostBytes)
	}
	return err
}

// madeUpPath requests paths that are not served, as a caller who searches for a bypass would.
func madeUpPath(ctx context.Context, w *world, attacker int) string {
	paths := []string{
		"/v1alpha1/replicas/", "//v1alpha1/replicas", "/v1alpha1/replicas/..%2f..%2fhealthz", "/v1alpha1/%2e%2e/replicas",
		"/V1ALPHA1/replicas", "/v2alpha1/../../etc/passwd/replicas", "/v2alpha1/" + strings.Repeat("a", 4000) + "/replicas", "/debug/pprof/",
	}
	return send(ctx, &message{method: "GET", from: unusedAddress(attacker), url: "http://" + w.server.Address + paths[int(time.Now().UnixNano())%len(paths)]})
}
