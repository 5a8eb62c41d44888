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
	"net/url"
	"os"
	"os/exec"
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
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// benchJobs is how many jobs the page of the benchmark has.
const benchJobs = 5000

// How long and how often BenchmarkPageOfChangingJobs changes jobs.
var (
	changing = flag.Duration("ui.changing", time.Minute, "how long the benchmark of changing jobs changes them")
	rate     = flag.Int("ui.rate", 50, "how many jobs that benchmark changes in a second")
)

// BenchmarkPageOf5000Jobs measures kubectl di ui as a program, with jobs on a real API server: how
// long the first page and a pushed change take, and the memory of the program.
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
	if err != nil {
		b.Fatal(err)
	}
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
}

// openPage starts the program until the context ends, and opens its page with the last jobs.
func (w *world) openPage(ctx context.Context, b *testing.B, binary, namespace string) *benchPage {
	b.Helper()
	command := exec.CommandContext(ctx, binary, "ui", "--kubeconfig", w.kubeconfig, "-n", namespace)
	// The environment of a build may have another target of the garbage collector.
	command.Env = append(os.Environ(), "GOGC=100")
	out, err := command.StdoutPipe()
	mustBench(b, err)
	mustBench(b, command.Start())
	printed, err := bufio.NewReader(out).ReadString('\n')
	mustBench(b, err)
	jar, err := cookiejar.New(nil)
	mustBench(b, err)
	address := strings.TrimSpace(printed)
	base, _, _ := strings.Cut(address, "/?")
	p := &benchPage{Client: &http.Client{Jar: jar}, base: base, process: command.Process.Pid}
	p.read(ctx, b, address)
	streaming := p.ask(ctx, b, base+"/api/v1/jobs/stream?sort=name&limit=100&offset=4900")
	b.Cleanup(func() { _ = streaming.Body.Close() })
	p.stream = bufio.NewReader(streaming.Body)
	nextPage(b, p.stream, func(page *api.JobPage) bool { return page.Synced && page.Total == benchJobs })
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
	begun := time.Now()
	p := w.openPage(ctx, b, binary, job.Namespace)
	first := time.Since(begun)
	job.Status.Phase, job.Status.Restarts = v2alpha1.JobRunning, job.Status.Restarts+1
	changed := time.Now()
	mustBench(b, w.live.Status().Update(ctx, job))
	nextPage(b, p.stream, func(page *api.JobPage) bool { return page.Items[99].Restarts == job.Status.Restarts })
	b.ReportMetric(float64(first.Milliseconds()), "first-page-ms")
	b.ReportMetric(float64(time.Since(changed).Milliseconds()), "push-ms")
	asked := time.Now()
	for range 20 {
		p.read(ctx, b, p.base+"/api/v1/jobs?sort=-gpus&search=job&limit=200")
	}
	b.ReportMetric(float64(time.Since(asked).Milliseconds())/20, "page-ms")
	for name, unit := range map[string]string{"VmRSS": "rss-MiB", "VmHWM": "peak-rss-MiB"} {
		b.ReportMetric(memoryOf(b, p.process, name), unit)
	}
}

// measureChanges changes jobs in turn for a time, and reports how the memory grew.
func (w *world) measureChanges(b *testing.B, binary string, jobs []*v2alpha1.DIJob) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	p := w.openPage(ctx, b, binary, jobs[0].Namespace)
	b.ReportMetric(memoryOf(b, p.process, "VmRSS"), "start-rss-MiB")
	heap := p.inChromium(ctx, b)
	pages := make(chan int64, 1)
	last := jobs[benchJobs-1]
	go func() {
		count := int64(0)
		nextPage(b, p.stream, func(page *api.JobPage) bool { count++; return page.Items[99].Phase == string(v2alpha1.JobFailed) })
		pages <- count
	}()
	changes := w.change(ctx, b, jobs)
	last.Status.Phase = v2alpha1.JobFailed
	ended := time.Now()
	mustBench(b, w.live.Status().Update(ctx, last))
	b.ReportMetric(float64(<-pages), "pages")
	b.ReportMetric(float64(time.Since(ended).Milliseconds()), "push-ms")
	b.ReportMetric(float64(changes)/changing.Seconds(), "changes/s")
	heap()
	b.ReportMetric(memoryOf(b, p.process, "VmRSS"), "end-rss-MiB")
	b.ReportMetric(memoryOf(b, p.process, "VmHWM"), "peak-rss-MiB")
}

// inChromium opens the page in Chromium too, if CHROMIUM names it. The function that it returns closes the
// page, and reports its memory.
func (p *benchPage) inChromium(ctx context.Context, b *testing.B) func() {
	b.Helper()
	if os.Getenv("CHROMIUM") == "" {
		return func() {}
	}
	base, err := url.Parse(p.base)
	mustBench(b, err)
	cookie := p.Jar.Cookies(base)[0]
	command := exec.CommandContext(ctx, "node", "e2e/memory.mjs", p.base, cookie.Name, cookie.Value)
	command.Dir, command.Stderr = "../../web", os.Stderr
	var output bytes.Buffer
	command.Stdout = &output
	input, err := command.StdinPipe()
	mustBench(b, err)
	mustBench(b, command.Start())
	return func() {
		mustBench(b, errors.Join(input.Close(), command.Wait()))
		var end, peak float64
		_, err := fmt.Sscan(output.String(), &end, &peak)
		mustBench(b, err)
		b.ReportMetric(end, "end-page-MiB")
		b.ReportMetric(peak, "peak-page-MiB")
	}
}

// change changes jobs in turn at a steady pace, and returns how often.
func (w *world) change(ctx context.Context, b *testing.B, jobs []*v2alpha1.DIJob) int {
	b.Helper()
	pace := time.NewTicker(time.Second / time.Duration(*rate))
	defer pace.Stop()
	var writing errgroup.Group
	writing.SetLimit(16)
	count := 0
	for begun := time.Now(); time.Since(begun) < *changing; count++ {
		job, round := jobs[count%len(jobs)], count/len(jobs)
		job.Status.Phase = []v2alpha1.Phase{v2alpha1.JobRunning, v2alpha1.JobRestarting}[round%2]
		job.Status.Restarts = int32(round) //nolint:gosec // it is small
		job.Status.Profilings = &v2alpha1.RawObject{}
		job.Status.Profilings.Raw = fmt.Appendf(nil, `{"reward": %d, "fps": %d, "loss": %d}`, count, count%7, count%11)
		writing.Go(func() error { return w.live.Status().Update(ctx, job) })
		<-pace.C
	}
	mustBench(b, writing.Wait())
	return count
}

// nextPage reads a stream until a page is as wanted.
func nextPage(b *testing.B, stream *bufio.Reader, wanted func(*api.JobPage) bool) {
	b.Helper()
	for {
		line, err := stream.ReadBytes('\n')
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
