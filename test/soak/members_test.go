// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

const (
	// retryWait and answerTime keep all attempts of a call within the 30 seconds in which di-server knows a repeat.
	retryWait  = time.Second
	answerTime = 3 * time.Second
	// watchTime is longer than di-server lets a watch wait.
	watchTime = 25 * time.Second
)

// members are the programs in the pods of jobs that hold state: each follows the list of members and acknowledges it.
type members struct {
	ctx   context.Context //nolint:containedctx // pods come and go while the kubelet calls see
	world *world

	mutex sync.Mutex
	// running are the programs, by UID of their pod.
	running map[types.UID]context.CancelFunc
}

func newMembers(ctx context.Context, w *world) *members {
	return &members{ctx: ctx, world: w, running: map[types.UID]context.CancelFunc{}}
}

// see starts a program when its pod runs, and ends it with its pod.
func (m *members) see(pod *corev1.Pod, gone bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	stop, runs := m.running[pod.UID]
	ended := gone || pod.Status.Phase != corev1.PodRunning
	switch {
	case runs && ended:
		stop()
		delete(m.running, pod.UID)
	case !runs && !ended && pod.Status.PodIP != "" && strings.HasPrefix(pod.Labels[names.LabelJob], statefulPrefix):
		ctx, cancel := context.WithCancel(m.ctx)
		m.running[pod.UID] = cancel
		caller := m.world.caller(pod, watchTime)
		m.world.group.Go(func() error { caller.follow(ctx); return nil })
	}
}

// caller is the program in a pod.
type caller struct {
	world   *world
	pod     *corev1.Pod
	jobName string
	jobUID  string
	http    *http.Client
	// attempts is how often the last call was sent.
	attempts int
}

func (w *world) caller(pod *corev1.Pod, timeout time.Duration) *caller {
	made := &caller{world: w, pod: pod, http: &http.Client{
		Transport: &http.Transport{DialContext: proxy.DialFrom(pod.Status.PodIP), DisableKeepAlives: true}, Timeout: timeout,
	}}
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "DIJob" {
			made.jobName, made.jobUID = owner.Name, string(owner.UID)
		}
	}
	return made
}

// list is a membership as di-server serves it.
type list struct {
	Version int64 `json:"version"`
	Members []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	} `json:"members"`
}

// follow watches the list of members and acknowledges each version at once.
func (c *caller) follow(ctx context.Context) {
	version, path := int64(0), "/v2alpha1/"+namespace+"."+c.jobName+"/membership"
	for ctx.Err() == nil {
		var now list
		err := c.call(ctx, http.MethodGet, fmt.Sprintf("%s?watch=true&version=%d", path, version), "", "", &now)
		if err != nil {
			_ = pace.Pause(ctx, retryWait)
			continue
		}
		if now.Members == nil {
			continue
		}
		read := &history.Read{Job: c.jobUID, Pod: string(c.pod.UID), Version: now.Version}
		for _, member := range now.Members {
			switch member.State {
			case "active":
				read.Active = append(read.Active, member.Name)
			case "leaving":
				read.Leaving = append(read.Leaving, member.Name)
			}
		}
		c.world.log.Add(history.Entry{Read: read})
		// A hand-over takes some time.
		_ = pace.Pause(ctx, time.Duration(rand.IntN(2000))*time.Millisecond)
		// The acknowledgement is recorded before it is sent: what follows it must find it in the history.
		c.world.log.Add(history.Entry{Call: &history.Call{
			Begin: time.Now(), Operation: history.Ack, Job: c.jobUID, Pod: string(c.pod.UID), Number: int(now.Version),
		}})
		if c.call(ctx, http.MethodPost, path+"/ack", fmt.Sprintf(`{"version":%d}`, now.Version), "", nil) != nil {
			_ = pace.Pause(ctx, retryWait)
			continue
		}
		version = now.Version
	}
}

// call calls di-server as deployed clients do: it retries after connection errors and never after an answer.
func (c *caller) call(ctx context.Context, method, path, body, key string, into any) error {
	var data json.RawMessage
	c.attempts = 0
	err := diserver.Retry(ctx, retryWait, func() error {
		c.attempts++
		request, err := http.NewRequestWithContext(ctx, method, "http://"+c.world.servers.Address()+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		if key != "" {
			request.Header.Set(names.HeaderIdempotencyKey, key)
		}
		data, err = diserver.Send(c.http, request)
		return err
	})
	if err != nil && c.attempts > 1 && !diserver.IsLater(err) {
		// An earlier attempt may have been executed, so that this is no refusal.
		return fmt.Errorf("after %d attempts: %v", c.attempts, err) //nolint:errorlint // see above
	}
	if err != nil {
		return err
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}

// record makes a call and records it with its interval. What do adds to the call is recorded, too.
func (w *world) record(call history.Call, do func(*history.Call) error) error {
	call.Begin = time.Now()
	err := do(&call)
	call.End = time.Now()
	if err != nil {
		call.Error = err.Error()
		call.Refused = isRefusal(err)
	}
	w.log.Add(history.Entry{Call: &call})
	return err
}

// isRefusal reports whether di-server or the API server has refused a call, which therefore had no effect.
func isRefusal(err error) bool {
	if status, is := errors.AsType[*diserver.StatusError](err); is {
		return status.Status < http.StatusInternalServerError
	}
	status, is := errors.AsType[*apierrors.StatusError](err)
	return is && status.ErrStatus.Code >= http.StatusBadRequest && status.ErrStatus.Code < http.StatusInternalServerError
}

// driver is what requests replicas for a job: its coordinator, or its first worker.
type driver struct {
	world  *world
	name   string
	led    bool
	random *rand.Rand
	// requests counts the requests. It makes each unique.
	requests int
}

// run makes requests until the context ends.
func (d *driver) run(ctx context.Context) {
	for pace.Pause(ctx, time.Duration(1000+d.random.IntN(4000))*time.Millisecond) == nil {
		name := names.CoordinatorPod(d.name)
		if !d.led {
			name = names.WorkerPod(d.name, learner, 0)
		}
		pod := d.world.kubelet.Pod(types.NamespacedName{Namespace: namespace, Name: name})
		if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
			continue
		}
		// A call in flight is completed: it may be executed.
		if d.led {
			d.lead(context.WithoutCancel(ctx), d.world.caller(pod, answerTime))
		} else {
			d.resize(context.WithoutCancel(ctx), d.world.caller(pod, answerTime))
		}
	}
}

// urls are those in an answer to a coordinator.
type urls struct {
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
}

func (u *urls) all() []string { return slices.Concat([]string{}, u.Collectors, u.Learners) }

// lead adds or removes replicas of a coordinator-led job, or reports some, and lists them.
func (d *driver) lead(ctx context.Context, by *caller) {
	head := fmt.Sprintf(`"namespace":%q,"coordinator":%q`, namespace, by.pod.Name)
	known := d.list(ctx, by)
	d.requests++
	switch size := d.size(ctx); {
	case size > 4:
		d.ask(ctx, by, http.MethodDelete, history.Call{Operation: history.Shrink, Number: 2, Mark: "-"}, head+`,"collectors":{"replicas":1},"learners":{"replicas":1}`)
	case len(known.Collectors) > 0 && d.random.IntN(6) == 0:
		failed := known.Collectors[d.random.IntN(len(known.Collectors))]
		cause := &history.Cause{What: "its coordinator reports the pod failed", Job: by.jobUID, Name: names.PodOfURL(failed), Replaced: true}
		if pod := d.world.kubelet.Pod(types.NamespacedName{Namespace: namespace, Name: cause.Name}); pod != nil {
			cause.Pod = string(pod.UID)
		}
		d.world.log.Add(history.Entry{Cause: cause})
		call := history.Call{Operation: history.Report, URLs: []string{failed}}
		body := fmt.Sprintf(`{%s,"collectors":[%q],"learners":[]}`, head, names.PodOfURL(failed))
		_ = d.world.record(d.of(call, by), func(*history.Call) error {
			return by.call(ctx, http.MethodPost, "/v1alpha1/replicas/failed", body, "", nil)
		})
	default:
		cpus := resource.MustParse(fmt.Sprintf("%dm", 1000+d.requests))
		call := history.Call{Operation: history.Grow, Number: 1 + d.random.IntN(2), Mark: cpus.String()}
		task := fmt.Sprintf(`"collectors":{"replicas":%d,"cpus":%q}`, call.Number, call.Mark)
		if d.random.IntN(4) == 0 {
			call.Number = 1
			task = fmt.Sprintf(`"learners":{"replicas":1,"gpus":%d,"cpus":%q}`, 1+d.random.IntN(2), call.Mark)
		}
		d.ask(ctx, by, http.MethodPost, call, head+","+task)
	}
	d.list(ctx, by)
}

// of returns a call of a caller.
func (*driver) of(call history.Call, by *caller) history.Call {
	call.Job, call.Pod = by.jobUID, string(by.pod.UID)
	return call
}

func (d *driver) ask(ctx context.Context, by *caller, method string, call history.Call, fields string) {
	key := ""
	if d.random.IntN(2) == 0 {
		key = fmt.Sprintf("%s-%d", by.pod.UID, d.requests)
	}
	_ = d.world.record(d.of(call, by), func(call *history.Call) error {
		var given urls
		err := by.call(ctx, method, "/v1alpha1/replicas", "{"+fields+"}", key, &given)
		call.URLs, call.Repeated = given.all(), by.attempts > 1 && key == ""
		return err
	})
}

func (d *driver) list(ctx context.Context, by *caller) (known urls) {
	path := fmt.Sprintf("/v1alpha1/replicas?namespace=%s&coordinator=%s", namespace, by.pod.Name)
	_ = d.world.record(d.of(history.Call{Operation: history.List}, by), func(call *history.Call) error {
		err := by.call(ctx, http.MethodGet, path, "{}", "", &known)
		call.URLs = known.all()
		return err
	})
	return known
}

// size returns the number of desired members.
func (d *driver) size(ctx context.Context) int {
	var found v2alpha1.Membership
	if err := d.world.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: d.name}, &found); err != nil {
		return 0
	}
	return len(found.Spec.Members)
}

// resize resizes a worker-led job, or reads its size.
func (d *driver) resize(ctx context.Context, by *caller) {
	job := &v2alpha1.DIJob{}
	read := func() error { return d.world.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: d.name}, job) }
	call := history.Call{Operation: history.Count, Job: by.jobUID}
	begin := time.Now()
	if err := read(); err != nil || string(job.UID) != by.jobUID || job.Status.Replicas == 0 {
		return
	}
	call.Begin, call.End, call.Number = begin, time.Now(), int(job.Status.Replicas)
	d.world.log.Add(history.Entry{Call: &call})
	d.requests++
	call = history.Call{Operation: history.Grow, Job: by.jobUID, Pod: string(by.pod.UID), Number: 1 + d.random.IntN(2)}
	method := http.MethodPost
	if job.Status.Replicas > 6 {
		call.Operation, method = history.Shrink, http.MethodDelete
	}
	key := fmt.Sprintf("%s-%d", by.pod.UID, d.requests)
	_ = d.world.record(call, func(*history.Call) error {
		return by.call(ctx, method, "/v2alpha1/"+namespace+"."+d.name+"/replicas", fmt.Sprintf(`{"replicas":%d}`, call.Number), key, nil)
	})
}
