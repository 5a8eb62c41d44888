// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/serve"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// memory is a history of an installation, with its database, and a namespace of jobs.
type memory struct {
	*world
	// jobs and system are the namespaces of the jobs and of the installation.
	jobs, system string
	database     *store.Store
	kubelet      *kubelet
	// url serves the history directly, with a certificate of authority.
	url, authority string
}

// remember starts a history behind a kubelet. The service account of the namespace may read all of
// its jobs and logs.
func remember(t *testing.T) *memory {
	t.Helper()
	w := theWorld(t)
	m := &memory{world: w, jobs: w.namespace(t), system: w.namespace(t)}
	var err error
	m.database, err = store.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "history.db"))
	expect.NoError(t, err)
	t.Cleanup(func() { expect.NoError(t, m.database.Close()) })
	by, err := rest.HTTPClientFor(w.environment.Config)
	expect.NoError(t, err)
	access, err := serve.NewAccess(w.environment.Config, by)
	expect.NoError(t, err)
	metrics, err := serve.NewMetrics(prometheus.NewRegistry(), clock.RealClock{})
	expect.NoError(t, err)
	served := httptest.NewUnstartedServer(serve.NewHandler(m.database, access, metrics, testr.New(t)))
	chain, key, err := cert.GenerateSelfSignedCertKey(names.HistoryService+"."+m.system+".svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	expect.NoError(t, err)
	pair, err := tls.X509KeyPair(chain, key)
	expect.NoError(t, err)
	served.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	served.StartTLS()
	t.Cleanup(served.Close)
	m.url, m.authority = served.URL, filepath.Join(t.TempDir(), "ca.crt")
	writeFile(t, m.authority, string(chain))
	m.kubelet = w.newKubelet(t, 0)
	m.kubelet.to = strings.TrimPrefix(served.URL, "https://")
	m.install(t, m.kubelet.node, string(chain))
	w.grant(t, m.jobs, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: m.jobs, Name: account},
		rule(v2alpha1.GroupName, "dijobs", "list"), rule(v2alpha1.GroupName, "dijobs", "get"), rule("", "pods/log", "get"))
	return m
}

// install creates the objects of the history.
func (m *memory) install(t *testing.T, node, authority string) {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/component": "history"}
	expect.NoError(t, m.live.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.system, Name: names.ServerBundle}, Data: map[string]string{names.ServerBundleKey: authority},
	}))
	expect.NoError(t, m.live.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.system, Name: names.HistoryService},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: names.HistoryPort, TargetPort: intstr.FromString("tls")}}},
	}))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.system, Name: "history", Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "history", Image: "di", Ports: []corev1.ContainerPort{{Name: "tls", ContainerPort: 8443}},
		}}},
	}
	expect.NoError(t, m.live.Create(t.Context(), pod))
	pods.Ready(pod)
	expect.NoError(t, m.live.Status().Update(t.Context(), pod))
}

// then returns a time of the recorded jobs.
func then(seconds int) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// record records a job that ended, with the values of its curves and its tails.
func (m *memory) record(t *testing.T, job *record.Job, values map[string][]float64, tails ...record.Tail) {
	t.Helper()
	job.Namespace = m.jobs
	change := store.Change{UID: job.UID, Job: job, Tails: tails}
	for name, all := range values {
		for i, value := range all {
			if i == len(change.Samples) {
				change.Samples = append(change.Samples, record.Sample{At: then(10 * (i + 1)), Values: map[string]record.Mean{}})
			}
			change.Samples[i].Values[name] = record.Mean{Sum: value, Count: 1}
		}
	}
	expect.NoError(t, m.database.Write(t.Context(), []store.Change{change}))
}

const pongManifest = `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"pong","namespace":"old","labels":{"team":"rl"},
"uid":"u","resourceVersion":"7","finalizers":["a.b/c"],"annotations":{"diengine/creator":"jane","note":"kept"}},
"spec":{"lifecycle":"WorkerLed","backoffLimit":3,"tasks":[{"type":"learner","name":"learner","replicas":2,"template":{"spec":{"containers":[
{"name":"di-container","image":"di:1","env":[{"name":"LR","value":"0.01"}],"resources":{"requests":{"cpu":"2"},"limits":{"memory":"4Gi"}}}]}}}]}}`

// pong returns a job that ran out of memory.
func pong(uid string) *record.Job {
	return &record.Job{
		UID: uid, Name: "pong", Group: "games", Queue: "night", Creator: "jane", Version: "v2alpha1", Manifest: json.RawMessage(pongManifest), Images: []string{"di:1"},
		Created: then(0), Started: then(30), Ended: then(630), Phase: "Failed", Reason: "OOMKilled", Message: "a learner ran out of memory",
		Phases:   []record.Phase{{Phase: "Pending", Since: then(0)}, {Phase: "Running", Since: then(30)}, {Phase: "Failed", Since: then(630)}},
		Attempts: []record.Attempt{{Number: 0, Started: then(0), Ended: then(300), Reason: "NodeLost", Message: "node a is gone"}, {Number: 1, Started: then(300)}},
		Replicas: []record.Replica{
			{PodUID: "p0", Pod: "pong-learner-0", Task: "learner", Node: "a", Created: then(0), Started: then(30), Ended: then(300), Phase: "Failed", Reason: "NodeLost"},
			{PodUID: "p1", Pod: "pong-learner-1", Task: "learner", Index: 1, Attempt: 1, Node: "b", Created: then(300), Started: then(310), Ended: then(630),
				Phase: "Failed", Reason: "OOMKilled", Message: "killed\x1b[2J", ExitCode: ptr.To[int32](137), Restarts: 2},
		},
		Restarts:   []record.Restart{{At: then(300), Kind: record.RestartOfJob, Reason: "NodeLost", Message: "node a is gone"}},
		Resizes:    []record.Resize{{At: then(200), Task: "learner", From: 1, To: 2, By: "kubectl-scale"}},
		Placements: []record.Placement{{At: then(20), Nodes: []string{"a", "b", "b"}}},
		Plans:      []record.Plan{{UID: "pl", Name: "grow", Origin: "Manual", Reason: "more", Phase: "Succeeded", Created: then(190), Replicas: map[string]int32{"learner": 2}}},
		Conditions: []record.Condition{{Type: "Failed", Status: "True", Reason: "OOMKilled", Message: "a learner ran out of memory", At: then(630)}},
		Peaks:      []record.Peak{{Task: "learner", CPU: 1500, Memory: 3 << 30, Killed: 4 << 30}},
		Seen:       record.Seen{Restarts: 1}, Dropped: map[string]int{"resizes": 7},
	}
}

// read runs a command of the history with the rights of the namespace's service account.
func (m *memory) read(t *testing.T, args ...string) ran {
	t.Helper()
	return m.run(t, m.jobs, append(append([]string{"history"}, args...), "--server-namespace", m.system, "--service-account", account)...)
}

// tells runs a command that must succeed without errors on stderr.
func (m *memory) tells(t *testing.T, args ...string) string {
	t.Helper()
	return plain(m.read(t, args...).well(t, args), m.jobs)
}

func TestTheHistoryListsJobsOfAnyAgeByTheirEnding(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	for i := range 3 {
		m.record(t, &record.Job{UID: fmt.Sprintf("gone-%d", i), Name: "cartpole", Creator: "bob", Phase: "Running", Created: then(100 + i), Ended: then(200)}, nil)
	}
	got := m.tells(t, "list")
	lines := strings.Split(got, "\n")
	if fields := strings.Fields(lines[0]); strings.Join(fields, " ") != "NAME PHASE REASON AGE ENDED DURATION GROUP USER" {
		t.Errorf("the columns are %q", fields)
	}
	for _, want := range []string{"pong      Failed   OOMKilled", "10m       games  jane", "cartpole  Deleted"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for _, tc := range []struct{ args, want string }{
		{"--phase failed", "pong"}, {"--group games", "pong"}, {"--user jane", "pong"}, {"--reason OOMKilled", "pong"}, {"--text MEMORY", "pong"},
		{"--since 2026-03-01T12:01:00Z", "cartpole cartpole cartpole"}, {"--user bob --limit 2", "cartpole cartpole"}, {"--since 1h", ""},
		{"--since 7d", ""}, {"--since 2026-03-01", "cartpole cartpole cartpole pong"},
	} {
		got := m.read(t, append([]string{"list", "-o", "name"}, strings.Fields(tc.args)...)...)
		names := strings.Join(strings.Fields(strings.ReplaceAll(got.stdout, "dijob.diengine.opendilab.org/", "")), " ")
		if got.code != 0 || names != tc.want {
			t.Errorf("%s: got %+v", tc.args, got)
		}
		if isCut := strings.Contains(got.stderr, "there are more jobs than --limit 2"); isCut != strings.Contains(tc.args, "limit") {
			t.Errorf("%s: got %+v", tc.args, got)
		}
	}
	var page record.Page
	expect.NoError(t, json.Unmarshal([]byte(m.tells(t, "list", "-o", "json")), &page))
	if len(page.Jobs) != 4 || page.Jobs[3].UID != "uid-1" {
		t.Errorf("got %+v", page)
	}
	if got := m.tells(t, "list", "-o", "wide"); !strings.Contains(got, "RESTARTS  UID") || !strings.Contains(got, "uid-1") {
		t.Errorf("got %s", got)
	}
}

func TestTheHistorySumsUpWhatJobsTook(t *testing.T) {
	t.Parallel()
	m := remember(t)
	job := pong("uid-1")
	job.Requests = []record.Request{{Task: "learner", CPU: 2000, Memory: 4 << 30, GPUs: 8}}
	m.record(t, job, nil)
	m.record(t, &record.Job{UID: "gone", Name: "cartpole", Creator: "bob", Phase: "Running", Deleted: true, Created: then(0), Ended: then(3600)}, nil)
	m.record(t, &record.Job{UID: "well", Name: "cartpole", Creator: "bob", Phase: "Succeeded", Created: then(0), Started: then(0), Ended: then(3600)}, nil)
	const march = " --since 2026-03-01 --until 2026-03-02"
	for args, want := range map[string]string{
		"--by cause":     "CAUSE JOBS UNSUCCESSFUL GPU HOURS WAITED CPU USED MEMORY USED OOMKilled 1 1 1.3 0.0h 75% 75% (succeeded) 1 0 0.0 0.0h Deleted 1 1 0.0 1.0h",
		"--by user":      "USER JOBS UNSUCCESSFUL GPU HOURS WAITED CPU USED MEMORY USED jane 1 1 1.3 0.0h 75% 75% bob 2 1 0.0 1.0h",
		"--by queue":     "QUEUE JOBS UNSUCCESSFUL GPU HOURS WAITED CPU USED MEMORY USED night 1 1 1.3 0.0h 75% 75% (none) 2 1 0.0 1.0h",
		"--by group":     "GROUP JOBS UNSUCCESSFUL GPU HOURS WAITED CPU USED MEMORY USED games 1 1 1.3 0.0h 75% 75% (none) 2 1 0.0 1.0h",
		"--by day":       "DAY JOBS UNSUCCESSFUL GPU HOURS WAITED CPU USED MEMORY USED 2026-03-01 3 2 1.3 1.0h 75% 75%",
		"--by namespace": "NAMESPACE JOBS UNSUCCESSFUL GPU HOURS WAITED CPU USED MEMORY USED NS 3 2 1.3 1.0h 75% 75%",
	} {
		if got := strings.Join(strings.Fields(m.tells(t, append([]string{"sums"}, strings.Fields(args+march)...)...)), " "); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", args, got, want)
		}
	}
	if got := m.read(t, "sums", "--since", "2026-04-01", "--until", "2026-04-02"); got.code != 0 || !strings.Contains(got.stderr, "no job ended there since 2026-04-01") {
		t.Errorf("got %+v", got)
	}
}

func TestTheHistoryFollowsPagesUpToTheLimit(t *testing.T) {
	t.Parallel()
	m := remember(t)
	var changes []store.Change
	for i := range record.MaxPage + 10 {
		uid := fmt.Sprintf("uid-%d", i)
		changes = append(changes, store.Change{UID: uid, Job: &record.Job{UID: uid, Namespace: m.jobs, Name: uid, Phase: "Succeeded", Created: then(i)}})
	}
	expect.NoError(t, m.database.Write(t.Context(), changes))
	for _, limit := range []int{record.MaxPage + 5, record.MaxPage + 10} {
		got := m.read(t, "list", "-o", "name", "--limit", strconv.Itoa(limit))
		if count := strings.Count(got.stdout, "\n"); count != limit || strings.Contains(got.stderr, "there are more") != (limit == record.MaxPage+5) {
			t.Errorf("%d jobs: %s", count, got.stderr)
		}
	}
}

func TestTheHistoryShowsAJobOnOnePage(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	got := m.tells(t, "show", "pong")
	for _, want := range []string{
		"Name:          pong\nNamespace:     NS\nLifecycle:     WorkerLed\nPhase:         Failed\nReason:        OOMKilled\n",
		"Duration:      10m\nRestarts:      1\n", "Group:         games\n", "Labels:        team=rl\n", "Not recorded:  resizes: 7\n",
		"Phases:\n  PHASE    SINCE                 DURATION\n  Pending  2026-03-01T12:00:00Z  30s\n  Running  2026-03-01T12:00:30Z  10m\n  Failed   2026-03-01T12:10:30Z\n",
		"  2026-03-01T12:00:20Z  3         a: 1, b: 2\n", "learner  1     2   kubectl-scale\n", "grow  Succeeded  Manual  learner=2  more    -\n",
		"2026-03-01T12:05:00Z  Restart  all      NodeLost  node a is gone\n", "  0        2026-03-01T12:00:00Z  5m        NodeLost  node a is gone\n",
		"Last failure:\n  Pod:        pong-learner-1\n  Exit code:  137\n",
		"learner  learner  2         cpu=2, memory=4Gi  cpu=1500m, memory=3Gi  memory=4Gi\n",
		"learner  pong-learner-1  1        Failed  2         137 (OOMKilled)  b", "killed^[[2J",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if at := strings.Index(got, "\nConditions:"); at < 0 || at > strings.Index(got, "\nTasks:") || strings.Index(got, "\nTasks:") > strings.Index(got, "\nPods:") {
		t.Errorf("the order of the parts is not that of describe:\n%s", got)
	}
}

func TestAUIDPicksOneOfSeveralJobsOfAName(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	newer := pong("uid-2")
	newer.Created, newer.Phase = then(1000), "Succeeded"
	m.record(t, newer, nil)
	for uid, phase := range map[string]string{"": "Succeeded", "uid-1": "Failed"} {
		var job record.Job
		expect.NoError(t, json.Unmarshal([]byte(m.tells(t, "show", "dijob/pong", "--uid", uid, "-o", "json")), &job))
		if job.Phase != phase {
			t.Errorf("UID %q: got phase %s", uid, job.Phase)
		}
	}
	got := m.read(t, "show", "pong", "--uid", "uid-3")
	if want := "the history has no job NS/pong with UID uid-3: kubectl di history list --text pong -o wide"; got.code != cli.Failed || !strings.Contains(plain(got.stderr, m.jobs), want) {
		t.Errorf("got %+v", got)
	}
}

func TestTheHistoryPrintsTheLastLinesOfContainers(t *testing.T) {
	t.Parallel()
	m := remember(t)
	tail := func(pod string, seconds int, container, text string) record.Tail {
		return record.Tail{PodUID: "p" + pod, Pod: "pong-learner-" + pod, Container: container, Ended: then(seconds), ExitCode: 137, Reason: "OOMKilled", Text: text}
	}
	cut := tail("1", 630, "di-container", "loss 3\nKilled\x1b[2J\n")
	cut.Truncated = true
	m.record(t, pong("uid-1"), nil, tail("0", 300, "di-container", "one\n"), cut, tail("1", 640, "helper", "two\n"))
	const first = "==> learner-0, container di-container, attempt 0, ended 2026-03-01T12:05:00Z with 137 (OOMKilled) <==\none\n"
	const second = "==> learner-1, container di-container, attempt 1, ended 2026-03-01T12:10:30Z with 137 (OOMKilled) <==\n...\nloss 3\nKilled^[[2J\n"
	for _, tc := range []struct{ args, want string }{
		{"-c di-container", first + "\n" + second}, {"--attempt 0", first}, {"--replica learner-1 -c di-container", second}, {"--replica pong-learner-0", first},
	} {
		if got := m.tells(t, append([]string{"logs", "pong"}, strings.Fields(tc.args)...)...); got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.args, got, tc.want)
		}
	}
	if got := m.read(t, "logs", "pong", "--attempt", "9"); got.code != 0 || !strings.Contains(got.stderr, "no such lines of job") {
		t.Errorf("got %+v", got)
	}
}

func TestWhatTheHistoryHasIsCompleted(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil, record.Tail{PodUID: "p1", Pod: "pong-learner-1", Container: "di-container", Ended: then(630), ExitCode: 137})
	for flag, want := range map[string]string{
		"list --group": "games\n", "list --user": "jane\n", "list --reason": "OOMKilled\n", "export --all --group": "games\n",
		"logs pong --replica": "learner-1\n", "logs pong --container": "di-container\n", "logs --replica": "",
	} {
		words := strings.Split(flag, " ")
		args := append([]string{"__completeNoDesc", "history"}, words[:len(words)-1]...)
		args = append(args, "--server-namespace", m.system, "--service-account", account, words[len(words)-1], "")
		got := m.run(t, m.jobs, args...)
		if texts, _, _ := strings.Cut(got.stdout, ":"); texts != want {
			t.Errorf("%s: got %+v, want %s", flag, got, want)
		}
	}
}

func TestAHistoryThatIsOffIsExplained(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	got := w.run(t, ns, "history", "list", "--server-namespace", ns)
	if want := "namespace NS has no history of jobs: switch it on by value history.enabled=true of the Helm chart"; got.code != cli.Failed || !strings.Contains(plain(got.stderr, ns), want) {
		t.Errorf("got %+v", got)
	}
}

func TestAnUnknownJobOfTheHistoryIsGuessed(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	for name, want := range map[string]string{
		"pomg":    "the history has no job NS/pomg: did you mean pong?",
		"unknown": "the history has no job NS/unknown: see kubectl di history list",
	} {
		if got := m.read(t, "show", name); got.code != cli.Failed || !strings.Contains(plain(got.stderr, m.jobs), want) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestTheRightsOfTheCallerCount has the token of a kubeconfig, and that of a service account, which
// lack rights.
func TestTheRightsOfTheCallerCount(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil, record.Tail{PodUID: "p1", Pod: "pong-learner-1", Container: "c", Ended: then(630), Text: "secret"})
	expect.NoError(t, m.live.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.jobs, Name: "stranger"}}))
	asStranger := func(args ...string) ran {
		return m.run(t, m.jobs, append(append([]string{"history"}, args...), "--server-namespace", m.system, "--service-account", "stranger")...)
	}
	refuses := func(got ran, wants ...string) {
		t.Helper()
		for _, want := range append(wants, "the history knows you as service account NS/stranger, since your kubeconfig has no token") {
			if got.code != cli.Failed || !strings.Contains(plain(got.stderr, m.jobs), want) {
				t.Errorf("got %+v, want %s", got, want)
			}
		}
	}
	refuses(asStranger("list"), "kubectl -n NS create role kubectl-di-list-dijobs --verb=list --resource=dijobs.diengine.opendilab.org")
	refuses(asStranger("list", "-o", "name"), `user "system:serviceaccount:NS:stranger" may not list them in namespace "NS"`)
	refuses(asStranger("show", "pong"), "create role kubectl-di-get-dijobs --verb=get --resource=dijobs")
	m.account(t, m.jobs, "reader", rule(v2alpha1.GroupName, "dijobs", "get"))
	got := m.run(t, m.jobs, "history", "logs", "pong", "--server-namespace", m.system, "--service-account", "reader")
	if want := "create role kubectl-di-get-log --verb=get --resource=pods/log"; got.code != cli.Failed || !strings.Contains(got.stderr, want) {
		t.Errorf("got %+v", got)
	}
}

func TestTheTokenOfTheKubeconfigIsTheCallers(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	token := m.account(t, m.jobs, "user", rule(v2alpha1.GroupName, "dijobs", "list"))
	m.grant(t, m.system, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: m.jobs, Name: "user"},
		rule("", "services", "get"), rule("", "pods", "list"), rule("", "configmaps", "get"), rule("", "pods/portforward", "create"), rule("", "pods/portforward", "get"))
	path := m.kubeconfigOf(t, token)
	// The service account has no right to make tokens.
	got := kubectlDI(t, "", "history", "list", "-o", "name", "-n", m.jobs, "--server-namespace", m.system, "--kubeconfig", path)
	if got.code != 0 || got.stdout != "dijob.diengine.opendilab.org/pong\n" {
		t.Errorf("got %+v", got)
	}
	// The token does not name whom the caller acts as.
	got = kubectlDI(t, "", "history", "list", "-n", m.jobs, "--server-namespace", m.system, "--kubeconfig", path, "--as", "jane")
	if got.code != cli.Failed || !strings.Contains(got.stderr, "cannot impersonate") {
		t.Errorf("got %+v", got)
	}
}

func TestTheDocumentedRolesReachTheHistory(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	got := m.read(t, "list", "--as", "nils")
	if want := "create role kubectl-di-get-services --verb=get --resource=services --resource-name=di-history"; got.code != cli.Failed || !strings.Contains(got.stderr, want) {
		t.Errorf("got %+v", got)
	}
	m.grantDocumented(t, 1, "nils", m.jobs, m.system)
	if got := m.tells(t, "list", "-o", "name", "--as", "nils"); got != "dijob.diengine.opendilab.org/pong\n" {
		t.Errorf("got %q", got)
	}
}

// kubeconfigOf writes a kubeconfig with a token.
func (m *memory) kubeconfigOf(t *testing.T, token string) string {
	t.Helper()
	config := m.environment.Config
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, filepath.Join(filepath.Dir(path), "ca.crt"), string(config.CAData))
	writeFile(t, path, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q, certificate-authority: ca.crt}}]\nusers: [{name: u, user: {token: %q}}]\n", config.Host, token))
	return path
}

func TestAnExportContinuesWhereAConnectionBreaks(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), map[string][]float64{"reward": {1}})
	m.kubelet.cuts = 1
	got := m.read(t, "export", "--all", "-o", "csv")
	if got.code != 0 || strings.Count(got.stdout, "\n") != 2 || m.kubelet.count() < 2 {
		t.Errorf("%d connections, got %+v", m.kubelet.count(), got)
	}
}

func TestAServerWithAnotherCertificateIsRefused(t *testing.T) {
	t.Parallel()
	m := remember(t)
	bundle := &corev1.ConfigMap{}
	expect.NoError(t, m.live.Get(t.Context(), client.ObjectKey{Namespace: m.system, Name: names.ServerBundle}, bundle))
	other, _, err := cert.GenerateSelfSignedCertKey(names.HistoryService+"."+m.system+".svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	expect.NoError(t, err)
	bundle.Data[names.ServerBundleKey] = string(other)
	expect.NoError(t, m.live.Update(t.Context(), bundle))
	for _, server := range [][]string{{"--server-namespace", m.system}, {"--server", "https://" + m.kubelet.to}} {
		got := m.run(t, m.jobs, append([]string{"history", "list", "--service-account", account}, server...)...)
		if got.code != cli.Failed || !strings.Contains(got.stderr, "failed to verify certificate") {
			t.Errorf("%v: got %+v", server, got)
		}
	}
}

func TestWrongUseOfTheHistoryIsReportedBeforeAnyCall(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"list --since yesterday":             `--since "yesterday": want a span such as 36h or 7d`,
		"list --since -1h":                   `--since "-1h": want a span`,
		"sums --by name":                     `--by "name": want one of namespace, group, queue, user, cause, day`,
		"sums --until tomorrow":              `--until "tomorrow": want a span such as 36h or 7d`,
		"sums -A -n rl":                      "-A and -n exclude each other",
		"list --phase Done":                  `--phase "Done": want one of Pending`,
		"list --limit 0":                     "--limit 0: must be 1 or more",
		"list -A -n rl":                      "-A and -n exclude each other",
		"list --server http://localhost":     `--server "http://localhost": want a URL such as https://`,
		"show":                               "JOB is missing",
		"logs pong --attempt -2":             "--attempt -2: must be 0 or more",
		"compare pong":                       "1 jobs: want two to compare",
		"rerun pong --set a":                 `--set "a": want PATH=VALUE`,
		"rerun pong --name A_B":              `--name "A_B": want the name of a DIJob`,
		"export":                             "JOB is missing",
		"export pong --all":                  `JOB "pong" and --all exclude each other`,
		"export pong --phase Failed":         "flags that select jobs are for --all",
		"export pong -o csv --tensorboard x": "--tensorboard and -o exclude each other",
		"frobnicate":                         `unknown command "frobnicate": kubectl di history show frobnicate shows a job of this name`,
		"list --server https://a --server-namespace b": "--server and --server-namespace exclude each other",
	} {
		got := kubectlDI(t, "", append([]string{"history", "--kubeconfig", "/nonexistent"}, strings.Fields(args)...)...)
		if got.code != cli.Usage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %+v, want %s", args, got, want)
		}
	}
}

func TestTwoJobsOfTheHistoryAreCompared(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), map[string][]float64{"reward": {1, 9, 4}, "loss": {5, 0.5, 0.7}, "steps": {3, 2}})
	other := pong("uid-2")
	other.Name, other.Phase, other.Reason, other.Started = "pong-2", "Succeeded", "", then(5)
	other.Manifest = json.RawMessage(strings.NewReplacer(`"value":"0.01"`, `"value":"0.1"`, `"replicas":2`, `"replicas":3`, `"name":"pong"`, `"name":"pong-2"`,
		`"backoffLimit":3,`, "").Replace(pongManifest))
	other.Peaks[0].Killed = 0
	m.record(t, other, map[string][]float64{"reward": {2, 8, 8}, "accuracy": {0.5}})
	got := m.tells(t, "compare", "pong", "pong-2", "--lowest", "steps")
	for _, want := range []string{
		"               A                     B\nName:          pong                  pong-2\n", "Time to start:  30s", "Duration:       10m",
		"Spec:\n  FIELD                                                                              A       B\n",
		"  spec.backoffLimit 3\n",
		"  spec.tasks[learner].replicas                                                       2       3\n",
		"  spec.tasks[learner].template.spec.containers[di-container].env[LR].value           \"0.01\"  \"0.1\"\n",
		"  learner  killed at     memory=4Gi\n",
		"  accuracy  <none>     0.5        <none>     0.5        highest\n",
		"  loss      0.7        <none>     0.5        <none>     lowest\n",
		"  reward    4          8          9          8          highest\n",
		"  steps     2          <none>     2          <none>     lowest\n",
	} {
		if !strings.Contains(strings.Join(strings.Fields(got), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "metadata.name") || strings.Contains(got, "image") {
		t.Errorf("what is equal differs:\n%s", got)
	}
	var compared struct {
		Jobs   []struct{ TimeToStart float64 }
		Spec   []struct{ Field, A, B string }
		Series map[string]struct{ Best []*float64 }
	}
	expect.NoError(t, json.Unmarshal([]byte(m.tells(t, "compare", "pong", "pong-2", "-o", "json")), &compared))
	if len(compared.Spec) == 0 || compared.Spec[0].Field == "" || compared.Spec[0].A+compared.Spec[0].B == "" {
		t.Errorf("got the spec %+v, want fields with the values a and b", compared.Spec)
	}
	if compared.Jobs[1].TimeToStart != 5 || *compared.Series["reward"].Best[0] != 9 || compared.Series["loss"].Best[1] != nil {
		t.Errorf("got %+v", compared)
	}
}

func TestAJobOfTheHistoryRunsAgain(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	const container = "spec.tasks[learner].template.spec.containers[di-container]"
	changes := []string{"--set", container + ".env[LR].value=0.1", "--set", container + ".resources.limits.memory=8Gi", "--set", "spec.tasks[0].replicas=3",
		"--set", "spec.backoffLimit=null", "--set", "metadata.labels[team.io/x]=1a"}
	for _, dryRun := range []string{"client", "server"} {
		got := m.tells(t, "rerun", "pong", "--dry-run", dryRun)
		if want := "dijob.diengine.opendilab.org/pong submitted (" + strings.ReplaceAll(dryRun+" ", "client ", "") + "dry run)\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	got := m.tells(t, append([]string{"rerun", "pong"}, changes...)...)
	if got != "dijob.diengine.opendilab.org/pong submitted\n" {
		t.Errorf("got %q", got)
	}
	job := &v2alpha1.DIJob{}
	expect.NoError(t, m.live.Get(t.Context(), client.ObjectKey{Namespace: m.jobs, Name: "pong"}, job))
	var template corev1.PodTemplateSpec
	expect.NoError(t, json.Unmarshal(job.Spec.Tasks[0].Template.Raw, &template))
	made := template.Spec.Containers[0]
	if made.Env[0].Value != "0.1" || made.Resources.Limits.Memory().String() != "8Gi" || *job.Spec.Tasks[0].Replicas != 3 || job.Labels["team.io/x"] != "1a" ||
		job.Labels["team"] != "rl" || job.Annotations["note"] != "kept" || job.Annotations[names.AnnotationCreator] == "jane" || len(job.Finalizers) > 0 {
		t.Errorf("the job became %+v", job)
	}
	ran := m.read(t, "rerun", "pong")
	if want := "job NS/pong exists already: delete it first, give this one another name"; ran.code != cli.Failed || !strings.Contains(plain(ran.stderr, m.jobs), want) {
		t.Errorf("got %+v", ran)
	}
	if got := m.tells(t, "rerun", "pong", "--name", "pong-2", "-o", "name"); got != "dijob.diengine.opendilab.org/pong-*\n" && got != "dijob.diengine.opendilab.org/pong-2\n" {
		t.Errorf("got %q", got)
	}
}

func TestAJobRunsAgainInTheVersionThatItWasWrittenIn(t *testing.T) {
	t.Parallel()
	m := remember(t)
	old := objects(t, readFile(t, "testdata/serial.yaml"))[0]
	manifest, err := json.Marshal(old.Object)
	expect.NoError(t, err)
	m.record(t, &record.Job{UID: "uid-1", Name: "serial", Version: "v1alpha1", Manifest: manifest, Created: then(0), Phase: "Succeeded"}, nil)
	got := m.tells(t, "rerun", "serial", "--dry-run=client", "-o", "jsonpath={.apiVersion} {.metadata.name}")
	if got != "diengine.opendilab.org/v1alpha1 serial" {
		t.Errorf("got %q", got)
	}
	if got := m.tells(t, "show", "serial"); !strings.Contains(got, "Lifecycle:   CoordinatorLed\n") || !strings.Contains(got, "coordinator  coordinator  1") {
		t.Errorf("got\n%s", got)
	}
}

func TestWhatCannotRunAgainIsRefused(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	lost := pong("uid-2")
	lost.Name, lost.Manifest = "lost", nil
	m.record(t, lost, nil)
	for args, want := range map[string]string{
		"lost": "job NS/lost cannot be created again: its manifest is not recorded: it was larger than the history keeps",
		"pong --set spec.tasks[lerner].replicas=1": `--set spec.tasks[lerner].replicas: spec.tasks has no entry "lerner": it has learner`,
		"pong --set spec.tasks[4].replicas=1":      "--set spec.tasks[4].replicas: spec.tasks has 1 entries, and none is number 4",
		"pong --set spec.backoffLimit.x=1":         `--set spec.backoffLimit.x: spec.backoffLimit is no object: it has no field "x"`,
		"pong --set spec.backofLimit=1":            `unknown field "spec.backofLimit": did you mean backoffLimit?`,
		"pong --set spec.tasks[0].replicas=many":   "spec.tasks[0].replicas",
	} {
		got := m.read(t, append([]string{"rerun"}, strings.Fields(args)...)...)
		if got.code != cli.Failed || !strings.Contains(plain(got.stderr, m.jobs), want) {
			t.Errorf("%s: got %+v, want %s", args, got, want)
		}
	}
}

func TestRecordsAndCurvesAreExported(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), map[string][]float64{"reward": {1, 2.5}, "loss": {0.5}})
	m.record(t, &record.Job{UID: "uid-2", Name: "cartpole", Created: then(1), Phase: "Succeeded"}, map[string][]float64{"reward": {7}})
	const csv = "time,series,value\n2026-03-01T12:00:10Z,loss,0.5\n2026-03-01T12:00:10Z,reward,1\n2026-03-01T12:00:20Z,reward,2.5\n"
	if got := m.tells(t, "export", "pong", "-o", "csv"); got != csv {
		t.Errorf("got\n%s", got)
	}
	got := m.read(t, "export", "--all", "-o", "csv", "--phase", "Succeeded")
	if want := "namespace,job,uid,time,series,value\nNS,cartpole,uid-2,2026-03-01T12:00:10Z,reward,7\n"; got.code != 0 || plain(got.stdout, m.jobs) != want {
		t.Errorf("got %+v", got)
	}
	got = m.read(t, "export", "--all")
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if got.code != 0 || len(lines) != 2 || !strings.Contains(got.stderr, "exported jobs: 2") {
		t.Fatalf("got %+v", got)
	}
	var read struct {
		record.Job
		Series []record.Series `json:"series"`
	}
	expect.NoError(t, json.Unmarshal([]byte(lines[1]), &read))
	if read.UID != "uid-1" || len(read.Replicas) != 2 || len(read.Series) != 2 || read.Series[1].Points[1].Value != 2.5 {
		t.Errorf("got %+v", read)
	}
	folder := t.TempDir()
	path := strings.TrimSpace(m.read(t, "export", "pong", "--tensorboard", folder).stdout)
	if want := filepath.Join(folder, m.jobs+"-pong-uid-1", fmt.Sprintf("events.out.tfevents.%d.kubectl-di", then(0).Unix())); path != want || len(readFile(t, path)) < 100 {
		t.Errorf("got %s, want %s", path, want)
	}
}

func TestALongCurveIsReadPageByPage(t *testing.T) {
	t.Parallel()
	m := remember(t)
	m.record(t, pong("uid-1"), nil)
	const samples = store.MaxSamples + 5
	change := store.Change{UID: "uid-1"}
	for i := range samples {
		change.Samples = append(change.Samples, record.Sample{At: then(i), Span: 0, Values: map[string]record.Mean{"reward": {Sum: float64(i), Count: 1}}})
	}
	expect.NoError(t, m.database.Write(t.Context(), []store.Change{change}))
	got := m.tells(t, "export", "pong", "-o", "csv")
	if count := strings.Count(got, ",reward,"); count != samples {
		t.Errorf("%d points", count)
	}
}
