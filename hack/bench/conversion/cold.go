// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/testkit/etcd"
	"opendilab.org/di-orchestrator/internal/testkit/jobs"
)

const (
	coldJobs   = 10_000
	coldBytes  = 10_000
	coldRounds = 3
	// coldLimit is how many times the floor our webhook may take.
	coldLimit = 1.5
	// jobPrefix starts the names of the stored jobs, and nothing else in them.
	jobPrefix = "stored-job-"
	namespace = "default"
)

// coldResult is what one round of one converter took.
type coldResult struct {
	took time.Duration
	// cpu is what this process used, with the webhook, and serverCPU the API server.
	cpu, serverCPU   time.Duration
	reviews, objects int64
}

// contender is one way to convert. Without a converter the strategy is None.
type contender struct {
	name      string
	converter *converter
	results   []coldResult
}

// runCold measures how long an API server takes after its start until the
// watch caches of both versions are filled from stored jobs.
func runCold(ctx context.Context, out io.Writer) (err error) {
	p, err := startPlane()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.convertBy(ctx, nil); err != nil {
		return err
	}
	prepared, err := p.store(ctx, coldJobs)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d jobs of %d kB, stored as v2alpha1.\n", len(prepared), coldBytes/1000)
	contenders := []*contender{
		{name: "our webhook", converter: startConverter(conversion.NewHandler(conversion.Options{}))},
		{name: "webhook with prepared answers", converter: startConverter(prepared)},
		{name: "strategy None"},
	}
	for _, c := range contenders[:2] {
		defer c.converter.server.Close()
	}
	for round := range coldRounds {
		for i := range contenders {
			// Each goes first in turn.
			c := contenders[(i+round)%len(contenders)]
			result, err := p.coldRound(ctx, c.converter)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.results = append(c.results, result)
		}
	}
	return printCold(out, contenders)
}

// store writes jobs into etcd, one through the API server, which is then the
// pattern of the others, and prepares their conversion.
func (p *plane) store(ctx context.Context, count int) (answers, error) {
	job, err := storedJob(jobName(0), coldBytes)
	if err != nil {
		return nil, err
	}
	if err := p.api.Create(ctx, job); err != nil {
		return nil, fmt.Errorf("storing a job: %w", err)
	}
	store := etcd.Store{URL: p.environment.ControlPlane.Etcd.URL}
	pattern, err := store.Get(ctx, etcd.Job(namespace, job.GetName()))
	if err != nil {
		return nil, err
	}
	prepared := answers{}
	if err := prepared.add(job.GetName(), pattern); err != nil {
		return nil, err
	}
	var copies []etcd.Value
	for i := 1; i < count; i++ {
		value := bytes.ReplaceAll(pattern, []byte(job.GetName()), []byte(jobName(i)))
		value = bytes.ReplaceAll(value, []byte(job.GetUID()), []byte(uuid.NewUUID()))
		if err := prepared.add(jobName(i), value); err != nil {
			return nil, err
		}
		copies = append(copies, etcd.Value{Key: []byte(etcd.Job(namespace, jobName(i))), Value: value})
	}
	if err := store.Put(ctx, copies); err != nil {
		return nil, err
	}
	return prepared, nil
}

func jobName(i int) string {
	return fmt.Sprintf("%s%05d", jobPrefix, i)
}

// storedJob returns a job of v2alpha1 of about so many bytes.
func storedJob(name string, bytes int) (*unstructured.Unstructured, error) {
	raw, err := jobs.Of(namespace, name, bytes)
	if err != nil {
		return nil, err
	}
	if raw, err = conversion.Convert(raw, v2alpha1.GroupVersion.String()); err != nil {
		return nil, fmt.Errorf("converting a job: %w", err)
	}
	job := &unstructured.Unstructured{}
	if err := job.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decoding a job: %w", err)
	}
	return job, nil
}

// answers are jobs of v1alpha1 by name. As a webhook they are the floor under
// what any webhook takes: nothing is decoded and nothing encoded.
type answers map[string][]byte

// add prepares the conversion of a stored job.
func (a answers) add(name string, stored []byte) error {
	converted, err := conversion.Convert(stored, v1alpha1.GroupVersion.String())
	if err != nil {
		return fmt.Errorf("converting a job: %w", err)
	}
	a[name] = converted
	return nil
}

// ServeHTTP implements http.Handler.
func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var answer bytes.Buffer
	fmt.Fprintf(&answer, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"%s","convertedObjects":[`,
		between(body, `"uid":"`))
	rest, separator := body, ""
	for {
		_, after, found := bytes.Cut(rest, []byte(`"name":"`+jobPrefix))
		if !found {
			break
		}
		name, _, _ := bytes.Cut(after, []byte(`"`))
		answer.WriteString(separator)
		answer.Write(a[jobPrefix+string(name)])
		rest, separator = after, ","
	}
	answer.WriteString(`],"result":{"status":"Success"}}}`)
	w.Header().Set("Content-Type", "application/json")
	// A client that has gone away is no longer interested in the answer.
	_, _ = w.Write(answer.Bytes())
}

// between returns what stands between the first mark and the next quote.
func between(body []byte, mark string) []byte {
	_, after, _ := bytes.Cut(body, []byte(mark))
	found, _, _ := bytes.Cut(after, []byte(`"`))
	return found
}

// Metrics of the API server.
const (
	// initializations counts the watch caches that were filled, one per version.
	initializations  = `apiserver_watch_cache_initializations_total{group="` + v2alpha1.GroupName + `",resource="dijobs"}`
	serverCPUSeconds = `process_cpu_seconds_total`
)

// coldRound restarts the API server with a converter and measures from the
// first request of both versions, which has it make the watch caches, until
// both caches serve.
func (p *plane) coldRound(ctx context.Context, by *converter) (coldResult, error) {
	if err := p.convertBy(ctx, by); err != nil {
		return coldResult{}, err
	}
	if err := p.restart(ctx); err != nil {
		return coldResult{}, err
	}
	if by != nil {
		by.taken()
	}
	before, err := p.counter(ctx, serverCPUSeconds)
	if err != nil {
		return coldResult{}, err
	}
	began, cpu := time.Now(), cpuTime()
	group, waiting := errgroup.WithContext(ctx)
	for _, version := range []string{v1alpha1.Version, v2alpha1.Version} {
		group.Go(func() error { return p.waitCached(waiting, version) })
	}
	if err := group.Wait(); err != nil {
		return coldResult{}, err
	}
	result := coldResult{took: time.Since(began), cpu: cpuTime() - cpu}
	if by != nil {
		result.reviews, result.objects = by.taken()
	}
	err = p.checkCold(ctx, before, &result)
	return result, err
}

// checkCold completes a result by what the API server says of itself.
func (p *plane) checkCold(ctx context.Context, before float64, result *coldResult) error {
	after, err := p.counter(ctx, serverCPUSeconds)
	if err != nil {
		return err
	}
	result.serverCPU = time.Duration((after - before) * float64(time.Second))
	filled, err := p.counter(ctx, initializations)
	if err == nil && filled != 2 {
		err = fmt.Errorf("the API server says that %v watch caches of dijobs were filled, expected 2", filled)
	}
	return err
}

// waitCached returns when the watch cache of a version serves. A watch from
// resource version 0 is served from there or not at all: the API server
// answers that there are too many requests until the cache is filled.
func (p *plane) waitCached(ctx context.Context, version string) error {
	selector := url.QueryEscape("metadata.name=" + jobName(coldJobs-1))
	path := fmt.Sprintf("%s/apis/%s/%s/namespaces/%s/dijobs?watch=true&resourceVersion=0&fieldSelector=%s",
		p.url, v2alpha1.GroupName, version, namespace, selector)
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = p.firstEvent(ctx, path)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the watch cache of %s: %w", version, errors.Join(err, last))
	}
	return nil
}

// firstEvent returns when a watch has sent its first event.
func (p *plane) firstEvent(ctx context.Context, path string) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := p.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	event, err := bufio.NewReader(response.Body).ReadString('\n')
	if err == nil && !strings.HasPrefix(event, `{"type":"ADDED"`) {
		err = fmt.Errorf("unexpected event %.100s", event)
	}
	return err
}

// cpuTime returns the CPU time that this process, which serves the webhooks,
// has used.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func printCold(out io.Writer, contenders []*contender) error {
	fmt.Fprintf(out, "From the first request after a start of the API server until the watch caches of both versions serve;\n"+
		"medians of %d rounds, the contenders in turn. CPU is that of the process with the webhook, and of the API server.\n\n", coldRounds)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "conversion\ttime\tleast\tmost\tfloor x\tCPU\tserver CPU\treviews\tobjects/review")
	floor := contenders[1].median().took
	for _, c := range contenders {
		median, least, most := c.median(), c.sorted()[0], c.sorted()[len(c.results)-1]
		perReview := "-"
		if median.reviews > 0 {
			perReview = fmt.Sprintf("%.1f", float64(median.objects)/float64(median.reviews))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.2f\t%s\t%s\t%d\t%s\n", c.name, seconds(median.took), seconds(least.took), seconds(most.took),
			float64(median.took)/float64(floor), seconds(median.cpu), seconds(median.serverCPU), median.reviews, perReview)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	ratio := float64(contenders[0].median().took) / float64(floor)
	if ratio > coldLimit {
		fmt.Fprintf(out, "\nFAIL: our webhook takes %.2f times the floor, more than %.1f\n", ratio, coldLimit)
		return fmt.Errorf("our webhook takes %.2f times what any webhook must take, more than %.1f", ratio, coldLimit)
	}
	fmt.Fprintf(out, "\nPASS: our webhook takes %.2f times the floor, at most %.1f allowed\n", ratio, coldLimit)
	return nil
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func (c *contender) sorted() []coldResult {
	return slices.SortedFunc(slices.Values(c.results), func(a, b coldResult) int { return int(a.took - b.took) })
}

func (c *contender) median() coldResult {
	return c.sorted()[len(c.results)/2]
}
