// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// benchJobs is how many jobs the page of the benchmark has.
const benchJobs = 5000

// How long and how often BenchmarkPageOfChangingJobs changes jobs.
var (
	changing = flag.Duration("ui.changing", time.Minute, "how long the benchmark of changing jobs changes them")
	rate     = flag.Int("ui.rate", 50, "how many jobs that benchmark changes in a second")
)

// BenchmarkPageOf5000Jobs measures kubectl di ui as a program, with jobs on a real API server: how
// long the first list, the first page, a page that is opened after the list, and a pushed change take, and
// the memory of the program.
func BenchmarkPageOf5000Jobs(b *testing.B) {
	w, binary, jobs := benchWorld(b)
	begun := time.Now()
	mustBench(b, w.live.List(b.Context(), &v2alpha1.DIJobList{}, client.InNamespace(jobs[0].Namespace)))
	b.Logf("a plain list of the jobs takes %s", time.Since(begun))
	for b.Loop() {
		w.measurePage(b, binary, jobs[benchJobs-1])
	}
}

// BenchmarkPageOfChangingJobs measures the memory of kubectl di ui before and after many changes,
// each with a report, while a page is open.
func BenchmarkPageOfChangingJobs(b *testing.B) {
	w, binary, jobs := benchWorld(b)
	for b.Loop() {
		w.measureChanges(b, binary, jobs)
	}
}

// benchWorld returns a cluster with jobs, and the program.
func benchWorld(b *testing.B) (w *world, binary string, jobs []*v2alpha1.DIJob) {
	b.Helper()
	needed.Store(true)
	w, err := started()
	mustBench(b, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	mustBench(b, w.live.Create(b.Context(), ns))
	jobs = w.benchJobs(b, ns.Name)
	binary, err = program.BuildCommand(b.Context(), b.TempDir(), "kubectl-di")
	mustBench(b, err)
	return w, binary, jobs
}

func mustBench(b *testing.B, err error) {
	b.Helper()
	expect.NoError(b, err)
}

// benchJobs creates jobs with templates of usual size.
func (w *world) benchJobs(b *testing.B, namespace string) []*v2alpha1.DIJob {
	b.Helper()
	template := fmt.Sprintf(`{"spec":{"containers":[{"name":"di-container","image":"di","env":[{"name":"TEXT","value":%q}],`+
		`"resources":{"limits":{"nvidia.com/gpu":"2"}}}]}}`, strings.Repeat("x", 2000))
	jobs := make([]*v2alpha1.DIJob, benchJobs)
	var creating errgroup.Group
	creating.SetLimit(16)
	for i := range jobs {
		three := int32(3)
		job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("job-%04d", i)}}
		job.Spec.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner, Replicas: &three}, {Type: v2alpha1.TaskTypeCollector, Replicas: &three}}
		for at := range job.Spec.Tasks {
			job.Spec.Tasks[at].Template.Raw = []byte(template)
		}
		jobs[i] = job
		creating.Go(func() error { return w.live.Create(b.Context(), job) })
	}
	mustBench(b, creating.Wait())
	return jobs
}

// benchPage is a running program, and its page in a browser.
type benchPage struct {
	*http.Client
	base    string
	process int
	stream  *bufio.Reader
	printed time.Time
	// collections is what the garbage collector says.
	collections *bytes.Buffer
	wait        func() error
}

// openPage starts the program until the context ends, and opens its page with the last jobs, and in
// Chromium if there is one.
func (w *world) openPage(ctx context.Context, b *testing.B, binary, namespace string, chromium *chromium) *benchPage {
	b.Helper()
	command := exec.CommandContext(ctx, binary, "ui", "--kubeconfig", w.kubeconfig, "-n", namespace)
	// The environment of a build may have another target of the garbage collector.
	command.Env = append(os.Environ(), "GOGC=100", "GODEBUG=gctrace=1")
	p := &benchPage{collections: &bytes.Buffer{}}
	command.Stderr = p.collections
	out, err := command.StdoutPipe()
	mustBench(b, err)
	mustBench(b, command.Start())
	p.process, p.wait = command.Process.Pid, command.Wait
	printed, err := bufio.NewReader(out).ReadString('\n')
	mustBench(b, err)
	jar, err := cookiejar.New(nil)
	mustBench(b, err)
	p.printed = time.Now()
	address := strings.TrimSpace(printed)
	p.base, _, _ = strings.Cut(address, "/?")
	p.Client = &http.Client{Jar: jar}
	p.read(ctx, b, address)
	chromium.show(b, p)
	streaming := p.ask(ctx, b, p.base+"/api/v1/jobs/stream?sort=name&limit=100&offset=4900")
	b.Cleanup(func() { _ = streaming.Body.Close() })
	p.stream = bufio.NewReader(streaming.Body)
	p.nextPage(b, func(page *api.JobPage) bool { return page.Synced && page.Total == benchJobs })
	return p
}

func (p *benchPage) ask(ctx context.Context, b *testing.B, address string) *http.Response {
	b.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	mustBench(b, err)
	response, err := p.Do(request)
	mustBench(b, err)
	if response.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s", address, response.Status)
	}
	return response
}

// read reads a whole answer.
func (p *benchPage) read(ctx context.Context, b *testing.B, address string) {
	b.Helper()
	response := p.ask(ctx, b, address)
	_, err := io.Copy(io.Discard, response.Body)
	mustBench(b, errors.Join(err, response.Body.Close()))
}

// measurePage starts the program, and measures it.
func (w *world) measurePage(b *testing.B, binary string, job *v2alpha1.DIJob) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	chromium := startChromium(ctx, b)
	begun := time.Now()
	p := w.openPage(ctx, b, binary, job.Namespace, chromium)
	b.ReportMetric(float64(p.printed.Sub(begun).Milliseconds()), "printed-ms")
	b.ReportMetric(float64(time.Since(begun).Milliseconds()), "all-jobs-ms")
	b.ReportMetric(float64(time.Since(p.printed).Milliseconds()), "first-list-ms")
	chromium.reportFirst(b, begun)
	chromium.reportOpened(b)
	job.Status.Phase, job.Status.Restarts = v2alpha1.JobRunning, job.Status.Restarts+1
	changed := time.Now()
	mustBench(b, w.live.Status().Update(ctx, job))
	p.nextPage(b, func(page *api.JobPage) bool { return page.Items[99].Restarts == job.Status.Restarts })
	b.ReportMetric(float64(time.Since(changed).Milliseconds()), "push-ms")
	asked := time.Now()
	for range 20 {
		p.read(ctx, b, p.base+"/api/v1/jobs?sort=-gpus&search=job&limit=200")
	}
	b.ReportMetric(float64(time.Since(asked).Milliseconds())/20, "page-ms")
	for name, unit := range map[string]string{"VmRSS": "rss-MiB", "VmHWM": "peak-rss-MiB"} {
		b.ReportMetric(memoryOf(b, p.process, name), unit)
	}
	chromium.end(b)
}

// measureChanges changes jobs in turn for a time, and reports how the memory grew, and how long
// changes took until they were sent and on the screen.
func (w *world) measureChanges(b *testing.B, binary string, jobs []*v2alpha1.DIJob) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	chromium := startChromium(ctx, b)
	p := w.openPage(ctx, b, binary, jobs[0].Namespace, chromium)
	b.ReportMetric(memoryOf(b, p.process, "VmRSS"), "start-rss-MiB")
	sent := newDelays()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.nextPage(b, func(page *api.JobPage) bool {
			for i := range page.Items {
				sent.saw(page.Items[i].Name, page.Items[i].Restarts, time.Now())
			}
			return page.Items[99].Phase == string(v2alpha1.JobFailed)
		})
	}()
	begun := time.Now()
	changes := w.change(ctx, b, jobs, func(job *v2alpha1.DIJob) {
		now := time.Now()
		sent.wrote(job.Name, job.Status.Restarts, now)
		chromium.delays.wrote(job.Name, job.Status.Restarts, now)
	})
	b.ReportMetric(float64(changes)/time.Since(begun).Seconds(), "changes/s")
	last := jobs[benchJobs-1]
	last.Status.Phase = v2alpha1.JobFailed
	mustBench(b, w.live.Status().Update(ctx, last))
	<-ended
	sent.report(b, "sent")
	chromium.end(b)
	for name, unit := range map[string]string{"VmRSS": "end-rss-MiB", "VmHWM": "peak-rss-MiB", "RssFile": "end-rss-of-files-MiB"} {
		b.ReportMetric(memoryOf(b, p.process, name), unit)
	}
	stop()
	// The context has ended it.
	_ = p.wait()
	b.ReportMetric(liveHeap(b, p.collections.String()), "end-live-heap-MiB")
}

// liveHeap returns what the last garbage collection left, by its trace, in MiB.
func liveHeap(b *testing.B, trace string) float64 {
	b.Helper()
	found := regexp.MustCompile(`\d+->\d+->(\d+) MB`).FindAllStringSubmatch(trace, -1)
	if len(found) == 0 {
		b.Fatalf("no garbage was collected: %s", trace)
	}
	live, err := strconv.ParseFloat(found[len(found)-1][1], 64)
	mustBench(b, err)
	return live
}

// stride spreads the changes of jobs that one page shows.
const stride = 1009

// change changes all jobs in turns at a steady pace, and returns how often. It calls before ahead of
// each change.
func (w *world) change(ctx context.Context, b *testing.B, jobs []*v2alpha1.DIJob, before func(*v2alpha1.DIJob)) int {
	b.Helper()
	pace := time.NewTicker(time.Second / time.Duration(*rate))
	defer pace.Stop()
	var writing errgroup.Group
	writing.SetLimit(16)
	count := 0
	for begun := time.Now(); time.Since(begun) < *changing; count++ {
		job, round := jobs[count*stride%len(jobs)], count/len(jobs)
		job.Status.Phase = []v2alpha1.Phase{v2alpha1.JobRunning, v2alpha1.JobRestarting}[round%2]
		job.Status.Restarts = int32(round + 1) //nolint:gosec // it is small
		job.Status.Profilings = &v2alpha1.RawObject{}
		job.Status.Profilings.Raw = fmt.Appendf(nil, `{"reward": %d, "fps": %d, "loss": %d}`, count, count%7, count%11)
		before(job)
		writing.Go(func() error { return w.live.Status().Update(ctx, job) })
		<-pace.C
	}
	mustBench(b, writing.Wait())
	return count
}

// nextPage reads the stream until a page is as wanted.
func (p *benchPage) nextPage(b *testing.B, wanted func(*api.JobPage) bool) {
	b.Helper()
	for {
		line, err := p.stream.ReadBytes('\n')
		mustBench(b, err)
		data, isData := bytes.CutPrefix(line, []byte("data: "))
		if !isData {
			continue
		}
		page := &api.JobPage{}
		if mustBench(b, json.Unmarshal(data, page)); wanted(page) {
			return
		}
	}
}

// memoryOf returns a size of a process, in MiB.
func memoryOf(b *testing.B, process int, name string) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	mustBench(b, err)
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == name+":" {
			size, err := strconv.ParseFloat(fields[1], 64)
			mustBench(b, err)
			return size / 1024
		}
	}
	b.Fatalf("the process has no %s", name)
	return 0
}
