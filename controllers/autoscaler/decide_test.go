// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/queueing"
)

// measuredJob returns a job with two collectors that make 20 samples a second, and a learner that takes 80.
func measuredJob(now time.Time) (memory, measurement) {
	state := ratio.State{}
	known := memory{requested: -1, estimator: ratio.NewEstimator(ratio.DefaultEstimator(), state), state: state}
	return known, measurement{
		job: newJob(2), rule: &v2alpha1.RatioRule{}, now: now, estimator: known.estimator, isDue: true,
		roles: &roles{pools: []pool{{Pool: ratio.Pool{Task: "collector", Min: 1, Max: 40}, requested: 2}}, consumer: "learner"},
		figures: ratio.Measurement{
			ProducerCapacity: 20, ConsumerCapacity: 80, Batch: 800, Queue: 400, Pools: []ratio.PoolSize{{Requested: 2, Running: 2}},
		},
	}
}

func TestADecisionKeepsTheStateOfTheRuleUntilItIsCarriedOut(t *testing.T) {
	known, measured := measuredJob(time.Unix(1e9, 0))
	next, decided := decide(known, measured)
	if !decided.isResize || decided.pools[0] <= 2 || decided.reason != v2alpha1.ReasonFollowing {
		t.Errorf("collectors %v for reason %q, want more than 2", decided.pools, decided.reason)
	}
	if !next.nextAt.After(measured.now) || next.state != known.state || decided.next == known.state {
		t.Errorf("next decision at %v in state %+v, then %+v, want a later one, and another state only then", next.nextAt, next.state, decided.next)
	}
}

func TestADecisionThatIsNotDueOnlyLearns(t *testing.T) {
	known, measured := measuredJob(time.Unix(1e9, 0))
	measured.isDue, measured.estimator = false, known.estimator.Clone()
	next, decided := decide(known, measured)
	if !decided.isPostponed || next.estimator != measured.estimator || !next.nextAt.Equal(known.nextAt) {
		t.Errorf("decision %+v and memory %+v, want a postponed one and only another estimator", decided, next)
	}
}

func TestAJobThatAnotherOneKeepsFromPrometheusIsMeasuredSoon(t *testing.T) {
	known, measured := measuredJob(time.Unix(1e9, 0))
	measured.isQueued, measured.asked = true, inquiry{at: measured.now, generation: 1}
	next, decided := decide(known, measured)
	if !decided.isPostponed || !next.nextAt.Equal(measured.now.Add(queryPause)) || next.asked != measured.asked {
		t.Errorf("decision %+v and memory %+v, want the next one after %v and the answer about masters", decided, next, queryPause)
	}
}

func TestAnObstacleKeepsTheSize(t *testing.T) {
	known, measured := measuredJob(time.Unix(1e9, 0))
	measured.obstacle, measured.message = v2alpha1.ReasonOtherMaster, "another one"
	next, decided := decide(known, measured)
	if decided.isResize || decided.value != corev1.ConditionFalse || decided.reason != v2alpha1.ReasonOtherMaster || decided.message != "another one" {
		t.Errorf("decision %+v, want one that names the obstacle", decided)
	}
	if !next.nextAt.Equal(measured.now.Add(interval)) {
		t.Errorf("next decision at %v, want one after %v", next.nextAt, interval)
	}
}

func TestOnlyResizesByTheOneWhoIsAdvisedCount(t *testing.T) {
	for who, prepare := range map[string]func(*measurement){
		"the coordinator": func(m *measurement) { m.rule.Driver = v2alpha1.RatioByCoordinator },
		"the allocator":   func(m *measurement) { m.job.Spec.Preemptible = true },
	} {
		known, measured := measuredJob(time.Unix(1e9, 0))
		prepare(&measured)
		next, decided := decide(known, measured)
		if decided.isResize || !decided.isNew || decided.reason != v2alpha1.ReasonAdvising || !decided.next.GrownAt.IsZero() || decided.status.GrownAt != nil {
			t.Errorf("%s: decision %+v, want an advice and no resize", who, decided)
		}
		if !strings.HasPrefix(decided.message, who) {
			t.Errorf("the message is %q, want one about %s", decided.message, who)
		}
		measured.roles.pools[0].requested, measured.now = 4, measured.now.Add(interval)
		if next, _ = decide(next, measured); !next.state.GrownAt.Equal(measured.now) || next.requested != 4 {
			t.Errorf("memory %+v, want a job that grew when %s gave it more", next, who)
		}
	}
}

func TestWhatShrinksSplitsNoGroupOfKueue(t *testing.T) {
	// Group "" stands for a replica that queues by itself. The learner is in the first group.
	for name, tc := range map[string]struct {
		groups []string
		want   []int32
	}{
		"a job as it started":               {[]string{"first", "first"}, nil},
		"two groups more":                   {[]string{"first", "b", "b", "c", "c"}, []int32{1, 3}},
		"single ones more":                  {[]string{"first", "", "", "c", "c"}, []int32{1, 2, 3}},
		"a group around another":            {[]string{"first", "b", "c", "b"}, []int32{1}},
		"a replica of the first group last": {[]string{"first", "b", "first"}, nil},
	} {
		p := &pool{Pool: ratio.Pool{Task: "collector"}, requested: int32(len(tc.groups))}
		pods := []corev1.Pod{groupedPod("learner", 0, "first")}
		for i := range tc.groups {
			at := len(tc.groups) - 1 - i
			pods = append(pods, groupedPod("collector", int32(at), tc.groups[at]))
		}
		if got := p.smaller("job", pods); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
		if got := p.smaller("job", pods[:len(pods)-1]); got != nil {
			t.Errorf("%s, without a pod of the first replica: got %v, want none", name, got)
		}
	}
}

func groupedPod(task string, index int32, group string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: names.WorkerPod("job", task, index), Labels: map[string]string{names.LabelTaskName: task, queueing.LabelGroup: group},
	}}
}
