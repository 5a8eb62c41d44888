// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// historyPage is what the page shows of a history.
func (m *memory) historyPage(t *testing.T, more ...string) *browser {
	t.Helper()
	return m.browse(t, m.jobs, append([]string{"--server-namespace", m.system, "--service-account", account}, more...)...)
}

// recorded is the path of a recorded job.
func (m *memory) recorded(job string) string {
	return "/api/v1/history/namespaces/" + m.jobs + "/jobs/" + job
}

func TestPageListsTheJobsOfTheHistoryAsTheCommandDoes(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	for i := range 3 {
		m.record(t, &record.Job{UID: fmt.Sprintf("gone-%d", i), Name: "cartpole", Creator: "bob", Phase: "Running", Created: then(100 + i), Ended: then(200)}, nil)
	}
	b := m.historyPage(t)
	var session api.Session
	b.get(t, "/api/v1/session", "Session", &session)
	if !session.History.Reachable {
		t.Errorf("the session is %+v", session)
	}
	for query, want := range map[string]string{
		"": "cartpole cartpole cartpole pong", "phase=Failed": "pong", "group=games": "pong", "user=jane": "pong", "reason=OOMKilled": "pong",
		"text=MEMORY": "pong", "since=1": "", "namespace=" + m.jobs + "&user=bob": "cartpole cartpole cartpole",
	} {
		var page api.HistoryPage
		b.get(t, "/api/v1/history/jobs?"+query, "HistoryPage", &page)
		var names []string
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s", query, got)
		}
	}
	var page api.HistoryPage
	b.get(t, "/api/v1/history/jobs?text=cartpole", "HistoryPage", &page)
	if row := page.Items[0]; row.Phase != "Deleted" || row.User != "bob" || row.EndedAt == nil || row.StartedAt != nil {
		t.Errorf("got %+v", row)
	}
	for query, want := range map[string]string{
		"namespace=other": "only the jobs of namespace", "since=0": `since "0": want a number from 1 to 36500 of days`, "from=x": "is no start of a page",
		"namespace=A": `namespace "A"`, "user=" + strings.Repeat("u", record.MaxText+1): "user has 1025 bytes: want at most 1024",
	} {
		code := http.StatusBadRequest
		if query == "namespace=other" {
			code = http.StatusForbidden
		}
		if got := b.refused(t, "/api/v1/history/jobs?"+query, code); !strings.Contains(got, want) {
			t.Errorf("%s is refused by %q", query, got)
		}
	}
}

// recent is a job that trained for an hour with eight GPUs, and ended now.
func recent(uid string) *record.Job {
	job, ended := pong(uid), time.Now().UTC().Truncate(time.Second)
	job.Name, job.Creator, job.Created, job.Started, job.Ended = "recent", "eve", ended.Add(-2*time.Hour), ended.Add(-time.Hour), ended
	job.Requests = []record.Request{{Task: "learner", CPU: 2000, Memory: 4 << 30, GPUs: 8}}
	job.Replicas = []record.Replica{{PodUID: "p9", Pod: "recent-learner-0", Task: "learner", Started: job.Started, Ended: ended, Phase: "Failed", Reason: "OOMKilled"}}
	return job
}

func TestPageSumsUpTheJobsOfTheHistory(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, recent("uid-1"), nil)
	m.record(t, pong("uid-2"), nil)
	b := m.historyPage(t)
	three := 0.75
	for by, key := range map[string]string{"namespace": m.jobs, "group": "games", "queue": "night", "user": "eve", "cause": "OOMKilled"} {
		var sums api.HistorySums
		b.get(t, "/api/v1/history/sums?by="+by, "HistorySums", &sums)
		if len(sums.Items) == 1 {
			daily := sums.Items[0].Daily
			if len(daily) != 31 || slices.Max(daily[29:]) != 8 || slices.Max(daily[:29]) != 0 {
				t.Errorf("by %s: %v GPU hours of 31 days, want 8 on one of the last two", by, daily)
			}
			sums.Items[0].Daily = nil
		}
		want := []api.HistorySum{{Key: key, Jobs: 1, Unsuccessful: 1, WaitedHours: 1, GPUHours: 8, CPUUsed: &three, MemoryUsed: &three}}
		if diff := cmp.Diff(want, sums.Items); diff != "" || sums.Truncated {
			t.Errorf("by %s, -want +got:\n%s", by, diff)
		}
	}
	for query, want := range map[string]string{
		"by=name": `by "name": must be namespace`, "by=user&since=0": `since "0": want a number from 1 to 366 of days`, "by=user&namespace=A": `namespace "A"`,
	} {
		if got := b.refused(t, "/api/v1/history/sums?"+query, http.StatusBadRequest); !strings.Contains(got, want) {
			t.Errorf("%s is refused by %q", query, got)
		}
	}
	b.refused(t, "/api/v1/history/sums?by=user&namespace=other", http.StatusForbidden)
}

func TestPageOfTheHistoryHasOlderJobs(t *testing.T) {
	t.Parallel()
	m := remember(t)
	var changes []store.Change
	for i := range 150 {
		uid := fmt.Sprintf("uid-%d", i)
		changes = append(changes, store.Change{UID: uid, Job: &record.Job{UID: uid, Namespace: m.jobs, Name: uid, Phase: "Succeeded", Created: then(i)}})
	}
	expect.NoError(t, m.database.Write(t.Context(), changes))
	b := m.historyPage(t)
	var newest, older api.HistoryPage
	b.get(t, "/api/v1/history/jobs", "HistoryPage", &newest)
	b.get(t, "/api/v1/history/jobs?from="+newest.Next, "HistoryPage", &older)
	if len(newest.Items) != 100 || len(older.Items) != 50 || older.Items[0].Name != "uid-49" || older.Next != "" {
		t.Errorf("%d and %d jobs", len(newest.Items), len(older.Items))
	}
}

func TestPageShowsWhatIsRecordedOfAJob(t *testing.T) {
	t.Parallel()
	m := remember(t)
	failed := pong("uid-1")
	failed.Requests = []record.Request{{Task: "learner", CPU: 2000, Memory: 4 << 30}}
	m.record(t, failed, map[string][]float64{"reward": {1, 9, 4}, "cpu/learner": {100, 200}},
		record.Tail{PodUID: "p1", Pod: "pong-learner-1", Container: "di-container", Ended: then(630), ExitCode: 137, Text: "loss 3\nKilled\n"})
	b := m.historyPage(t)
	var job api.HistoryJob
	b.get(t, m.recorded("pong")+"?uid=uid-1", "HistoryJob", &job)
	got, err := json.Marshal(job)
	expect.NoError(t, err)
	for _, want := range []string{
		`{"title":"Tasks","columns":["Task","Type","Replicas","Requests","Used at most","Killed at"],"rows":[["learner","learner","2","cpu=2, memory=4Gi","cpu=1500m, memory=3Gi","memory=4Gi"]]}`,
		`"Asked by"],"rows":[["2026-03-01T12:03:20Z","learner","1","2","kubectl-scale"]]`, `"part":"Last failure","title":"Exit code","text":"137"`,
		`"text":"The phase changed from Pending to Running."`, `asked by kubectl-scale.`, `"text":"Pod pong-learner-1 failed with exit code 137: killed`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	var curves api.HistoryCurves
	b.get(t, m.recorded("pong")+"/curves?uid=uid-1", "HistoryCurves", &curves)
	if len(curves.Curves) != 2 || curves.Curves[0].Name != "reward" || curves.Curves[0].Points[1] != [2]float64{float64(then(20).UnixMilli()), 9} {
		t.Errorf("got %+v", curves)
	}
	var tails api.HistoryTails
	b.get(t, m.recorded("pong")+"/tails", "HistoryTails", &tails)
	if len(tails.Tails) != 1 || tails.Tails[0].Replica != "learner-1" || tails.Tails[0].Text != "loss 3\nKilled\n" {
		t.Errorf("got %+v", tails)
	}
	// The first replica ran for 270 s, the second one for 320 s. Each requests two CPUs and 4 GiB.
	if got := job.Cost; got == nil || !got.Recorded || got.Pods != 2 || math.Abs(got.PodHours*3600-590) > 0.01 || math.Abs(got.CPUHours*3600-1180) > 0.01 {
		t.Errorf("the cost is %+v", job.Cost)
	}
	var ofAll cost.Cost
	if b.get(t, m.recorded("pong")+"/cost?uid=uid-1", "Cost", &ofAll); job.Cost == nil || ofAll != *job.Cost {
		t.Errorf("the cost is %+v, and that of the job %+v", ofAll, job.Cost)
	}
	b.refused(t, m.recorded("pong")+"?uid=uid-9", http.StatusNotFound)
	b.refused(t, strings.Replace(m.recorded("pong"), m.jobs, "other", 1), http.StatusForbidden)
}

func TestCurvesOfThePageHaveABoundedNumberOfPoints(t *testing.T) {
	t.Parallel()
	m := remember(t)
	long := pong("uid-1")
	long.Ended = then(30_000)
	m.record(t, long, nil)
	change := store.Change{UID: "uid-1"}
	for i := range store.MaxSamples + 5 {
		change.Samples = append(change.Samples, record.Sample{At: then(i), Values: map[string]record.Mean{"reward": {Sum: float64(i), Count: 1}}})
	}
	expect.NoError(t, m.database.Write(t.Context(), []store.Change{change}))
	var curves api.HistoryCurves
	m.historyPage(t).get(t, m.recorded("pong")+"/curves", "HistoryCurves", &curves)
	points := curves.Curves[0].Points
	if last := points[len(points)-1]; len(points) > 500 || len(points) < 300 || last[1] < store.MaxSamples-60 || curves.Until != nil {
		t.Errorf("%d points, the last one is %v", len(points), last)
	}
}

func TestPageComparesUpToEightJobs(t *testing.T) {
	t.Parallel()
	m := remember(t)
	query := url.Values{}
	for i := range 9 {
		job := pong(fmt.Sprintf("uid-%d", i))
		job.Name = fmt.Sprintf("pong-%d", i)
		job.Manifest = json.RawMessage(strings.Replace(pongManifest, `"replicas":2`, fmt.Sprintf(`"replicas":%d`, i+1), 1))
		m.record(t, job, map[string][]float64{"reward": {1, float64(5 * i), 4}})
		query.Add("job", m.jobs+"/"+job.Name+"/"+job.UID)
	}
	b := m.historyPage(t)
	if got := b.refused(t, "/api/v1/history/comparison?"+query.Encode(), http.StatusBadRequest); got != "job is given 9 times: want from 2 to 8" {
		t.Errorf("got %s", got)
	}
	query["job"] = query["job"][:8]
	var compared api.HistoryComparison
	b.get(t, "/api/v1/history/comparison?"+query.Encode(), "HistoryComparison", &compared)
	if len(compared.Jobs) != 8 || *compared.Jobs[0].TimeToStart != 30 || len(compared.Fields) != 1 || compared.Fields[0].Field != "spec.tasks[learner].replicas" ||
		strings.Join(compared.Fields[0].Values, "") != "12345678" {
		t.Errorf("got %+v", compared)
	}
	reward := compared.Series[0]
	if reward.Name != "reward" || *reward.Best[2] != 10 || *reward.Reached[2] != 0 || len(reward.Lines) != 8 || len(reward.Lines[2]) != 1 {
		t.Errorf("got %+v", reward)
	}
}

func TestPageSaysHowTheHistoryIsSwitchedOn(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	var session api.Session
	b := w.browse(t, ns, "--server-namespace", ns)
	b.get(t, "/api/v1/session", "Session", &session)
	if session.History.Reachable || session.History.Why != "The history of jobs is off. Switch it on by value history.enabled=true of the Helm chart." {
		t.Errorf("the session is %+v", session)
	}
	w.grant(t, ns, user("hugo"), rule(v2alpha1.GroupName, "dijobs", "list"), rule(v2alpha1.GroupName, "dijobs", "watch"))
	session = api.Session{}
	w.browse(t, ns, "--server-namespace", ns, "--as", "hugo").get(t, "/api/v1/session", "Session", &session)
	if session.History.Reachable || !strings.Contains(session.History.Why, "You may not forward a port in namespace") {
		t.Errorf("the session is %+v", session)
	}
}

func TestPageSaysThatTheHistoryIsAway(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	b := w.browse(t, ns, "--service-account", account, "--history-server", "https://127.0.0.1:1")
	for _, path := range []string{"jobs", "namespaces/" + ns + "/jobs/pong", "namespaces/" + ns + "/jobs/pong/tails"} {
		if got := b.refused(t, "/api/v1/history/"+path, http.StatusBadGateway); !strings.Contains(got, "the history did not answer") {
			t.Errorf("%s: got %s", path, got)
		}
	}
}

func TestPageReadsTheHistoryWithTheCallersRights(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil, record.Tail{PodUID: "p1", Pod: "pong-learner-1", Container: "di-container", Ended: then(630), ExitCode: 1, Text: "x\n"})
	m.grant(t, m.jobs, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: m.jobs, Name: "reader"},
		rule(v2alpha1.GroupName, "dijobs", "list"), rule(v2alpha1.GroupName, "dijobs", "get"))
	for _, tc := range []struct {
		account, path string
		code          int
		want          string
	}{
		{"reader", m.recorded("pong") + "/tails", http.StatusForbidden, "you may not read the logs of job"},
		{"stranger", m.recorded("pong"), http.StatusNotFound, "not found"},
		{"stranger", "/api/v1/history/jobs", http.StatusForbidden, "create role kubectl-di-list-dijobs"},
		{"stranger", "/api/v1/history/sums?by=user", http.StatusForbidden, "create role kubectl-di-list-dijobs"},
	} {
		expect.NoError(t, client.IgnoreAlreadyExists(m.live.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.jobs, Name: tc.account}})))
		b := m.browse(t, m.jobs, "--server-namespace", m.system, "--service-account", tc.account)
		if got := b.refused(t, tc.path, tc.code); !strings.Contains(got, tc.want) {
			t.Errorf("%s, %s: got %s", tc.account, tc.path, got)
		}
	}
}

func TestInAClusterTheHistoryKnowsEachCallerByTheirToken(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	other := m.namespace(t)
	base := m.inCluster(t, "--history-server", m.url, "--history-ca-file", m.authority)
	for namespace, jobs := range map[string]int{m.jobs: 1, other: 0} {
		token := m.account(t, namespace, "viewer", viewing())
		b := visitor(t, base, token).signedIn(t, token, namespace)
		var session api.Session
		b.get(t, "/api/v1/session", "Session", &session)
		if !session.History.Reachable {
			t.Errorf("%s: the session is %+v", namespace, session)
		}
		var page api.HistoryPage
		b.get(t, "/api/v1/history/jobs", "HistoryPage", &page)
		if len(page.Items) != jobs {
			t.Errorf("%s: got %+v", namespace, page)
		}
		b.refused(t, "/api/v1/history/jobs?namespace=elsewhere", http.StatusForbidden)
		b.refused(t, "/api/v1/history/namespaces/elsewhere/jobs/pong", http.StatusForbidden)
		b.refused(t, "/api/v1/history/namespaces/"+namespace+"/jobs/pongg", http.StatusNotFound)
	}
}
