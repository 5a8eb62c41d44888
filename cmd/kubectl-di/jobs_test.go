// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestJobsAreSuspendedAndResumed(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	jobs := []*v2alpha1.DIJob{w.trainer(t, ns, "cartpole"), w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})}
	for _, job := range jobs {
		job.Labels = map[string]string{"team": "rl"}
		expect.NoError(t, w.live.Update(t.Context(), job))
	}
	w.setStatus(t, w.workers(t, ns, "finished", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector}), func(status *v2alpha1.DIJobStatus) {
		status.Phase = v2alpha1.JobSucceeded
	})
	const cartpole, pong = "dijob.diengine.opendilab.org/cartpole", "dijob.diengine.opendilab.org/pong"
	for _, step := range []struct {
		args           []string
		code           int
		stdout, stderr string
		suspended      []bool
	}{
		{[]string{"suspend", "cartpole", "--dry-run=client"}, 0, cartpole + " suspended (dry run)\n", "", []bool{false, false}},
		{[]string{"suspend", "cartpole", "--dry-run=server"}, 0, cartpole + " suspended (server dry run)\n", "", []bool{false, false}},
		{[]string{"suspend", "dijob/cartpole", "cartpole"}, 0, cartpole + " suspended\n", "kubectl-di: kubectl di resume cartpole -n NS continues it\n", []bool{true, false}},
		{[]string{"suspend", "-l", "team=rl"}, 0, pong + " suspended\n", "job NS/cartpole is suspended already: nothing was done", []bool{true, true}},
		{[]string{"resume", "cartpole", "-o", "name"}, 0, cartpole + "\n", "", []bool{false, true}},
		{[]string{"resume", "cartpole", "pong"}, 0, pong + " resumed\n", "job NS/cartpole is not suspended: nothing was done", []bool{false, false}},
		{[]string{"resume", "cartpole", "-o", "jsonpath={.kind} {.spec.suspend}"}, 0, "DIJob false", "job NS/cartpole is not suspended", []bool{false, false}},
		{[]string{"suspend", "nope", "pong"}, cli.Failed, pong + " suspended\n", `reading job NS/nope: dijobs.diengine.opendilab.org "nope" not found`, []bool{false, true}},
		{[]string{"suspend", "finished"}, cli.Failed, "", "job NS/finished has finished: Succeeded", []bool{false, true}},
		{[]string{"suspend", "-l", "team=no"}, cli.Failed, "", "-l team=no: selects no job of namespace NS", []bool{false, true}},
		{[]string{"resume"}, cli.Usage, "", "JOB is missing: name DIJobs", []bool{false, true}},
		{[]string{"resume", "pong", "-l", "a=b"}, cli.Usage, "", `JOB "pong" and -l exclude each other`, []bool{false, true}},
		{[]string{"resume", "-l", "a in"}, cli.Usage, "", `-l "a in": `, []bool{false, true}},
		{[]string{"resume", "pong", "--dry-run=maybe"}, cli.Usage, "", `--dry-run "maybe": want one of none, client, server`, []bool{false, true}},
		{[]string{"resume", "pong", "-o", "wide"}, cli.Usage, "", `--output "wide": want one of json`, []bool{false, true}},
	} {
		got := w.run(t, ns, step.args...)
		if got.code != step.code || got.stdout != step.stdout || !strings.Contains(plain(got.stderr, ns), step.stderr) || step.stderr == "" && got.stderr != "" {
			t.Errorf("%v: got %+v", step.args, got)
		}
		for i, job := range jobs {
			expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
			if ptr.Deref(job.Spec.Suspend, false) != step.suspended[i] {
				t.Errorf("%v: job %s: spec.suspend is %v", step.args, job.Name, job.Spec.Suspend)
			}
		}
	}
}

func TestSuspendAndResumeWaitUntilItIsSo(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	observe := func(change func(*v2alpha1.DIJobStatus)) {
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
			status.ObservedGeneration, status.Replicas = job.Generation, 3
			change(status)
		})
	}
	running := map[string]v2alpha1.TaskStatus{"collector": {corev1.PodRunning: 3}}
	observe(func(status *v2alpha1.DIJobStatus) { status.Phase, status.TaskStatus = v2alpha1.JobRunning, running })

	suspending := w.start(t, ns, "", "suspend", "pong", "--wait")
	suspending.report.shows(t, "job "+ns+"/pong: Running, 3 pods are left\n")
	observe(func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobPending })
	suspending.report.shows(t, "job "+ns+"/pong: Pending, 3 pods are left\n")
	observe(func(status *v2alpha1.DIJobStatus) { status.TaskStatus = nil })
	if code := suspending.ended(t); code != 0 || suspending.out.String() != "dijob.diengine.opendilab.org/pong suspended\n" {
		t.Errorf("exit code %d, %s%s", code, suspending.out, suspending.report)
	}

	resuming := w.start(t, ns, "", "resume", "pong", "--wait")
	resuming.report.shows(t, "job "+ns+"/pong: Pending, 0 of 3 replicas are ready\n")
	observe(func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.ReadyReplicas, status.TaskStatus = v2alpha1.JobRunning, 3, running
	})
	if code := resuming.ended(t); code != 0 {
		t.Errorf("exit code %d, %s%s", code, resuming.out, resuming.report)
	}

	got := w.run(t, ns, "suspend", "pong", "--timeout=1ms")
	if want := "stopped waiting for job " + ns + "/pong"; got.code != cli.TimedOut || !strings.Contains(got.stderr, want) {
		t.Errorf("got %+v, want %s", got, want)
	}
}

// manifest returns the manifest of a job.
func manifest(name string, tasks ...string) string {
	text := &strings.Builder{}
	text.WriteString("apiVersion: diengine.opendilab.org/v2alpha1\nkind: DIJob\nmetadata:\n  name: " + name + "\nspec:\n  tasks:\n")
	for _, task := range append(tasks, "collector") {
		text.WriteString("  - type: " + task + "\n    template:\n      spec:\n        containers:\n        - name: di-container\n          image: di\n")
	}
	return text.String()
}

func TestJobsAreSubmitted(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "a.yaml"), manifest("a"))
	writeFile(t, filepath.Join(folder, "b.yaml"), manifest("b")+"---\n"+manifest("c"))
	writeFile(t, filepath.Join(folder, "sub", "d.yaml"), manifest("d"))
	writeFile(t, filepath.Join(folder, "sub", "kustomization.yaml"), "namePrefix: k-\nresources: [d.yaml]\n")
	web := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(web.Close)
	const of = "dijob.diengine.opendilab.org/"
	for _, step := range []struct {
		stdin  string
		args   []string
		stdout string
	}{
		{"", []string{"-f", folder, "--dry-run=client"}, of + "a submitted (dry run)\n" + of + "b submitted (dry run)\n" + of + "c submitted (dry run)\n"},
		{"", []string{"-f", folder, "--dry-run=server", "-o", "name"}, of + "a\n" + of + "b\n" + of + "c\n"},
		{"", []string{"-f", filepath.Join(folder, "a.yaml")}, of + "a submitted\n"},
		{"", []string{"-f", web.URL + "/b.yaml"}, of + "b submitted\n" + of + "c submitted\n"},
		{"", []string{"-f", filepath.Join(folder, "sub", "d.yaml"), "-f", "-", "--dry-run=server"}, of + "e submitted (server dry run)\n" + of + "d submitted (server dry run)\n"},
		{"", []string{"-k", filepath.Join(folder, "sub")}, of + "k-d submitted\n"},
		{manifest("e"), []string{"-f", "-", "-o", "jsonpath={.metadata.name} {.metadata.namespace}"}, "e " + ns},
		{strings.Replace(manifest(""), "name: \n", "generateName: f-\n", 1), []string{"-f", "-", "-o", "jsonpath={.metadata.generateName}"}, "f-"},
		{strings.Replace(manifest("g"), "spec:", "spec:\n  nope: 1", 1), []string{"-f", "-", "--validate=ignore"}, of + "g submitted\n"},
	} {
		if step.stdin == "" {
			step.stdin = manifest("e")
		}
		got := w.fed(t, ns, step.stdin, append([]string{"submit"}, step.args...)...)
		if got.code != 0 || got.stderr != "" || got.stdout != step.stdout {
			t.Errorf("%v: got %+v", step.args, got)
		}
	}
	var jobs v2alpha1.DIJobList
	expect.NoError(t, w.live.List(t.Context(), &jobs, client.InNamespace(ns)))
	if len(jobs.Items) != 7 {
		t.Errorf("there are %d jobs, want 7", len(jobs.Items))
	}
}

func TestOtherObjectsAreSkippedOrCreatedBeforeTheirJob(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	for _, recipe := range []string{"rllib", "sb3", "verl"} {
		file := filepath.Join(testkit.Root(), "examples", recipe, "ppo.yaml")
		ns := w.namespace(t)
		claims := func() int {
			var list corev1.PersistentVolumeClaimList
			expect.NoError(t, w.live.List(t.Context(), &list, client.InNamespace(ns)))
			return len(list.Items)
		}
		const skipped = "is no DIJob and is skipped; --with-objects creates it\n"
		got := w.run(t, ns, "submit", "-f", file, "--dry-run=server")
		if got.code != 0 || !strings.Contains(got.stderr, "PersistentVolumeClaim") || !strings.Contains(got.stderr, skipped) || strings.Count(got.stdout, "\n") != 1 {
			t.Errorf("%s: got %+v", recipe, got)
		}
		if got := w.run(t, ns, "submit", "-f", file, "--with-objects", "--dry-run=server"); got.code != 0 || got.stderr != "" || claims() != 0 {
			t.Errorf("%s: got %+v", recipe, got)
		}
		got = w.run(t, ns, "submit", "-f", file, "--with-objects")
		if got.code != 0 || got.stderr != "" || claims() != 1 || !strings.HasPrefix(got.stdout, "persistentvolumeclaim/") ||
			!strings.Contains(got.stdout, "\ndijob.diengine.opendilab.org/") {
			t.Errorf("%s: got %+v", recipe, got)
		}
		// The job exists, so that nothing is created.
		if got := w.run(t, ns, "submit", "-f", file, "--with-objects"); got.code != cli.Failed || !strings.Contains(got.stderr, "exists already: delete it first") {
			t.Errorf("%s: got %+v", recipe, got)
		}
	}
}

func TestAnObjectThatExistsStaysAndAWrongOneStopsAll(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n---\n"
	if got := w.fed(t, ns, settings+manifest("first"), "submit", "-f", "-", "--with-objects"); got.code != 0 || !strings.HasPrefix(got.stdout, "configmap/settings submitted\n") {
		t.Errorf("got %+v", got)
	}
	got := w.fed(t, ns, strings.Replace(settings, "a: b", "a: c", 1)+manifest("second"), "submit", "-f", "-", "--with-objects")
	if got.code != 0 || !strings.Contains(got.stderr, `ConfigMap "settings" exists already, and stays as it is`) {
		t.Errorf("got %+v", got)
	}
	for name, wrong := range map[string]string{
		"an unknown field":  strings.NewReplacer("settings", "other", "data:", "dta:").Replace(settings),
		"an unknown kind":   "apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: other}\n---\n",
		"another namespace": strings.Replace(settings, "{name: settings}", "{name: other, namespace: elsewhere}", 1),
	} {
		got := w.fed(t, ns, wrong+manifest("third"), "submit", "-f", "-", "--with-objects")
		if got.code != cli.Failed || got.stdout != "" || !strings.Contains(got.stderr, "nothing was submitted") {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	var jobs v2alpha1.DIJobList
	expect.NoError(t, w.live.List(t.Context(), &jobs, client.InNamespace(ns)))
	if len(jobs.Items) != 2 {
		t.Errorf("there are %d jobs, want two", len(jobs.Items))
	}
}

func TestWhatIsWrongWithASubmittedJobIsReported(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.workers(t, ns, "there", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	for name, tc := range map[string]struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		"a value that is none":         {manifest("a", "driver"), nil, cli.Failed, "stdin: job NS/a is refused:\n  spec.tasks[0].type: Unsupported value: \"driver\": supported values: "},
		"an unknown field":             {strings.Replace(manifest("a"), "spec:", "spec:\n  nope: 1\n  more: 2", 1), nil, cli.Failed, "is refused:\n  unknown field \"spec.more\"\n  unknown field \"spec.nope\"\n"},
		"one of two":                   {manifest("a") + "---\n" + manifest("b", "driver"), nil, cli.Failed, "nothing was submitted"},
		"one that is there":            {manifest("there"), nil, cli.Failed, "stdin: job NS/there exists already: delete it first"},
		"another namespace":            {strings.Replace(manifest("a"), "metadata:", "metadata:\n  namespace: other", 1), nil, cli.Usage, `stdin: job "a" is of namespace other, and -n is NS`},
		"no namespace":                 {manifest("a"), []string{"-n", "nope-at-all"}, cli.Failed, `is there a namespace nope-at-all`},
		"another kind":                 {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n", nil, cli.Failed, "stdin: ConfigMap \"a\" is no DIJob: create it by kubectl apply\nnothing was submitted"},
		"a version that is not served": {"apiVersion: diengine.opendilab.org/v2beta1\nkind: DIJob\nmetadata:\n  name: a\n", nil, cli.Failed, "want kind DIJob of diengine.opendilab.org/v2alpha1 or diengine.opendilab.org/v1alpha1"},
		"a kind in another case":       {"apiVersion: diengine.opendilab.org/v2alpha1\nkind: DIjob\nmetadata:\n  name: a\n", nil, cli.Failed, "want kind DIJob of diengine.opendilab.org/v2alpha1"},
		"a kind to import":             {"apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata:\n  name: a\n", nil, cli.Failed, "import it by kubectl di convert"},
		"a job without name":           {manifest(`""`), nil, cli.Failed, "stdin: a job has no metadata.name"},
		"broken YAML":                  {"a: [", nil, cli.Failed, "nothing was submitted"},
		"nothing":                      {"", nil, cli.Failed, "nothing was submitted"},
		"no file":                      {"", []string{"-f", "/nope.yaml"}, cli.Failed, "/nope.yaml"},
		"a trial that is watched":      {"", []string{"--dry-run=server", "--watch"}, cli.Usage, "--watch and --dry-run exclude each other"},
		"an unknown trial":             {"", []string{"--dry-run=maybe"}, cli.Usage, `--dry-run "maybe": want one of none, client, server`},
		"an unknown validation":        {"", []string{"--validate=maybe"}, cli.Usage, `--validate "maybe": want one of strict, warn, ignore`},
		"a timeout of nothing":         {"", []string{"--timeout=1s"}, cli.Usage, "--timeout 1s: is for --watch"},
		"who may not":                  {manifest("a"), []string{"--as", "nobody"}, cli.Failed, "--verb=create --resource=dijobs.diengine.opendilab.org"},
	} {
		got := w.fed(t, ns, tc.stdin, append([]string{"submit", "-f", "-"}, tc.args...)...)
		if got.code != tc.code || got.stdout != "" || !strings.Contains(plain(got.stderr, ns), tc.want) {
			t.Errorf("%s: got %+v, want %s", name, got, tc.want)
		}
	}
	if got := kubectlDI(t, "", "submit"); got.code != cli.Usage || !strings.Contains(got.stderr, "-f is missing: name a file, a folder, a URL, or - for stdin") {
		t.Errorf("got %+v", got)
	}
	var jobs v2alpha1.DIJobList
	expect.NoError(t, w.live.List(t.Context(), &jobs, client.InNamespace(ns)))
	if len(jobs.Items) != 1 {
		t.Errorf("there are %d jobs, want the one of before", len(jobs.Items))
	}
}

// operated changes the status of a job like the operator.
func (w *world) operated(t *testing.T, namespace, name string, change func(*v2alpha1.DIJobStatus)) *v2alpha1.DIJob {
	t.Helper()
	job := &v2alpha1.DIJob{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, job))
	change(&job.Status)
	expect.NoError(t, w.live.Status().Update(t.Context(), job))
	return job
}

func (w *world) event(t *testing.T, job *v2alpha1.DIJob, kind, reason, message string) {
	t.Helper()
	w.eventAt(t, job, kind, reason, message, time.Now())
}

func (w *world) eventAt(t *testing.T, job *v2alpha1.DIJob, kind, reason, message string, at time.Time) {
	t.Helper()
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: job.Namespace, GenerateName: job.Name + "-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob", Namespace: job.Namespace, Name: job.Name, UID: job.UID},
		Type:           kind, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(at), Source: corev1.EventSource{Component: names.ControllerName},
	}))
}

func TestASubmittedJobIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	for name, tc := range map[string]struct {
		end  v2alpha1.Phase
		code int
		want string
	}{
		"one that succeeds": {v2alpha1.JobSucceeded, 0, ""},
		"one that fails": {v2alpha1.JobFailed, cli.Failed, "kubectl-di: job NS/pong has failed: a replica failed too often (JobFailed)\n" +
			"the last failure was of pod pong-collector-0, with exit code 137, OOMKilled\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := w.namespace(t)
			submitted := w.start(t, ns, manifest("pong"), "submit", "-f", "-", "--watch")
			submitted.out.shows(t, "dijob.diengine.opendilab.org/pong submitted\njob "+ns+"/pong: submitted, and not observed by the operator yet\n")
			job := w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) {
				status.Phase, status.Replicas = v2alpha1.JobStarting, 1
				status.TaskStatus = map[string]v2alpha1.TaskStatus{"collector": {corev1.PodPending: 1}}
			})
			submitted.out.shows(t, "job "+ns+"/pong: Starting; 0 of 1 replicas ready; collector: 1 Pending\n")
			w.event(t, job, corev1.EventTypeWarning, "ReplicasStalled", "no node\nis found")
			submitted.out.shows(t, "job "+ns+"/pong: warning ReplicasStalled: no node is found\n")
			w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) {
				status.Phase, status.ReadyReplicas, status.Restarts = v2alpha1.JobRunning, 1, 1
				status.TaskStatus = map[string]v2alpha1.TaskStatus{"collector": {corev1.PodRunning: 1}}
			})
			submitted.out.shows(t, "job "+ns+"/pong: Running; 1 of 1 replicas ready; collector: 1 Running; restarts: 1\n")
			w.event(t, job, corev1.EventTypeNormal, "JobEnded", "it is over")
			w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) {
				status.Phase = tc.end
				status.Conditions = []v2alpha1.DIJobCondition{
					{Type: string(tc.end), Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonJobFailed, Message: "a replica failed too often"},
				}
				status.LastFailure = &v2alpha1.LastFailure{Pod: "pong-collector-0", ExitCode: ptr.To[int32](137), Reason: v2alpha1.ReasonOOMKilled}
			})
			code := submitted.ended(t)
			out := plain(submitted.out.String(), ns)
			if code != tc.code || plain(submitted.report.String(), ns) != tc.want || !strings.Contains(out, "job NS/pong: "+string(tc.end)+"; ") {
				t.Errorf("exit code %d, %s%s", code, out, submitted.report)
			}
			if strings.Count(out, "job NS/pong: event JobEnded: it is over\n") != 1 {
				t.Errorf("the last event is not shown once: %s", out)
			}
		})
	}
}

func TestFollowingStopsWithTheJobOrTheTime(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	deleted := w.start(t, ns, manifest("pong"), "submit", "-f", "-", "--watch", "-o", "name")
	deleted.report.shows(t, "not observed by the operator yet")
	expect.NoError(t, w.live.Delete(t.Context(), &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pong"}}))
	if code := deleted.ended(t); code != cli.Failed || !strings.Contains(deleted.report.String(), "job "+ns+"/pong is gone: it was deleted\n") {
		t.Errorf("exit code %d, %s", code, deleted.report)
	}
	if deleted.out.String() != "dijob.diengine.opendilab.org/pong\n" {
		t.Errorf("what -o asks for became %s", deleted.out)
	}
	interrupted := w.start(t, ns, manifest("pong"), "submit", "-f", "-", "--watch")
	interrupted.out.shows(t, "not observed by the operator yet")
	interrupted.stop()
	if code := interrupted.ended(t); code != cli.Failed || !strings.Contains(interrupted.report.String(), "stopped watching job "+ns+"/pong, which continues: submitted") {
		t.Errorf("exit code %d, %s", code, interrupted.report)
	}
	got := w.fed(t, ns, manifest("other"), "submit", "-f", "-", "--watch", "--timeout=1ms")
	if got.code != cli.TimedOut || !strings.Contains(got.stderr, "stopped watching job "+ns+"/other") {
		t.Errorf("got %+v", got)
	}
}

func TestTheVersionsAreThoseOfTheImages(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	got := w.run(t, ns, "version", "--server-namespace", ns)
	if got.code != cli.Failed || got.stdout != "Client:  dev\n" || !strings.Contains(got.stderr, "namespace "+ns+" has no deployment of DI Orchestrator") {
		t.Errorf("got %+v", got)
	}
	for name, image := range map[string]string{
		"operator": "registry:5000/di-orchestrator:v2.1.0", "webhook": "di-orchestrator:dev", "server": "di-orchestrator@sha256:abc",
	} {
		labels := map[string]string{"app.kubernetes.io/name": "di-orchestrator", "app.kubernetes.io/component": name}
		expect.NoError(t, w.live.Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "di-" + name, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image}}},
				},
			},
		}))
	}
	want := "Client:     dev\n" +
		"Operator:   v2.1.0      0 of 2 ready, deployment NS/di-operator, image registry:5000/di-orchestrator:v2.1.0\n" +
		"Webhooks:   dev         0 of 2 ready, deployment NS/di-webhook, image di-orchestrator:dev\n" +
		"di-server:  sha256:abc  0 of 2 ready, deployment NS/di-server, image di-orchestrator@sha256:abc\n"
	differs := "kubectl-di: this plugin is dev, but the operator is v2.1.0: of one release they know the same fields and flags\n"
	if got := w.run(t, ns, "version", "--server-namespace", ns); got.code != 0 || plain(got.stdout, ns) != want || got.stderr != differs {
		t.Errorf("got %+v", got)
	}
	var report struct{ Operator struct{ Version string } }
	expect.NoError(t, yaml.Unmarshal([]byte(w.ranWell(t, ns, "version", "--server-namespace", ns, "-o", "yaml")), &report))
	if report.Operator.Version != "v2.1.0" {
		t.Errorf("got %+v", report)
	}
	expect.NoError(t, yaml.Unmarshal([]byte(w.ranWell(t, ns, "version", "--server-namespace", ns, "-o", "json")), &report))
	if got := w.run(t, ns, "version", "-o", "wide"); got.code != cli.Usage {
		t.Errorf("got %+v", got)
	}
	if got := w.run(t, ns, "version", "--as", "nobody", "--server-namespace", ns); got.code != cli.Failed || !strings.Contains(got.stderr, "--verb=list --resource=deployments.apps") {
		t.Errorf("got %+v", got)
	}
}

func TestAJobIsDescribedAsFarAsItMayBeRead(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.event(t, job, corev1.EventTypeNormal, "SuccessfulCreate", "created pod cartpole-coordinator")
	w.did(t, ns, "add", "collector", "cartpole", "--cpus", "2")
	collector := w.members(t, job, v2alpha1.TaskTypeCollector)[0].PodName
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: ns, Name: "unhealthy"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "cartpole-coordinator"},
		Type:           corev1.EventTypeWarning, Reason: "Unhealthy", Message: "Readiness probe failed", LastTimestamp: metav1.Now(),
	}))
	got := w.ranWell(t, ns, "describe", "cartpole", "dijob/pong")
	for _, want := range []string{
		"Lifecycle:  CoordinatorLed\n", "coordinator  cartpole-coordinator  Pending  0         -          <none>  ", "cpus=2", collector,
		"created pod cartpole-coordinator", "pod cartpole-coordinator", "Readiness probe failed", "Lifecycle:  WorkerLed\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	w.grant(t, ns, user("half"), rule(v2alpha1.GroupName, "dijobs", "get"))
	half := w.run(t, ns, "describe", "cartpole", "--as", "half")
	if half.code != 0 || half.stderr != "" {
		t.Errorf("got %+v", half)
	}
	for _, right := range []string{"list --resource=pods", "get --resource=memberships.diengine.opendilab.org", "list --resource=events"} {
		if !strings.Contains(half.stdout, "create role kubectl-di-") || !strings.Contains(half.stdout, "--verb="+right) {
			t.Errorf("it does not say that it needs to %s:\n%s", right, half.stdout)
		}
	}
}

func TestNamesAreCompleted(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	pod := "cartpole-collector-abcde"
	w.pod(t, w.trainer(t, ns, "cartpole"), pod, names.ReplicaLabels("cartpole", names.ReplicaTypeCollector, pod))
	queued := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	queued.Spec.Scheduling = &v2alpha1.Scheduling{Queue: "team"}
	expect.NoError(t, w.live.Update(t.Context(), queued))
	for args, want := range map[string]string{
		"describe pong ": "cartpole\n", "suspend ": "cartpole\npong\n", "resume ": "cartpole\npong\n", "scale ": "cartpole\npong\n", "scale pong ": "",
		"wait ": "cartpole\npong\n", "list --phase ": "Pending\nStarting\nRestarting\nRescheduling\nRunning\nSucceeded\nFailed\nUnknown\nSuspended\n", "run ": "",
		"delete ": "collector\nlearner\ncartpole\npong\n", "delete cartpole ": "pong\n", "stop cartpole ": "pong\n",
		"suspend -o ": "json\nyaml\nkyaml\nname\ngo-template\ngo-template-file\ntemplate\ntemplatefile\njsonpath\njsonpath-as-json\njsonpath-file\n",
		"add ":        "collector\nlearner\n", "delete learner ": "cartpole\npong\n", "restart cartpole ": pod + "\n",
		"exec cartpole ": pod + "\ncartpole-coordinator\n", "open ": "cartpole\npong\n", "events ": "cartpole\npong\n", "cost ": "cartpole\npong\n",
		"logs cartpole --task ": "coordinator\ncollector\nlearner\n", "logs cartpole --pod ": pod + "\ncartpole-coordinator\n",
		"logs cartpole --container ": "di-container\n", "exec cartpole coordinator -c ": "di-container\n", "open cartpole nope -c ": "",
		"logs --container ": "", "run x --queue ": "team\n",
		"plan pong --task ": "collector=\n", "plan pong --remove ": "pong-collector-0\n", "scale pong --task ": "collector\n", "logs --task ": "", "top ": "cartpole\npong\n",
		"run pong --task ": "learner=\ncollector=\nevaluator=\n", "logs cartpole ": pod + "\ncartpole-coordinator\n",
	} {
		got := w.run(t, ns, append([]string{"__completeNoDesc"}, strings.Split(args, " ")...)...)
		if names, _, _ := strings.Cut(got.stdout, ":"); names != want {
			t.Errorf("%s: got %+v, want %s", args, got, want)
		}
	}
}
