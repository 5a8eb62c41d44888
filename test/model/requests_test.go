// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const (
	replicasPath = "/v1alpha1/replicas"
	failedPath   = "/v1alpha1/replicas/failed"
)

// demand is what a coordinator requests.
type demand struct {
	shapes map[string]shape
	counts map[string]int
}

func tasks() []string { return []string{collector, learner} }

// newDemand returns a demand that differs from all others.
func (t *fixture) newDemand(collectors, learners int) demand {
	t.asked++
	cpus := int64(100 + t.asked)
	gpus := []int32{0, 0, 1, 2, 8, 10}[t.random.IntN(6)]
	return demand{
		shapes: map[string]shape{collector: {collector, cpus, 0}, learner: {learner, cpus, gpus}},
		counts: map[string]int{collector: collectors, learner: learners},
	}
}

// someDemand returns a demand for a few replicas, at least one.
func (t *fixture) someDemand() demand {
	collectors, learners := t.random.IntN(4), t.random.IntN(3)
	if collectors+learners == 0 {
		collectors = 1
	}
	return t.newDemand(collectors, learners)
}

func (d demand) body(by caller) any {
	fields := map[string]any{"namespace": by.namespace, "coordinator": by.pod}
	for _, task := range tasks() {
		one := d.shapes[task]
		fields[task+"s"] = amount{Replicas: d.counts[task], CPUs: fmt.Sprintf("%dm", one.milliCPUs), GPUs: one.gpus}
	}
	return fields
}

// anyServer returns the server that a Service would direct a client to.
func (t *fixture) anyServer() int {
	return t.random.IntN(len(t.servers))
}

// write sends a write and records the URLs in the answer.
func (t *fixture) write(ctx context.Context, by caller, server int, asked request) (urls, error) {
	replied, answered, err := t.call(ctx, by, server, asked)
	t.logf("  %s %s %v key %q to server %d: %v %v, by server %d", asked.method, asked.path, asked.body, asked.key, server, replied, err, answered)
	if err != nil {
		return urls{}, fmt.Errorf("%s %s: %w", asked.method, asked.path, err)
	}
	t.mutex.Lock()
	t.replied = append(t.replied, replied.urls().all()...)
	t.mutex.Unlock()
	return replied.urls(), t.recheck(ctx, by, answered, asked, replied.urls().all())
}

// recheck verifies that a server immediately lists what it has answered.
func (t *fixture) recheck(ctx context.Context, by caller, server int, asked request, replied []string) error {
	if by.pod != t.coordinator.pod {
		return nil
	}
	_, before := t.servers[server].running()
	listed, err := t.list(ctx, by, server, coordinator)
	if err != nil {
		return refusal(err)
	}
	if _, after := t.servers[server].running(); after != before {
		return nil
	}
	for _, url := range replied {
		if slices.Contains(listed.urls().all(), url) == (asked.method == http.MethodDelete) {
			return fmt.Errorf("server %d answered %s %s with %s, and then listed %v", server, asked.method, asked.path, url, listed)
		}
	}
	return nil
}

// post requests more replicas and adds the answered replicas to the model.
func (t *fixture) post(ctx context.Context, asked demand, key string) (urls, error) {
	replied, err := t.write(ctx, t.coordinator, t.anyServer(), request{http.MethodPost, replicasPath, asked.body(t.coordinator), key})
	if err != nil {
		return replied, err
	}
	return replied, t.accept(asked, replied)
}

// accept adds the answer to a demand to the model.
func (t *fixture) accept(asked demand, replied urls) error {
	complete := t.model.isComplete()
	if complete {
		t.model.forget()
	}
	t.model.asker = t.model.container
	for _, task := range tasks() {
		answered, wanted := replied.of(task), asked.counts[task]
		fresh := answered
		if complete {
			present := t.model.of(task)
			wanted = max(0, wanted-len(present))
			fresh = slices.Clone(answered)
			for _, one := range present {
				at := slices.Index(fresh, one.url)
				if at < 0 {
					return fmt.Errorf("the answer to the restarted coordinator lacks %s: %v", one.url, answered)
				}
				fresh = slices.Delete(fresh, at, at+1)
			}
		}
		if len(fresh) != wanted {
			return fmt.Errorf("%d %ss more were due, got %v", wanted, task, fresh)
		}
		if err := t.checkForm(asked.shapes[task].role(), fresh); err != nil {
			return err
		}
		if err := t.model.add(asked.shapes[task], fresh); err != nil {
			return err
		}
	}
	return nil
}

// checkForm verifies that URLs have the form that deployed clients parse.
func (t *fixture) checkForm(role string, fresh []string) error {
	for _, url := range fresh {
		if !strings.HasPrefix(url, jobName+"-"+role+"-") || !strings.HasSuffix(url, fmt.Sprintf(".%s:%d", t.namespace, ports[role])) {
			return fmt.Errorf("%s is no URL of a %s", url, role)
		}
	}
	return nil
}

// delete requests fewer replicas.
func (t *fixture) delete(ctx context.Context, collectors, learners int) error {
	body := map[string]any{
		"namespace": t.namespace, "coordinator": t.coordinator.pod,
		"collectors": amount{Replicas: collectors}, "learners": amount{Replicas: learners},
	}
	key := ""
	// Only an idempotency key distinguishes a repeated removal from another removal.
	if t.endangered || t.random.IntN(2) == 0 {
		t.asked++
		key = fmt.Sprintf("removal %d", t.asked)
	}
	replied, err := t.write(ctx, t.coordinator, t.anyServer(), request{http.MethodDelete, replicasPath, body, key})
	if err != nil {
		return err
	}
	for task, count := range map[string]int{collector: collectors, learner: learners} {
		answered := replied.of(task)
		var due []string
		for _, one := range t.model.remove(task, count) {
			due = append(due, one.url)
		}
		if !slices.Equal(slices.Sorted(slices.Values(due)), slices.Sorted(slices.Values(answered))) {
			return fmt.Errorf("%v were to be removed, got %v", due, answered)
		}
	}
	return nil
}

// reportBody returns a failure report with the role of each name. Some names are URLs.
func (t *fixture) reportBody(by caller, pods []string) any {
	lists := map[string][]string{collector: {}, learner: {}}
	for _, pod := range pods {
		task := learner
		if strings.HasPrefix(pod, jobName+"-"+collector) {
			task = collector
		}
		if t.random.IntN(4) == 0 {
			pod = fmt.Sprintf("%s.%s:%d", pod, t.namespace, ports[task])
		}
		lists[task] = append(lists[task], pod)
	}
	return map[string]any{
		"namespace": by.namespace, "coordinator": by.pod, "collectors": lists[collector], "learners": lists[learner],
	}
}

// report reports pods as failed as the coordinator. A report with the same body as an earlier one
// would count as its repeat, so it has another key.
func (t *fixture) report(ctx context.Context, pods []string) error {
	body, key := t.reportBody(t.coordinator, pods), ""
	said := fmt.Sprint(body)
	if t.reported[said] {
		t.asked++
		key = fmt.Sprintf("report %d", t.asked)
	}
	t.reported[said] = true
	replied, err := t.write(ctx, t.coordinator, t.anyServer(), request{http.MethodPost, failedPath, body, key})
	if err != nil {
		return err
	}
	return t.acceptReport(pods, replied)
}

// acceptReport replaces the reported replicas in the model with those in the answer.
func (t *fixture) acceptReport(pods []string, replied urls) error {
	concerned, replaced := t.model.report(pods)
	left := map[string][]string{collector: replied.Collectors, learner: replied.Learners}
	for _, one := range concerned {
		if len(left[one.task]) == 0 {
			return fmt.Errorf("a %s was reported, and the answer does not replace it", one.task)
		}
		url := left[one.task][0]
		left[one.task] = left[one.task][1:]
		if err := t.checkForm(one.role(), []string{url}); err != nil {
			return err
		}
		switch {
		case replaced[one] || one.url == "":
			if err := t.model.use(podOf(url)); err != nil {
				return err
			}
			one.url = url
		case one.url != url:
			return fmt.Errorf("%s was not to be replaced, got %s", one.url, url)
		}
	}
	if surplus := slices.Concat(left[collector], left[learner]); len(surplus) > 0 {
		return fmt.Errorf("replaced by %v without a report", surplus)
	}
	return nil
}

// reportLearners reports DDP learners as their aggregator.
func (t *fixture) reportLearners(ctx context.Context, unit *replica, pods []string) error {
	found, err := t.read(ctx)
	if err != nil {
		return err
	}
	by := t.callerIn(found, podOf(unit.url))
	replied, err := t.write(ctx, by, t.anyServer(), request{http.MethodPost, failedPath, t.reportBody(by, pods), ""})
	if t.isOver(ctx, by, err) {
		t.model.report(pods)
		return nil
	}
	if err != nil {
		return err
	}
	t.model.report(pods)
	if len(replied.Collectors) > 0 || len(replied.Learners) != int(unit.gpus) {
		return fmt.Errorf("the aggregator of a unit of %d GPUs got %v", unit.gpus, replied)
	}
	for _, url := range replied.Learners {
		if pod := podOf(url); !slices.Contains(unit.learners, pod) {
			if err := t.model.use(pod); err != nil {
				return err
			}
			unit.learners = append(unit.learners, pod)
		}
	}
	return nil
}

// isOver reports whether an aggregator reported its unit and the unit was deleted before the
// answer. Units drain only for a moment in this test. No client can then repeat the request.
func (t *fixture) isOver(ctx context.Context, by caller, err error) bool {
	var status *statusError
	if !errors.As(err, &status) || status.status != http.StatusNotFound && status.status != http.StatusUnauthorized {
		return false
	}
	found, err := t.read(ctx)
	return err == nil && found.pod(by.pod) == nil
}
