// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// reading is what the programs have used until a time.
type reading struct {
	at                         time.Time
	mark                       controlplane.Mark
	operator, webhooks, server program.Usage
	apiServer, etcd            program.Usage
	// stored are the bytes that etcd uses.
	stored int64
}

func newMetrics(config *rest.Config) (*rest.RESTClient, error) {
	config.QPS, config.NegotiatedSerializer = -1, scheme.Codecs.WithoutConversion()
	metrics, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return metrics, nil
}

func (w *world) read(ctx context.Context) (r reading, err error) {
	r.at = time.Now()
	for usage, process := range map[*program.Usage]*program.Process{&r.operator: w.operator, &r.webhooks: w.webhooks, &r.server: w.server} {
		if *usage, err = process.Usage(); err != nil {
			return r, err
		}
	}
	samples, err := w.metrics.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return r, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	r.apiServer = usageOf(string(samples))
	if samples, err = program.Read(ctx, w.Etcd().URL.JoinPath("metrics").String()); err != nil {
		return r, err
	}
	r.etcd, r.stored = usageOf(string(samples)), int64(sample(string(samples), "etcd_mvcc_db_total_size_in_use_in_bytes"))
	if r.apiServer.Resident == 0 || r.etcd.Resident == 0 || r.stored == 0 {
		return r, errors.New("the metrics of the API server or of etcd lack its memory, or the stored bytes")
	}
	r.mark, err = w.Mark()
	return r, err
}

// usageOf returns what the process has used that has written metrics.
func usageOf(metrics string) program.Usage {
	return program.Usage{
		Processor: time.Duration(sample(metrics, "process_cpu_seconds_total") * float64(time.Second)),
		Resident:  int64(sample(metrics, "process_resident_memory_bytes")),
	}
}

// sample returns the value of a metric without labels; 0 if it is missing.
func sample(metrics, name string) float64 {
	_, after, _ := strings.Cut(metrics, "\n"+name+" ")
	line, _, _ := strings.Cut(after, "\n")
	value, _ := strconv.ParseFloat(strings.TrimSpace(line), 64)
	return value
}

// fillAdded sets what the pods that were added between two readings took.
func fillAdded(r *results.Rung, before, after *reading, pods int, requests map[string]controlplane.Requests) {
	r.Stored = after.stored
	for _, of := range needs(r, before, after) {
		of.need.Resident = of.after.Resident
	}
	if pods == 0 {
		return
	}
	each := float64(pods)
	for _, of := range needs(r, before, after) {
		of.need.PodMillis = (of.after.Processor - of.before.Processor).Seconds() * 1000 / each
	}
	r.Requests = map[string]map[string]float64{}
	for user, asked := range requests {
		r.Requests[user] = map[string]float64{}
		for what, count := range asked.Without("leases") {
			r.Requests[user][what] = float64(count) / each
		}
		if user == harness.UserOperator || user == harness.UserServer {
			r.PodRequests += float64(asked.Without("leases").All()) / each
		}
	}
}

// fillRest sets what the programs took between two readings at rest.
func fillRest(r *results.Rung, before, after *reading, requests map[string]controlplane.Requests) {
	passed := after.at.Sub(before.at)
	for _, of := range needs(r, before, after) {
		of.need.RestPercent = 100 * (of.after.Processor - of.before.Processor).Seconds() / passed.Seconds()
	}
	for _, user := range []string{harness.UserOperator, harness.UserServer} {
		r.RestRequests += float64(requests[user].All()) / passed.Minutes()
	}
}

// change is the need of a program and its readings.
type change struct {
	need          *results.Need
	before, after program.Usage
}

func needs(r *results.Rung, before, after *reading) []change {
	return []change{
		{&r.Operator, before.operator, after.operator}, {&r.Webhooks, before.webhooks, after.webhooks}, {&r.Server, before.server, after.server},
		{&r.APIServer, before.apiServer, after.apiServer}, {&r.Etcd, before.etcd, after.etcd},
	}
}

var heapAllocated = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveHeap returns the size of the operator's heap after a garbage collection.
func (w *world) liveHeap(ctx context.Context) (int64, error) {
	raw, err := program.Read(ctx, "http://"+w.pprof+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapAllocated.FindSubmatch(raw)
	if found == nil {
		return 0, errors.New("a heap profile lacks HeapAlloc")
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}

// profile writes a profile of the operator, if profiles are wanted.
func (w *world) profile(ctx context.Context, jobs int, kind string) error {
	if w.bench.profiles == "" {
		return nil
	}
	raw, err := program.Read(ctx, "http://"+w.pprof+"/debug/pprof/"+kind)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.bench.profiles, 0o750); err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	name, _, _ := strings.Cut(kind, "?")
	if err := os.WriteFile(filepath.Join(w.bench.profiles, fmt.Sprintf("%s-%05d.pprof", name, jobs)), raw, 0o600); err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	return nil
}
