// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

// reportTime is the timeout of a report.
const reportTime = 30 * time.Second

// errNotRunning is the result of a report whose job has no running pod, for example because it restarts.
var errNotRunning = fmt.Errorf("%w: the first pod of the job is not running", pace.ErrNotMade)

// reporters are the first pods of all jobs, which report to di-server.
type reporters struct {
	kubelet *harness.Kubelet
	server  string
	jobs    int
	// first is the number of the first report.
	first int
}

// report sends the report with the given number, from the address of a job's pod and by a connection of its
// own, as the requests library of Python does.
func (r *reporters) report(ctx context.Context, number int) error {
	number += r.first
	job := allocatedName(number % r.jobs)
	pod := r.kubelet.Pod(types.NamespacedName{Namespace: oursNamespace, Name: names.WorkerPod(job, workerTask, 0)})
	if pod == nil || pod.Status.PodIP == "" {
		return errNotRunning
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(pod.Status.PodIP)}, Timeout: reportTime}
	conn, err := dialer.DialContext(ctx, "tcp", r.server)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	return errors.Join(r.send(ctx, conn, job, reportOf(number/r.jobs)), conn.Close())
}

func (r *reporters) send(ctx context.Context, conn net.Conn, job, body string) error {
	if err := conn.SetDeadline(time.Now().Add(reportTime)); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	url := fmt.Sprintf("http://%s/v2alpha1/%s.%s/profilings", r.server, oursNamespace, job)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	if err := request.Write(conn); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return fmt.Errorf("receiving: %w", err)
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("receiving: %w", err)
	}
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(string(content), `{"success":true`) {
		return fmt.Errorf("%s: %.300s", response.Status, content)
	}
	return nil
}

// reportOf returns what a job reports after so many reports: the steps of a model that scales well, its
// gradient noise, and its progress.
func reportOf(reported int) string {
	var steps []string
	for replicas := 1; replicas <= 8; replicas *= 2 {
		steps = append(steps, fmt.Sprintf(`{"nodes":1,"replicas":%d,"samples":128,"seconds":%g,"compute_seconds":0.1}`, replicas, 0.1+0.01*float64(replicas)))
	}
	return fmt.Sprintf(`{"version":1,"batch":{"initial":128,"max":8192,"max_per_replica":1024},"steps":[%s],`+
		`"gradient":{"sqr":0.01,"var":%g},"progress":{"done":%d,"total":1000000,"unit":"samples"}}`,
		strings.Join(steps, ","), 5+0.01*float64(reported), reported*10_000)
}
