// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/document"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// asTenant returns the shared world, a namespace, and a user with role edit of it and no other right.
func asTenant(t *testing.T) (w *world, namespace, name string) {
	t.Helper()
	w, namespace = inNamespace(t)
	name = "tenant-" + namespace
	w.editor(t, namespace, name)
	return w, namespace, name
}

func TestATenantRunsAJobWithoutAManifest(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	manifest := w.run(t, ns, "run", "pong", "--image", "train:1", "--as", tenant, "--replicas", "4", "--min", "2", "--max", "8", "--gpus", "1",
		"--cpu", "500m", "--memory", "4Gi", "--env", "A=b=c", "--dry-run=client", "-o", "yaml", "--", "python", "train.py", "--env", "Pong").well(t, []string{"run"})
	var printed v2alpha1.DIJob
	expect.NoError(t, yaml.UnmarshalStrict([]byte(manifest), &printed))
	if bounds := printed.Spec.Elastic; *bounds.MinReplicas != 2 || *bounds.MaxReplicas != 8 || *printed.Spec.Tasks[0].Replicas != 4 {
		t.Errorf("the manifest is\n%s", manifest)
	}
	// What is printed can be submitted.
	submitted := w.fed(t, ns, manifest, "submit", "-f", "-", "--dry-run=server", "--as", tenant)
	if submitted.code != 0 || submitted.stderr != "" {
		t.Errorf("got %+v", submitted)
	}

	running := w.start(t, ns, "", "run", "pong", "--image", "train:1", "--queue", "team-a", "--watch", "--as", tenant, "--", "train")
	running.out.shows(t, "dijob.diengine.opendilab.org/pong submitted\njob "+ns+"/pong: submitted, and not observed by the operator yet\n")
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	const noKueue = "queue team-a has no effect: this cluster does not serve kueue.x-k8s.io, so Kueue is not installed\n"
	if code := running.ended(t); code != 0 || plain(running.report.String(), ns) != "kubectl-di: job NS/pong: "+noKueue {
		t.Errorf("exit code %d, %s%s", code, running.out, running.report)
	}
	if page := w.ranWell(t, ns, "describe", "pong", "--as", tenant); !strings.Contains(page, "Queue:      "+strings.TrimPrefix(noKueue, "queue ")) {
		t.Errorf("the page does not say that there is no Kueue:\n%s", page)
	}
	again := w.run(t, ns, "run", "pong", "--image", "train:1", "--as", tenant)
	if again.code != cli.Failed || !strings.Contains(again.stderr, "pong exists already") {
		t.Errorf("got %+v", again)
	}
}

func TestAManifestIsWrittenWithoutACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	got := kubectlDI(t, "", "run", "pong", "--image", "train:1", "--dry-run=client", "-o", "yaml")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "apiVersion: diengine.opendilab.org/v2alpha1\nkind: DIJob\nmetadata:\n  name: pong\nspec:\n") {
		t.Errorf("got %+v", got)
	}
}

func TestATenantWaitsForAStateOfAJob(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	stored := map[string]*v2alpha1.DIJob{}
	for _, name := range []string{"succeeds", "fails", "suspended", "goes"} {
		stored[name] = w.workers(t, ns, name, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	}
	become := func(name string, phase v2alpha1.Phase) {
		w.operated(t, ns, name, func(status *v2alpha1.DIJobStatus) {
			status.Phase, status.ObservedGeneration = phase, 1
			status.Conditions = []v2alpha1.DIJobCondition{{Type: string(phase), Status: corev1.ConditionTrue, Reason: "Because", Message: "it is so"}}
		})
	}
	succeeded := w.start(t, ns, "", "wait", "succeeds", "--as", tenant)
	succeeded.report.shows(t, "job "+ns+"/succeeds: ")
	become("succeeds", v2alpha1.JobRunning)
	become("fails", v2alpha1.JobRunning)
	for _, tc := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"succeeds fails --for running", 0, "dijob.diengine.opendilab.org/succeeds condition met\ndijob.diengine.opendilab.org/fails condition met\n", "job NS/succeeds: Running; 0 of 3 replicas ready\n"},
		{"succeeds --for phase=running", 0, "dijob.diengine.opendilab.org/succeeds condition met\n", ""},
		{"succeeds --for condition=running", 0, "dijob.diengine.opendilab.org/succeeds condition met\n", ""},
		{"succeeds --timeout 1ms", cli.TimedOut, "", "stopped waiting for job NS/succeeds, which continues: "},
		{"nope succeeds", cli.Failed, "", `"nope" not found` + "\nnamespace NS has fails, goes, succeeds, suspended\nnothing was done\n"},
		{"fals", cli.Failed, "", `"fals" not found` + "\ndid you mean fails?\nnothing was done\n"},
		{"succeeds --for phase=Done", cli.Usage, "", `--for "phase=Done": want one of the phases Pending, `},
		{"succeeds --for ready", cli.Usage, "", `--for "ready": want finished, running, phase=PHASE or condition=TYPE`},
	} {
		got := w.run(t, ns, append([]string{"wait", "--as", tenant}, strings.Fields(tc.args)...)...)
		if got.code != tc.code || got.stdout != tc.stdout || !strings.Contains(plain(got.stderr, ns), tc.stderr) {
			t.Errorf("%s: got %+v", tc.args, got)
		}
	}
	become("succeeds", v2alpha1.JobSucceeded)
	if code := succeeded.ended(t); code != 0 || succeeded.out.String() != "dijob.diengine.opendilab.org/succeeds condition met\n" {
		t.Errorf("exit code %d, %s%s", code, succeeded.out, succeeded.report)
	}

	// What can no longer come ends the wait.
	failing := w.start(t, ns, "", "wait", "fails", "--as", tenant, "--timeout=10m")
	become("fails", v2alpha1.JobFailed)
	want := "kubectl-di: job NS/fails is in phase Failed, so --for phase=Succeeded can no longer come true: it is so (Because)\n"
	if code := failing.ended(t); code != cli.Failed || !strings.Contains(plain(failing.report.String(), ns), want) {
		t.Errorf("exit code %d, %s", code, failing.report)
	}
	gone := w.start(t, ns, "", "wait", "goes", "--for", "finished", "--as", tenant)
	gone.report.shows(t, "job "+ns+"/goes: ")
	expect.NoError(t, w.live.Delete(t.Context(), stored["goes"]))
	if code := gone.ended(t); code != cli.Failed || !strings.Contains(gone.report.String(), "job "+ns+"/goes is gone: it was deleted\n") {
		t.Errorf("exit code %d, %s", code, gone.report)
	}
	// A failure outranks a timeout.
	both := w.run(t, ns, "wait", "suspended", "fails", "--timeout=1s", "--as", tenant)
	if both.code != cli.Failed || !strings.Contains(both.stderr, "stopped waiting for job "+ns+"/suspended") {
		t.Errorf("got %+v", both)
	}
}

func TestATenantDeletesHisJobs(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	for _, name := range []string{"pong", "collector", "cartpole"} {
		w.workers(t, ns, name, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	}
	const of = "dijob.diengine.opendilab.org/"
	for _, tc := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"pong --dry-run=client", 0, of + "pong deleted (dry run)\n", ""},
		{"pong --dry-run=server", 0, of + "pong deleted (server dry run)\n", ""},
		// What may be a mistyped type of replicas deletes nothing.
		{"colector cartpole", cli.Failed, "", "did you mean collector?\nnothing was done\n"},
		{"collector", cli.Usage, "", "JOB is missing"},
		{"dijob/collector", 0, of + "collector deleted\n", ""},
		{"", cli.Usage, "", "JOB is missing"},
		{"pong --replicas 2", cli.Usage, "", "--replicas: is for replicas: kubectl di delete collector JOB --replicas\n"},
		{"pong collector --wait", cli.Usage, "", "--wait: is for whole jobs, and not for replicas\n"},
	} {
		got := w.run(t, ns, append([]string{"delete", "--as", tenant}, strings.Fields(tc.args)...)...)
		if got.code != tc.code || got.stdout != tc.stdout || !strings.Contains(got.stderr, tc.stderr) || tc.stderr == "" && got.stderr != "" {
			t.Errorf("%s: got %+v", tc.args, got)
		}
	}
	deleting := w.start(t, ns, "", "delete", "pong", "--wait", "--as", tenant)
	deleting.report.shows(t, "job "+ns+"/pong: 1 pod is left\n")
	var pods corev1.PodList
	expect.NoError(t, w.live.List(t.Context(), &pods, client.InNamespace(ns)))
	for i := range pods.Items {
		if strings.HasPrefix(pods.Items[i].Name, "pong-") {
			expect.NoError(t, w.live.Delete(t.Context(), &pods.Items[i], client.GracePeriodSeconds(0)))
		}
	}
	if code := deleting.ended(t); code != 0 || !strings.HasSuffix(deleting.report.String(), "/pong: no pod is left\n") || deleting.out.String() != of+"pong deleted\n" {
		t.Errorf("exit code %d, %s%s", code, deleting.out, deleting.report)
	}
	if err := w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pong"}, &v2alpha1.DIJob{}); !apierrors.IsNotFound(err) {
		t.Errorf("the job is left: %v", err)
	}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cartpole"}, &v2alpha1.DIJob{}))
}

func TestATenantStopsAJobAndReadsHowItContinues(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	got := w.run(t, ns, "stop", "pong", "--as", tenant)
	want := ran{"dijob.diengine.opendilab.org/pong suspended\n", "kubectl-di: kubectl di resume pong -n " + ns + " continues it\n", 0}
	if got != want {
		t.Errorf("got %+v", got)
	}
}

func TestFirstGuessesLeadToTheRightCommand(t *testing.T) {
	t.Parallel()
	const both = ": did you mean one of these?\n  delete     Delete jobs, or replicas of a running job\n" +
		"  suspend    Suspend jobs: delete their pods until they are resumed\n"
	for guess, want := range map[string]string{
		"cancel": both, "kill": both, "pause": ": did you mean suspend?", "remove": ": did you mean delete?", "get": ": did you mean list?",
		"start": "  resume     Resume suspended jobs\n  run        Run a job without a manifest\n",
	} {
		got := kubectlDI(t, "", guess, "pong")
		if got.code != cli.Usage || !strings.Contains(got.stderr, want) || !strings.HasPrefix(got.stderr, `kubectl-di: unknown command "`+guess+`"`) {
			t.Errorf("%s: got %+v", guess, got)
		}
	}
	for want, args := range map[string][]string{
		`"job.yaml": files are named by -f: kubectl di submit -f job.yaml`:              {"submit", "job.yaml"},
		`"python": the command follows "--": kubectl di run pong --image IMAGE -- pyt`:  {"run", "pong", "python", "train.py", "--image", "a"},
		"--image is missing: name the image of the replicas":                            {"run", "pong"},
		"NAME is missing: name the job, before the command":                             {"run", "--image", "a", "--", "python"},
		`NAME "A_b": want lower-case letters, digits, - and ., at most 253, that begin`: {"run", "A_b", "--image", "a"},
		`--memory "4GB": want a quantity above 0, such as 2, 500m or 4Gi`:               {"run", "pong", "--image", "a", "--memory", "4GB"},
		`--env "A": want NAME=VALUE`:                                                    {"run", "pong", "--image", "a", "--env", "A"},
		"--replicas 9: want at most --max, which is 4":                                  {"run", "pong", "--image", "a", "--replicas", "9", "--max", "4"},
		`--phase "Done": want one of Pending, `:                                         {"list", "--phase", "Running,Done"},
		"-A and -n exclude each other":                                                  {"list", "-A", "-n", "rl"},
	} {
		if got := kubectlDI(t, "", append(args, "--kubeconfig", "/nope")[:len(args)]...); got.code != cli.Usage || !strings.HasPrefix(got.stderr, "kubectl-di: "+want) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
}

func TestATenantListsTheJobsThatMatter(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	stalled := v2alpha1.DIJobCondition{Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: "ImagePull"}
	waiting := v2alpha1.DIJobCondition{Type: v2alpha1.ConditionAdmitted, Status: corev1.ConditionFalse, Reason: "WaitingInQueue"}
	for name, status := range map[string]v2alpha1.DIJobStatus{
		"fine":    {Phase: v2alpha1.JobRunning, Summary: &v2alpha1.StatusSummary{Ready: "3/3"}},
		"stuck":   {Phase: v2alpha1.JobStarting, Conditions: []v2alpha1.DIJobCondition{stalled}, Summary: &v2alpha1.StatusSummary{Ready: "0/3", Reason: "ImagePull", Restarts: 2}},
		"queued":  {Phase: v2alpha1.JobPending, Conditions: []v2alpha1.DIJobCondition{waiting}},
		"failed":  {Phase: v2alpha1.JobFailed, Conditions: []v2alpha1.DIJobCondition{stalled}, Summary: &v2alpha1.StatusSummary{Duration: "5m"}},
		"stopped": {Phase: v2alpha1.JobPending, Conditions: []v2alpha1.DIJobCondition{stalled}},
	} {
		job := w.workers(t, ns, name, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
		if name == "stopped" {
			job.Spec.Suspend = ptr.To(true)
			expect.NoError(t, w.live.Update(t.Context(), job))
		}
		w.operated(t, ns, name, func(now *v2alpha1.DIJobStatus) { *now = status })
	}
	names := func(args ...string) string {
		listed := w.ranWell(t, ns, append([]string{"list", "-o", "name", "--as", tenant}, args...)...)
		return strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(listed, "dijob.diengine.opendilab.org/", ""), "\n", " "))
	}
	for want, args := range map[string][]string{
		"failed fine queued stopped stuck": nil, "failed fine": {"--phase", "running,Failed"}, "queued stopped": {"--phase", "Pending"},
		"failed stopped": {"--phase", "suspended,failed"},
		"stuck":          {"--stuck"}, "": {"-l", "team=no"},
	} {
		if got := names(args...); got != want {
			t.Errorf("%v: got %s, want %s", args, got, want)
		}
	}
	table := strings.Split(w.ranWell(t, ns, "ls", "--stuck", "--as", tenant), "\n")
	if want := "NAME PHASE READY REASON RESTARTS DURATION AGE"; strings.Join(strings.Fields(table[0]), " ") != want ||
		!strings.HasPrefix(strings.Join(strings.Fields(table[1]), " "), "stuck Starting 0/3 ImagePull 2 ") {
		t.Errorf("got %q", table)
	}
	got := w.run(t, ns, "list", "--phase", "Rescheduling", "--as", tenant)
	if got.code != 0 || got.stderr != "kubectl-di: there are no such jobs in namespace "+ns+"\n" {
		t.Errorf("got %+v", got)
	}
	// Only an administrator sees all namespaces.
	all := kubectlDI(t, "", "list", "-A", "--stuck", "--kubeconfig", w.kubeconfig)
	if all.code != 0 || !strings.HasPrefix(all.stdout, "NAMESPACE ") || !strings.Contains(all.stdout, ns+" ") {
		t.Errorf("got %+v", all)
	}
	if denied := kubectlDI(t, "", "list", "-A", "--kubeconfig", w.kubeconfig, "--as", tenant); denied.code != cli.Failed || !strings.Contains(denied.stderr, "--verb=list --resource=dijobs.diengine.opendilab.org") {
		t.Errorf("got %+v", denied)
	}
}

func TestATenantWatchesTheListOfHisJobs(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	other := w.workers(t, ns, "other", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	become := func(name string, phase v2alpha1.Phase) {
		w.operated(t, ns, name, func(status *v2alpha1.DIJobStatus) { status.Phase = phase })
	}
	watching := w.start(t, ns, "", "list", "-w", "-o", "wide", "--phase", "Pending,Running", "--as", tenant)
	watching.out.shows(t, "NAME   PHASE    READY  REASON  RESTARTS  DURATION  AGE")
	watching.out.shows(t, "QUEUE  GPUS\nother  Pending  0/3")
	become("other", v2alpha1.JobFailed)
	watching.out.shows(t, "\nother  Failed ")
	become("pong", v2alpha1.JobRunning)
	watching.out.shows(t, "\npong   Running  0/3")
	// A job that is not selected is no longer shown.
	become("other", v2alpha1.JobUnknown)
	expect.NoError(t, w.live.Delete(t.Context(), other))
	watching.out.shows(t, "\nother  Deleted ")
	watching.stop()
	if code := watching.ended(t); code != 0 || watching.report.String() != "" || strings.Contains(watching.out.String(), "\x1b") {
		t.Errorf("exit code %d, %s%s", code, watching.out, watching.report)
	}
	if got := w.run(t, ns, "list", "-w", "-o", "json"); got.code != cli.Usage || got.stderr != "kubectl-di: --watch: prints lines, and not -o json: leave one of them out\n" {
		t.Errorf("got %+v", got)
	}
}

func TestWhatAPageSaysIsThereForPrograms(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	for _, name := range []string{"pong", "other"} {
		w.workers(t, ns, name, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	}
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.ObservedGeneration, status.Summary = v2alpha1.JobStarting, 1, &v2alpha1.StatusSummary{Reason: "ImagePull"}
		status.Conditions = []v2alpha1.DIJobCondition{{
			Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonImagePull, Message: "manifest unknown",
		}}
	})
	var one document.Job
	expect.NoError(t, yaml.UnmarshalStrict([]byte(w.ranWell(t, ns, "describe", "pong", "-o", "yaml", "--as", tenant)), &one))
	if one.Name != "pong" || one.Reason != "ImagePull" || one.Waiting == nil || !slices.Equal(one.Waiting.Remedies, []string{"Correct the image's name and tag."}) ||
		len(one.Pods) != 1 || one.Pods[0].Name != "pong-collector-0" || one.Desired != 3 {
		t.Errorf("got %+v", one)
	}
	var both []document.Job
	expect.NoError(t, json.Unmarshal([]byte(w.ranWell(t, ns, "describe", "pong", "other", "-o", "json", "--as", tenant)), &both))
	if len(both) != 2 || both[1].Name != "other" {
		t.Errorf("got %+v", both)
	}
	half := w.run(t, ns, "describe", "pong", "nope", "-o", "json", "--as", tenant)
	if half.code != cli.Failed || !strings.HasPrefix(half.stdout, "{") || !strings.Contains(half.stderr, `"nope" not found`) {
		t.Errorf("got %+v", half)
	}
}

func TestLogsThatAreGoneAreAFailureThatSaysHowToKeepThem(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	job := w.job(t, ns, "pong", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	const none = "kubectl-di: job NS/pong is in phase "
	fails := func(want string, args ...string) {
		t.Helper()
		got := w.run(t, ns, append([]string{"logs", "pong", "--as", tenant}, args...)...)
		if got.code != cli.Failed || got.stdout != "" || plain(got.stderr, ns) != none+want {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	fails("Pending and has no pods to print the logs of yet: -f waits for them\n")
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	fails("Succeeded and has no pods to print the logs of: they were deleted with their logs; a collector of logs keeps them for longer\n")
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	job.Spec.CleanPodPolicy = v2alpha1.CleanPodPolicyAll
	expect.NoError(t, w.live.Update(t.Context(), job))
	const all = "Succeeded and has no pods to print the logs of: its spec.cleanPodPolicy All deleted them with their logs; Running keeps those that have ended, None keeps all\n"
	fails(all)
	fails(all, "-f")
}

func TestAStuckJobEndsAWaitAndSaysWhatWouldLetItRun(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	stall := func(name string) {
		w.operated(t, ns, name, func(status *v2alpha1.DIJobStatus) {
			status.Phase, status.ObservedGeneration = v2alpha1.JobStarting, 1
			status.Conditions = []v2alpha1.DIJobCondition{{
				Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonImagePull, Message: "manifest unknown",
			}}
		})
	}
	const want = "has been stuck for 1ms, and continues: manifest unknown\nwhat would let it run:\n  Correct the image's name and tag.\n"
	watching := w.start(t, ns, "", "run", "pong", "--image", "train:1", "--watch", "--fail-on-stall", "1ms", "--as", tenant)
	watching.out.shows(t, "not observed by the operator yet")
	stall("pong")
	if code := watching.ended(t); code != cli.Failed || plain(watching.report.String(), ns) != "kubectl-di: job NS/pong "+want {
		t.Errorf("exit code %d, %s%s", code, watching.out, watching.report)
	}
	got := w.run(t, ns, "wait", "pong", "--fail-on-stall", "1ms", "--as", tenant)
	if got.code != cli.Failed || !strings.HasSuffix(plain(got.stderr, ns), "kubectl-di: job NS/pong "+want) {
		t.Errorf("got %+v", got)
	}
	for args, want := range map[string]string{
		"wait pong --fail-on-stall -1s":         "--fail-on-stall -1s: want 0 or more\n",
		"run pong --image a --fail-on-stall 5m": "--fail-on-stall 5m0s: is for --watch\n",
	} {
		if got := w.run(t, ns, strings.Fields(args)...); got.code != cli.Usage || got.stderr != "kubectl-di: "+want {
			t.Errorf("%s: got %+v", args, got)
		}
	}
}

func TestATenantRunsTheProgramOfAFolder(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "train.py"), "print('train')")
	writeFile(t, filepath.Join(folder, "model", "net.py"), "x = 1")
	args := []string{"run", "pong", "--image", "train:1", "--code", folder, "--pvc", "data:/data", "--task", "learner=1", "--task", "collector=2", "--torch", "--as", tenant, "--", "python", "train.py"}
	submitted := w.run(t, ns, args...)
	name := regexp.MustCompile(`configmap/(pong-code-[0-9a-f]{10}) submitted\n`).FindStringSubmatch(submitted.stdout)
	if submitted.code != 0 || submitted.stderr != "" || name == nil || !strings.HasSuffix(submitted.stdout, "dijob.diengine.opendilab.org/pong submitted\n") {
		t.Fatalf("got %+v", submitted)
	}
	job, packed := &v2alpha1.DIJob{}, &corev1.ConfigMap{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pong"}, job))
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name[1]}, packed))
	expect.Equal(t, "files", map[string]string{"f000": "x = 1", "f001": "print('train')"}, packed.Data)
	expect.Equal(t, "owners", []metav1.OwnerReference{{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob", Name: "pong", UID: job.UID}}, packed.OwnerReferences)
	if len(job.Spec.Tasks) != 2 || *job.Spec.Tasks[1].Replicas != 2 || !slices.Equal(job.Spec.ClusterSpec, []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}) {
		t.Errorf("the job is %+v", job.Spec)
	}

	// The next job of the name shares the code, until the earlier one is gone.
	expect.NoError(t, w.live.Delete(t.Context(), job))
	again := w.run(t, ns, args...)
	if again.code != 0 || again.stderr != "kubectl-di: ConfigMap \""+name[1]+"\" exists already, and stays as it is\n" {
		t.Errorf("got %+v", again)
	}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(packed), packed))
	if len(packed.OwnerReferences) != 2 {
		t.Errorf("the owners are %+v", packed.OwnerReferences)
	}

	written := w.run(t, ns, "run", "other", "--image", "train:1", "--code", folder, "--dry-run=client", "-o", "yaml")
	if written.code != 0 || strings.Count(written.stdout, "kind: ") != 2 {
		t.Errorf("got %+v", written)
	}
	if got := w.fed(t, ns, written.stdout, "submit", "-f", "-", "--with-objects", "--as", tenant); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if got := w.run(t, ns, "run", "none", "--image", "train:1", "--code", filepath.Join(folder, "no")); got.code != cli.Usage || !strings.Contains(got.stderr, "no such file or directory") {
		t.Errorf("got %+v", got)
	}
}
