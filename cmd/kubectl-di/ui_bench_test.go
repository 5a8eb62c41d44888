// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
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

// BenchmarkPageOf5000Jobs measures kubectl di ui as a program, with jobs on a real API server: how
// long the first page and a pushed change take, and the memory of the program.
func BenchmarkPageOf5000Jobs(b *testing.B) {
	needed.Store(true)
	w, err := started()
	mustBench(b, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	mustBench(b, w.live.Create(b.Context(), ns))
	last := w.benchJobs(b, ns.Name)
	bin := b.TempDir()
	binary, err := program.BuildCommand(b.Context(), bin, "kubectl-di")
	mustBench(b, err)
	begun := time.Now()
	mustBench(b, w.live.List(b.Context(), &v2alpha1.DIJobList{}, client.InNamespace(ns.Name)))
	b.Logf("a plain list of the jobs takes %s", time.Since(begun))
	for b.Loop() {
		w.measurePage(b, binary, last)
	}
}

func mustBench(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// benchJobs creates jobs with templates of usual size, and returns the last one.
func (w *world) benchJobs(b *testing.B, namespace string) *v2alpha1.DIJob {
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
	return jobs[benchJobs-1]
}

// measurePage starts the program, and measures it.
func (w *world) measurePage(b *testing.B, binary string, job *v2alpha1.DIJob) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	command := exec.CommandContext(ctx, binary, "ui", "--kubeconfig", w.kubeconfig, "-n", job.Namespace)
	out, err := command.StdoutPipe()
	mustBench(b, err)
	begun := time.Now()
	mustBench(b, command.Start())
	printed, err := bufio.NewReader(out).ReadString('\n')
	mustBench(b, err)
	jar, err := cookiejar.New(nil)
	mustBench(b, err)
	browsing := &http.Client{Jar: jar}
	open := func(address string) *http.Response {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		mustBench(b, err)
		response, err := browsing.Do(request)
		mustBench(b, err)
		return response
	}
	address := strings.TrimSpace(printed)
	_ = open(address).Body.Close()
	base, _, _ := strings.Cut(address, "/?")
	streaming := open(base + "/api/v1/jobs/stream?sort=name&limit=100&offset=4900")
	defer streaming.Body.Close() //nolint:errcheck // it was read
	stream := bufio.NewReader(streaming.Body)
	nextPage(b, stream, func(page *api.JobPage) bool { return page.Synced && page.Total == benchJobs })
	first := time.Since(begun)
	job.Status.Phase, job.Status.Restarts = v2alpha1.JobRunning, job.Status.Restarts+1
	changed := time.Now()
	mustBench(b, w.live.Status().Update(ctx, job))
	nextPage(b, stream, func(page *api.JobPage) bool { return page.Items[99].Restarts == job.Status.Restarts })
	b.ReportMetric(float64(first.Milliseconds()), "first-page-ms")
	b.ReportMetric(float64(time.Since(changed).Milliseconds()), "push-ms")
	asked := time.Now()
	for range 20 {
		_ = open(base + "/api/v1/jobs?sort=-gpus&search=job&limit=200").Body.Close()
	}
	b.ReportMetric(float64(time.Since(asked).Milliseconds())/20, "page-ms")
	for name, unit := range map[string]string{"VmRSS": "rss-MiB", "VmHWM": "peak-rss-MiB"} {
		b.ReportMetric(memoryOf(b, command.Process.Pid, name), unit)
	}
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
