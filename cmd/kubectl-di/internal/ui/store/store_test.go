// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// shown returns a store with a clock.
func shown() (*Store, *testingclock.FakeClock) {
	clk := testingclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	return New(clk), clk
}

// job returns a job in a phase that reports a reward.
func job(name string, phase v2alpha1.Phase, reward float64) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: name, UID: types.UID(name)}}
	job.Spec.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner}}
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":2}}}]}}`)
	job.Status.Phase = phase
	job.Status.Profilings = ptr.To(jobs.Raw(fmt.Sprintf(`{"reward": %g}`, reward)))
	return job
}

func (s *Store) put(job *v2alpha1.DIJob) { s.Apply(cluster.Change{Object: Reduce(job)}) }

func query(t *testing.T, text string) *Query {
	t.Helper()
	values, err := url.ParseQuery(text)
	expect.NoError(t, err)
	parsed, err := ParseQuery(values)
	expect.NoError(t, err)
	return parsed
}

func TestPagesAreSortedByTheLastReportedReward(t *testing.T) {
	t.Parallel()
	s, _ := shown()
	for i, reward := range []float64{3, 1, 2} {
		s.put(job(fmt.Sprint("job-", i), v2alpha1.JobRunning, reward))
	}
	page := s.Page(query(t, "sort=-curve&limit=2"))
	if len(page.Items) != 2 || page.Items[0].Name != "job-0" || page.Items[1].Name != "job-2" || page.Items[0].GPUs != 2 {
		t.Errorf("the page is %+v", page.Items)
	}
}

func TestStoreRemembersPhasesAndAFewPointsOfALongCurve(t *testing.T) {
	t.Parallel()
	s, clk := shown()
	for i := range 1000 {
		s.put(job("pong", v2alpha1.JobRunning, float64(i)))
		clk.Step(time.Second)
	}
	s.put(job("pong", v2alpha1.JobFailed, 1000))
	past := s.Past(types.NamespacedName{Namespace: "rl", Name: "pong"})
	points := past.Best.Points
	if len(points) > 64 || points[0][1] != 0 || points[len(points)-1][1] != 1000 {
		t.Errorf("the curve has %d points: %v", len(points), points)
	}
	if len(past.Moments) != 1 || past.Moments[0].Title != "Failed" {
		t.Errorf("the moments are %+v", past.Moments)
	}
}

func TestAResizeIsRememberedAndTheEndOfAJobIsNone(t *testing.T) {
	t.Parallel()
	s, _ := shown()
	none, ended := job("pong", v2alpha1.JobRunning, 1), job("pong", v2alpha1.JobSucceeded, 1)
	none.Spec.Tasks[0].Replicas = ptr.To[int32](0)
	for _, next := range []*v2alpha1.DIJob{job("pong", v2alpha1.JobRunning, 1), none, job("pong", v2alpha1.JobRunning, 1), ended} {
		s.put(next)
	}
	var texts []string
	for _, moment := range s.Past(types.NamespacedName{Namespace: "rl", Name: "pong"}).Moments {
		texts = append(texts, moment.Text)
	}
	expect.Equal(t, "moments", []string{
		"The desired replicas changed from 1 to 0.", "The desired replicas changed from 0 to 1.", "The phase changed from Running to Succeeded.",
	}, texts)
}

func TestJobOfTheSameNameHasNoPastOfTheOther(t *testing.T) {
	t.Parallel()
	s, _ := shown()
	s.put(job("pong", v2alpha1.JobRunning, 1))
	other := job("pong", v2alpha1.JobPending, 2)
	other.UID = "other"
	s.put(other)
	past := s.Past(types.NamespacedName{Namespace: "rl", Name: "pong"})
	if len(past.Moments) != 0 || len(past.Best.Points) != 1 {
		t.Errorf("the past is %+v", past)
	}
}

func TestStoreKeepsNoTemplates(t *testing.T) {
	t.Parallel()
	s, _ := shown()
	s.put(job("pong", v2alpha1.JobRunning, 1))
	if kept := s.Entries()[0]; len(kept.Job.Spec.Tasks[0].Template.Raw) > 0 || kept.Row.GPUs != 2 {
		t.Errorf("the entry is %+v", kept)
	}
}

func TestChangedChannelClosesAtAChange(t *testing.T) {
	t.Parallel()
	s, _ := shown()
	changed := s.Changed()
	s.put(job("pong", v2alpha1.JobRunning, 1))
	select {
	case <-changed:
	default:
		t.Error("the channel is open")
	}
}

func TestUserWhoseRightIsDeniedSeesNoJobs(t *testing.T) {
	t.Parallel()
	s, _ := shown()
	s.put(job("pong", v2alpha1.JobRunning, 1))
	s.Stopped(errors.New("the network is down"))
	if page := s.Page(query(t, "")); page.Total != 1 {
		t.Errorf("without a connection the page is %+v", page)
	}
	s.Stopped(apierrors.NewForbidden(v2alpha1.GroupVersion.WithResource("dijobs").GroupResource(), "", nil))
	if page := s.Page(query(t, "")); page.Total != 0 || s.Broken() == nil {
		t.Errorf("without the right the page is %+v", page)
	}
}

func TestWrongQueryNamesTheParameterAndWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"limit=0": "from 1 to 200", "offset=x": "from 0 to 1000000", "sort=x": "want one of createdAt", "namespace=" + strings.Repeat("x", 64): "at most 63",
		strings.Repeat("phase=x&", 21): "phase is given 21 times",
	} {
		values, err := url.ParseQuery(given)
		expect.NoError(t, err)
		if _, err := ParseQuery(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", given, err, want)
		}
	}
}
