// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

func TestJobsAreCountedByLifecycleAndPhase(t *testing.T) {
	t.Parallel()
	list := &v2alpha1.DIJobList{Items: make([]v2alpha1.DIJob, 7)}
	for i, phase := range []v2alpha1.Phase{"", v2alpha1.JobPending, v2alpha1.JobRunning, "Odd", v2alpha1.JobFailed, v2alpha1.JobRunning, v2alpha1.JobFailed} {
		list.Items[i].Status.Phase = phase
	}
	list.Items[4].Spec.Lifecycle = v2alpha1.LifecycleCoordinatorLed
	list.Items[5].Spec.ManagedBy = ptr.To("example.com/other")
	list.Items[6].DeletionTimestamp, list.Items[6].Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{names.FinalizerHistory}
	var failure error
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCounts(func() (*v2alpha1.DIJobList, error) { return list, failure }))
	want := `# HELP di_orchestrator_jobs Existing jobs that are not terminating, by lifecycle and phase; only the leader reports it.
# TYPE di_orchestrator_jobs gauge
di_orchestrator_jobs{lifecycle="CoordinatorLed",phase="Failed"} 1
di_orchestrator_jobs{lifecycle="WorkerLed",phase="Pending"} 2
di_orchestrator_jobs{lifecycle="WorkerLed",phase="Running"} 1
di_orchestrator_jobs{lifecycle="WorkerLed",phase="Unknown"} 1
# HELP di_orchestrator_jobs_waiting_for_history Deleted jobs that stay until the history has recorded their end, with history.require; only the leader reports it.
# TYPE di_orchestrator_jobs_waiting_for_history gauge
di_orchestrator_jobs_waiting_for_history 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	failure = errors.New("no cache")
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "listing the jobs: no cache") {
		t.Errorf("got %v", err)
	}
}
