// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/kubelet"
	"opendilab.org/di-orchestrator/test/testkit/pace"
)

// reportTime is the timeout of a report.
const reportTime = 30 * time.Second

// errNotRunning is the result of a report whose job has no running pod, for example because it restarts.
var errNotRunning = fmt.Errorf("%w: the first pod of the job is not running", pace.ErrNotMade)

// Reporters are the first pods of all jobs, which report to a di-server.
type Reporters struct {
	Kubelet *kubelet.Kubelet
	Server  string
	Jobs    int
	// First is the number of the first report.
	First int
}

// Report sends the report with the given number, from the address of a job's pod and by a connection of its
// own, as the requests library of Python does.
func (r *Reporters) Report(ctx context.Context, number int) error {
	number += r.First
	job := JobName(number % r.Jobs)
	pod := r.Kubelet.Pod(types.NamespacedName{Namespace: cluster.Namespace, Name: names.WorkerPod(job, WorkerTask, 0)})
	if pod == nil || pod.Status.PodIP == "" {
		return errNotRunning
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(pod.Status.PodIP)}, Timeout: reportTime}
	by := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: reportTime}
	url := fmt.Sprintf("http://%s/v2alpha1/%s.%s/profilings", r.Server, cluster.Namespace, job)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(reportOf(number/r.Jobs)))
	if err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	response, err := by.Do(request)
	if err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("reporting: %w", err)
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
