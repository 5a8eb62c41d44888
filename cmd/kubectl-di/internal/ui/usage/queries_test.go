// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func jobOf(namespace, name string, tasks ...string) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, task := range tasks {
		job.Spec.Tasks = append(job.Spec.Tasks, v2alpha1.Task{Name: task})
	}
	return job
}

// selectors returns what the queries of a job select, by Prometheus' own parser.
func selectors(t *testing.T, job *v2alpha1.DIJob) [][]*labels.Matcher {
	t.Helper()
	var all [][]*labels.Matcher
	for _, one := range queriesOf(job, leastStep) {
		expression, err := parser.NewParser(parser.Options{}).ParseExpr(one.text)
		if err != nil {
			t.Fatalf("%s: %v", one.text, err)
		}
		all = append(all, parser.ExtractSelectors(expression)...)
	}
	return all
}

// has reports whether all matchers match the labels of a series.
func has(matchers []*labels.Matcher, series map[string]string) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(series[m.Name]) })
}

// seriesOf returns the series of a pod by the programs that measure.
func seriesOf(namespace, pod string) []map[string]string {
	exporter := map[string]string{"__name__": "DCGM_FI_DEV_GPU_UTIL", "namespace": "gpu-operator", "pod": "dcgm-exporter-x"}
	exporter["exported_namespace"], exporter["exported_pod"] = namespace, pod
	return []map[string]string{
		exporter,
		{"__name__": "DCGM_FI_DEV_GPU_UTIL", "namespace": namespace, "pod": pod},
		{"__name__": "container_cpu_usage_seconds_total", "namespace": namespace, "pod": pod, "container": "di-container"},
		{"__name__": "container_memory_working_set_bytes", "namespace": namespace, "pod": pod, "container": "di-container"},
	}
}

func TestQueriesSelectOnlyThePodsOfTheJob(t *testing.T) {
	t.Parallel()
	hostile := `a"} or secret{x=~".*`
	for _, tc := range []struct {
		job        *v2alpha1.DIJob
		own, other []string
	}{
		{jobOf("rl", "a", "learner"), []string{"rl/a-learner-0", "rl/a-learner-17"}, []string{"rl/a-b-learner-0", "rl/ab-learner-0", "other/a-learner-0", "rl/a-learner", "/a-learner-0"}},
		{jobOf("rl", "a.b", "learner"), []string{"rl/a.b-learner-0"}, []string{"rl/aab-learner-0", "rl/a-b-learner-0"}},
		{jobOf(hostile, hostile, hostile), []string{hostile + "/" + hostile + "-" + hostile + "-0"}, []string{"rl/a-learner-0", "a/a-a-0"}},
	} {
		found := selectors(t, tc.job)
		expect.Equal(t, "selectors of three queries", 4, len(found))
		for _, pods := range []struct {
			names []string
			want  int
		}{{tc.own, 1}, {tc.other, 0}} {
			for _, pod := range pods.names {
				namespace, name, _ := strings.Cut(pod, "/")
				for _, series := range seriesOf(namespace, name) {
					count := 0
					for _, matchers := range found {
						if has(matchers, series) {
							count++
						}
					}
					expect.Equal(t, fmt.Sprintf("job %s: selectors of series %v", tc.job.Name, series), pods.want, count)
				}
			}
		}
	}
}

func TestASumLeavesOutWhatIsNoContainer(t *testing.T) {
	t.Parallel()
	for _, container := range []string{"", "POD"} {
		for _, series := range seriesOf("rl", "a-learner-0")[2:] {
			series["container"] = container
			for _, matchers := range selectors(t, jobOf("rl", "a", "learner")) {
				expect.Equal(t, fmt.Sprintf("selector %v of container %q", matchers, container), false, has(matchers, series))
			}
		}
	}
}

func TestPointsAreBoundedAndInTheTimeOfTheJob(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, lasted := range []time.Duration{
		-time.Hour, 0, time.Second, 15 * time.Second, time.Minute, 49 * time.Minute, 50 * time.Minute, 50*time.Minute + time.Second, time.Hour, 1000 * time.Hour, 100_000*time.Hour + 7,
	} {
		job := jobOf("rl", "a", "learner")
		job.CreationTimestamp = metav1.NewTime(created)
		now := created.Add(lasted)
		span := spanOf(job, now)
		points := 0
		for at := span.Start; !at.After(span.End); at = at.Add(span.Step) {
			points++
			if at.Before(created) && lasted >= 0 {
				t.Errorf("%s: a point is %s before the job", lasted, created.Sub(at))
			}
		}
		if points < 1 || points > 200 || span.Step < 15*time.Second || !span.End.Equal(now) {
			t.Errorf("%s: %d points in %+v", lasted, points, span)
		}
		job.Status.CompletionTimestamp = &metav1.Time{Time: now}
		expect.Equal(t, "the span of a job that has finished", span, spanOf(job, now.Add(time.Hour)))
	}
}

func TestAJobWithManyTasksHasOneCurve(t *testing.T) {
	t.Parallel()
	for job, grouping := range map[*v2alpha1.DIJob]string{
		jobOf("rl", "eight", "a", "b", "c", "d", "e", "f", "g", "h"): "role", jobOf("rl", "nine", "a", "b", "c", "d", "e", "f", "g", "h", "i"): "",
	} {
		for _, one := range queriesOf(job, leastStep) {
			expression, err := parser.NewParser(parser.Options{}).ParseExpr(one.text)
			expect.NoError(t, err)
			if of, is := expression.(*parser.AggregateExpr); !is || strings.Join(of.Grouping, ",") != grouping {
				t.Errorf("%s: got %s", job.Name, one.text)
			}
		}
	}
}
