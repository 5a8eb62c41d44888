// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// measured is a server that answers ranges as Prometheus does, as far as the page asks. Prometheus' own parser reads the
// queries, and its matchers select the series.
type measured struct {
	url    string
	series []series
	asked  atomic.Int32
}

// series is a series with a constant value for some time. That of a counter is how fast it grows.
type series struct {
	labels      map[string]string
	from, until time.Time
	value       float64
}

func measure(t *testing.T) *measured {
	t.Helper()
	m := &measured{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked.Add(1)
		result, err := m.answer(r)
		body := map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			body = map[string]any{"status": "error", "errorType": "bad_data", "error": err.Error()}
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// answer returns the matrix of a request.
func (m *measured) answer(r *http.Request) ([]map[string]any, error) {
	query, err := parser.NewParser(parser.Options{}).ParseExpr(r.FormValue("query"))
	start, fails := strconv.ParseFloat(r.FormValue("start"), 64)
	end, fail := strconv.ParseFloat(r.FormValue("end"), 64)
	step, failed := strconv.ParseFloat(r.FormValue("step"), 64)
	if err := errors.Join(err, fails, fail, failed); err != nil || r.URL.Path != "/api/v1/query_range" || r.Method != http.MethodPost {
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL, err)
	}
	curves := map[string][][2]any{}
	for at := start; at <= end; at += step {
		found, err := m.evaluate(query, time.UnixMilli(int64(at*1000)))
		if err != nil {
			return nil, err
		}
		for _, one := range found {
			curves[one.labels["role"]] = append(curves[one.labels["role"]], [2]any{at, strconv.FormatFloat(one.value, 'g', -1, 64)})
		}
	}
	result := []map[string]any{}
	for role, values := range curves {
		result = append(result, map[string]any{"metric": map[string]string{"role": role}, "values": values})
	}
	return result, nil
}

// evaluate returns the value of an expression at a time.
func (m *measured) evaluate(query parser.Expr, at time.Time) ([]series, error) {
	switch query := query.(type) {
	case *parser.AggregateExpr:
		found, err := m.evaluate(query.Expr, at)
		return aggregated(found, query.Op == parser.AVG), err
	case *parser.ParenExpr:
		return m.evaluate(query.Expr, at)
	case *parser.BinaryExpr:
		left, err := m.evaluate(query.LHS, at)
		right, failed := m.evaluate(query.RHS, at)
		return append(left, right...), errors.Join(err, failed)
	case *parser.Call:
		found, err := m.evaluate(query.Args[0], at)
		if query.Func.Name != "label_replace" || err != nil {
			return found, err
		}
		return relabelled(found, query.Args[1:])
	case *parser.MatrixSelector:
		return m.evaluate(query.VectorSelector, at)
	case *parser.VectorSelector:
		return slices.DeleteFunc(slices.Clone(m.series), func(one series) bool {
			return at.Before(one.from) || at.After(one.until) || slices.ContainsFunc(query.LabelMatchers, func(matcher *labels.Matcher) bool {
				return !matcher.Matches(one.labels[matcher.Name])
			})
		}), nil
	}
	return nil, fmt.Errorf("%s is not asked by the page", query)
}

// relabelled does what label_replace does.
func relabelled(all []series, args parser.Expressions) ([]series, error) {
	var texts []string
	for _, arg := range args {
		text, is := arg.(*parser.StringLiteral)
		if !is {
			return nil, fmt.Errorf("%s is no text", arg)
		}
		texts = append(texts, text.Val)
	}
	expression, err := regexp.Compile("^(?s:" + texts[3] + ")$")
	if err != nil {
		return nil, err
	}
	for i, one := range all {
		if source := one.labels[texts[2]]; expression.MatchString(source) {
			all[i].labels = maps.Clone(one.labels)
			all[i].labels[texts[0]] = expression.ReplaceAllString(source, texts[1])
		}
	}
	return all, nil
}

// aggregated returns the sum or mean of each role.
func aggregated(all []series, isMean bool) []series {
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, one := range all {
		sums[one.labels["role"]] += one.value
		counts[one.labels["role"]]++
	}
	var found []series
	for role, sum := range sums {
		if isMean {
			sum /= counts[role]
		}
		found = append(found, series{labels: map[string]string{"role": role}, value: sum})
	}
	return found
}

// pod stores what a pod uses: some CPUs, GiB of memory, and a part of a GPU, which dcgm-exporter names by labels with a prefix.
func (m *measured) pod(from, until time.Time, namespace, name, prefix string, cpus, memory, gpu float64) {
	container := func(metric string) map[string]string {
		return map[string]string{"__name__": metric, "namespace": namespace, "pod": name, "container": "di-container"}
	}
	exporter := map[string]string{"__name__": "DCGM_FI_DEV_GPU_UTIL", "namespace": "gpu-operator", "pod": "dcgm-exporter"}
	exporter[prefix+"namespace"], exporter[prefix+"pod"] = namespace, name
	m.series = append(m.series,
		series{container("container_cpu_usage_seconds_total"), from, until, cpus},
		series{container("container_memory_working_set_bytes"), from, until, memory * (1 << 30)},
		series{exporter, from, until, gpu},
	)
}

// finished creates a job that ends ten minutes after its creation, and returns both times.
func (w *world) finished(t *testing.T, namespace, name string) (begin, end time.Time) {
	t.Helper()
	job := w.workers(t, namespace, name, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	begin = job.CreationTimestamp.Time
	end = begin.Add(10 * time.Minute)
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.CompletionTimestamp = v2alpha1.JobSucceeded, &metav1.Time{Time: end}
	})
	return begin, end
}

func usagePath(namespace, job string) string {
	return "/api/v1/namespaces/" + namespace + "/jobs/" + job + "/usage"
}

// ends are the number of points of each curve, and its last value.
func ends(usage *api.Usage) map[string]string {
	all := map[string]string{}
	for i := range usage.Curves {
		curve := &usage.Curves[i]
		all[curve.Name] = fmt.Sprintf("%d points, at last %.3f %s", len(curve.Points), curve.Points[len(curve.Points)-1][1], curve.Unit)
	}
	return all
}

func TestPageShowsWhatThePodsOfAJobUsed(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	m := measure(t)
	begin, end := w.finished(t, ns, "pong")
	beginTwo, endTwo := w.finished(t, ns, "pong-two")
	half := begin.Add(5 * time.Minute)
	m.pod(begin, end, ns, "pong-learner-0", "exported_", 2, 1, 50)
	m.pod(begin, end, ns, "pong-learner-1", "", 3, 2.5, 70)
	// A replica that is gone, and pods that are not of the job.
	m.pod(begin, half, ns, "pong-learner-2", "exported_", 10, 10, 0)
	m.pod(beginTwo, endTwo, ns, "pong-two-learner-0", "exported_", 100, 100, 100)
	m.pod(begin, end, "other", "pong-learner-0", "exported_", 100, 100, 100)
	b := w.browse(t, ns, "--prometheus", m.url+"/")
	var session api.Session
	if b.get(t, "/api/v1/session", "Session", &session); !session.Usage {
		t.Errorf("the session is %+v", session)
	}
	var usage api.Usage
	b.get(t, usagePath(ns, "pong"), "Usage", &usage)
	want := map[string]string{
		"learner GPU utilisation": "40 points, at last 60.000 % (mean)", "learner CPU": "40 points, at last 5.000 cores (sum)", "learner memory": "40 points, at last 3.500 GiB (sum)",
	}
	if diff := cmp.Diff(want, ends(&usage)); diff != "" || m.asked.Load() != 3 {
		t.Errorf("%d queries, -want +got:\n%s", m.asked.Load(), diff)
	}
	for i := range usage.Curves {
		first, last := usage.Curves[i].Points[0], usage.Curves[i].Points[39]
		if first[0] != float64(begin.Add(15*time.Second).UnixMilli()) || last[0] != float64(end.UnixMilli()) {
			t.Errorf("%s is from %v to %v", usage.Curves[i].Name, first, last)
		}
	}
	if first := usage.Curves[2].Points[0][1]; first != 13.5 {
		t.Errorf("with the replica that is gone, the memory is %g GiB", first)
	}
	var other api.Usage
	b.get(t, usagePath(ns, "pong-two"), "Usage", &other)
	expect.Equal(t, "CPU of the other job", "40 points, at last 100.000 cores (sum)", ends(&other)["learner CPU"])
	w.finished(t, ns, "unmeasured")
	var none api.Usage
	b.get(t, usagePath(ns, "unmeasured"), "Usage", &none)
	expect.Equal(t, "curves without series", 0, len(none.Curves))
}

func TestPageShowsTheUsageOfACoordinatorLedJobByRole(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	m := measure(t)
	job := w.trainer(t, ns, "pong")
	begin, end := job.CreationTimestamp.Time, job.CreationTimestamp.Add(time.Hour)
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) { status.CompletionTimestamp = &metav1.Time{Time: end} })
	m.pod(begin, end, ns, "pong-coordinator", "", 1, 1, 5)
	m.pod(begin, end, ns, "pong-ddp-learner-x2z4b", "", 8, 16, 90)
	m.pod(begin, end, ns, "pong-learner-0", "", 100, 100, 100)
	var usage api.Usage
	w.browse(t, ns, "--prometheus", m.url).get(t, usagePath(ns, "pong"), "Usage", &usage)
	got := ends(&usage)
	if len(got) != 6 || !strings.Contains(got["coordinator CPU"], "at last 1.000 cores") || !strings.Contains(got["ddp-learner GPU utilisation"], "at last 90.000 %") {
		t.Errorf("got %v", got)
	}
}

func TestPrometheusIsAskedOnlyForCallersWhoMayListThePods(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	m := measure(t)
	begin, end := w.finished(t, ns, "pong")
	m.pod(begin, end, ns, "pong-learner-0", "", 2, 1, 50)
	w.grant(t, ns, user("hugo"), viewing())
	b := w.browse(t, ns, "--prometheus", m.url, "--as", "hugo")
	if got := b.refused(t, usagePath(ns, "pong"), http.StatusForbidden); !strings.Contains(got, "pods") {
		t.Errorf("got %s", got)
	}
	b.refused(t, usagePath(ns, "pongg"), http.StatusNotFound)
	b.refused(t, usagePath("other", "pong"), http.StatusForbidden)
	expect.Equal(t, "queries", int32(0), m.asked.Load())

	base := w.inCluster(t, "--prometheus", m.url)
	caller := func(name string, may ...rbacv1.PolicyRule) *browser {
		token := w.account(t, ns, name, append(may, viewing())...)
		return visitor(t, base, token).signedIn(t, token, ns)
	}
	caller("jobs-only").refused(t, usagePath(ns, "pong"), http.StatusForbidden)
	expect.Equal(t, "queries", int32(0), m.asked.Load())
	var usage api.Usage
	caller("pods-too", rule("", "pods", "list")).get(t, usagePath(ns, "pong"), "Usage", &usage)
	expect.Equal(t, "CPU", "40 points, at last 2.000 cores (sum)", ends(&usage)["learner CPU"])
}

func TestPageSaysWhyPrometheusHasNoAnswer(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.finished(t, ns, "pong")
	elsewhere := measure(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	addresses := map[string]string{"Prometheus does not answer: the connection is refused": closed.URL}
	for want, handle := range map[string]http.HandlerFunc{
		"Prometheus does not answer: it takes too long": func(_ http.ResponseWriter, r *http.Request) {
			// The server sees that its caller is gone once the body is read.
			_ = r.ParseForm()
			<-r.Context().Done()
		},
		"the answer of Prometheus, with status 307, is no JSON of its API": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.url+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"Prometheus cannot execute the query (execution)": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"status":"error","errorType":"execution","error":"a series of others"}`))
		},
		"the answer of Prometheus has more than 2097152 bytes: the query must have fewer series": func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				_, _ = w.Write([]byte(strings.Repeat(" ", 1<<20)))
			}
		},
	} {
		server := httptest.NewServer(handle)
		t.Cleanup(server.Close)
		addresses[want] = server.URL
	}
	for want, address := range addresses {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			b := w.browse(t, ns, "--prometheus", address)
			expect.Equal(t, "refusal", want, b.refused(t, usagePath(ns, "pong"), http.StatusBadGateway))
			var detail api.JobDetail
			b.get(t, "/api/v1/namespaces/"+ns+"/jobs/pong", "JobDetail", &detail)
		})
	}
	expect.Equal(t, "queries elsewhere", int32(0), elsewhere.asked.Load())
}

func TestThePageKnowsNoPrometheusByDefault(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.finished(t, ns, "pong")
	b := w.browse(t, ns)
	var session api.Session
	if b.get(t, "/api/v1/session", "Session", &session); session.Usage {
		t.Errorf("the session is %+v", session)
	}
	expect.Equal(t, "refusal", "No Prometheus is known: --prometheus names its URL.", b.refused(t, usagePath(ns, "pong"), http.StatusNotFound))
}
