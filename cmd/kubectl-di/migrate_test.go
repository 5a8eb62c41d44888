// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/installation"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/migration"
)

// stored is the storage state and the desired version of both definitions, as set by administrators
// and the operator.
type stored struct {
	storage     string
	versions    []string
	unserved    string
	annotations map[string]string
	jobs        *migration.Record
}

// worldOfDefinitions returns an API server for one test, because an API server has only one
// definition of each kind.
func worldOfDefinitions(t *testing.T) *world {
	t.Helper()
	w, err := startCluster()
	t.Cleanup(func() { expect.NoError(t, w.end()) })
	expect.NoError(t, err)
	w.unprotect(t)
	return w
}

// unprotect removes the policy that protects the conversion, because tests write definitions without webhooks.
func (w *world) unprotect(t *testing.T) {
	t.Helper()
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "di-orchestrator-conversion"}}
	expect.NoError(t, w.live.Delete(t.Context(), binding))
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
	for {
		err := w.live.Patch(t.Context(), w.definition(t, "dijobs"), none, client.DryRunAll)
		if err == nil {
			return
		}
		if !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (w *world) definition(t *testing.T, resource string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Name: resource + "." + v2alpha1.GroupName}, definition))
	return definition
}

// are sets the state of the definitions and the operator's record.
func (w *world) are(t *testing.T, as stored) {
	t.Helper()
	for _, resource := range []string{"dijobs", "aggregatorconfigs"} {
		found := w.definition(t, resource)
		changed := crds.WithStorage(found, as.storage)
		for i := range changed.Spec.Versions {
			changed.Spec.Versions[i].Served = changed.Spec.Versions[i].Name != as.unserved
		}
		delete(changed.Annotations, crds.AnnotationStorageVersion)
		delete(changed.Annotations, crds.AnnotationStopServing)
		delete(changed.Annotations, crds.AnnotationRetired)
		delete(changed.Annotations, crds.AnnotationTakeover)
		for key, value := range as.annotations {
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, key, value)
		}
		expect.NoError(t, w.live.Patch(t.Context(), changed, client.MergeFrom(found)))
		status, err := json.Marshal(map[string]any{"status": map[string]any{"storedVersions": as.versions}})
		expect.NoError(t, err)
		expect.NoError(t, w.live.Status().Patch(t.Context(), found, client.RawPatch(types.MergePatchType, status)))
	}
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: migration.RecordName}}
	expect.NoError(t, client.IgnoreNotFound(w.live.Delete(t.Context(), record)))
	if as.jobs != nil {
		content, err := json.Marshal(as.jobs)
		expect.NoError(t, err)
		record.Data = map[string]string{"dijobs": string(content)}
		expect.NoError(t, w.live.Create(t.Context(), record))
	}
}

// delete deletes jobs at the end of a test.
func (w *world) delete(t *testing.T, jobs ...*v2alpha1.DIJob) {
	t.Helper()
	for _, job := range jobs {
		expect.NoError(t, w.live.Delete(context.WithoutCancel(t.Context()), job))
	}
}

// atRest returns the state without a migration.
func atRest() stored {
	return stored{storage: v2alpha1.Version, versions: []string{v2alpha1.Version}}
}

// wanted returns the desired storage version, and the version that must not be served.
func (w *world) wanted(t *testing.T) [2]string {
	t.Helper()
	annotations := w.definition(t, "dijobs").Annotations
	return [2]string{annotations[crds.AnnotationStorageVersion], annotations[crds.AnnotationStopServing]}
}

func (w *world) migrate(t *testing.T, args ...string) ran {
	t.Helper()
	return w.run(t, "default", append([]string{"migrate"}, args...)...)
}

// The steps share the definitions, so that they run in sequence.
func TestMigrateSaysWhatIsWantedAndHowFarItIs(t *testing.T) {
	t.Parallel()
	w := worldOfDefinitions(t)
	t.Run("a missing right is named with the role that gives it", w.aMissingRightIsNamed)
	t.Run("the desired versions are changed, or it is refused", w.theDesiredIsChangedOrRefused)
	t.Run("status says what comes next in each phase", w.statusSaysWhatComesNext)
	t.Run("status is for scripts", w.statusIsForScripts)
	t.Run("status is watched until all is done", w.statusIsWatched)
	t.Run("without the definitions it is said that nothing is installed", w.nothingIsInstalled)
}

// theDesiredIsChangedOrRefused runs commands that change the desired versions, some of them in a
// prepared state.
func (w *world) theDesiredIsChangedOrRefused(t *testing.T) {
	ns := w.namespace(t)
	cartpole, pong := w.trainer(t, ns, "cartpole"), w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	finishes := func(job *v2alpha1.DIJob) {
		job.Status.Phase = v2alpha1.JobSucceeded
		expect.NoError(t, w.live.Status().Update(t.Context(), job))
	}
	t.Cleanup(func() { w.delete(t, cartpole, pong) })
	const (
		refused = "kubectl-di: nothing was changed: "
		toSeeIt = " To see it:\n\n    kubectl di migrate status --watch\n"
	)
	mixed, back := atRest(), atRest()
	mixed.versions = []string{v1alpha1.Version, v2alpha1.Version}
	back.annotations = map[string]string{crds.AnnotationStorageVersion: v1alpha1.Version}
	for _, step := range []struct {
		as   *stored
		job  *v2alpha1.DIJob // finished before the step
		args string
		want ran
		then [2]string
	}{
		{as: ptr.To(atRest()), args: "--to v1alpha1", want: ran{code: cli.Failed, stderr: refused +
			"v0.2.2 would run these jobs differently; delete them, or let them finish:\n  NS/pong (it is led by its workers)\n"}},
		{args: "--to v2alpha1 --for-release v1.1.3", want: ran{code: cli.Failed, stderr: refused +
			"v1.1.3 would run these jobs differently; delete them, or let them finish:\n  NS/cartpole (it is led by its coordinator)\n"}},
		{job: pong, args: "--to v1alpha1", then: [2]string{"v1alpha1", ""}, want: ran{stdout: "The operator will store objects in v1alpha1, and writes them all." +
			toSeeIt + "\nWhen all is done, and not before:\n\n    helm uninstall di-orchestrator -n di-system\n\nand install v0.2.2 again. Jobs are kept.\n"}},
		{args: "--to v2alpha1", then: [2]string{"v2alpha1", ""}, want: ran{stdout: "The operator will store objects in v2alpha1, and writes them all." + toSeeIt}},
		{as: &mixed, args: "--stop-serving v1alpha1", want: ran{code: cli.Failed, stderr: refused +
			"objects may still be stored in v1alpha1: kubectl di migrate status reports the progress\n"}},
		{as: &back, args: "--stop-serving v1alpha1", then: [2]string{"v1alpha1", ""}, want: ran{code: cli.Failed, stderr: refused +
			"v1alpha1 is the desired version of stored objects: first run kubectl di migrate --to v2alpha1\n"}},
		{as: ptr.To(atRest()), args: "--stop-serving v1alpha1", then: [2]string{"", "v1alpha1"}, want: ran{stdout: "v1alpha1 will no longer be served, " +
			"as soon as no pod, service or stored object needs it." + toSeeIt}},
		{args: "--to v1alpha1", then: [2]string{"", "v1alpha1"}, want: ran{code: cli.Failed, stderr: refused +
			"v1alpha1 will no longer be served: first run kubectl di migrate --serve v1alpha1\n"}},
		{args: "--serve v1alpha1", want: ran{stdout: "v1alpha1 will be served again." + toSeeIt}},
	} {
		if step.as != nil {
			w.are(t, *step.as)
		}
		if step.job != nil {
			finishes(step.job)
		}
		got := w.migrate(t, strings.Fields(step.args)...)
		got.stderr = plain(got.stderr, ns)
		if got != step.want || w.wanted(t) != step.then {
			t.Errorf("%s: got %+v, then %v, want %+v", step.args, got, w.wanted(t), step)
		}
	}
}

// toV1 returns the state during a storage migration to v1alpha1.
func toV1(storage string, record *migration.Record) stored {
	versions := []string{v2alpha1.Version}
	if storage == v1alpha1.Version {
		versions = append(versions, v1alpha1.Version)
	}
	return stored{
		storage: storage, versions: versions, jobs: record,
		annotations: map[string]string{crds.AnnotationStorageVersion: v1alpha1.Version},
	}
}

// rewriting returns the record of an operator that has handled 500 of 1001 objects.
func rewriting(failed ...migration.Failure) *migration.Record {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	record := migration.Begin(&migration.Observed{Wanted: v1alpha1.Version, Generation: 2, Now: start}).AddPage(500, failed, "token", start)
	record.Total, record.Updated = 1001, start.Add(10*time.Second)
	return &record
}

func (w *world) statusSaysWhatComesNext(t *testing.T) {
	settling := migration.Begin(&migration.Observed{Wanted: v1alpha1.Version, Generation: 2})
	earlier := migration.Record{Target: v2alpha1.Version, Phase: migration.PhaseFinished, Total: 7, Done: 7}
	blocked := earlier
	blocked.Blocked = "objects are not stored in v1alpha1, because"
	written := *rewriting()
	written.Done, written.Listed, written.Continue = written.Total, true, ""
	stopping := func(unserved string, record migration.Record) stored {
		as := atRest()
		as.annotations = map[string]string{crds.AnnotationStopServing: v1alpha1.Version}
		as.unserved, as.jobs = unserved, &record
		return as
	}
	pruned := toV1(v1alpha1.Version, &written)
	pruned.versions = []string{v1alpha1.Version}
	retired := toV1(v1alpha1.Version, rewriting())
	retired.annotations[crds.AnnotationRetired] = "true"
	taken := atRest()
	taken.annotations = map[string]string{crds.AnnotationTakeover: "Probe: the webhooks do not answer yet"}
	serving := atRest()
	serving.unserved, serving.jobs = v1alpha1.Version, &earlier
	const (
		before = "dijobs: stored in v2alpha1, wanted v1alpha1, served v1alpha1 and v2alpha1\n"
		during = "dijobs: stored in v2alpha1 and v1alpha1, wanted v1alpha1, served v1alpha1 and v2alpha1\n"
		after  = "dijobs: stored in v2alpha1, wanted v2alpha1, served v1alpha1 and v2alpha1\n"
		less   = "dijobs: stored in v2alpha1, wanted v2alpha1, served v2alpha1\n"
	)
	for _, tc := range []struct {
		when string
		as   stored
		want string
	}{
		{"nothing is left", atRest(), after},
		{"an earlier release is taken over", taken, "takeover of an earlier release: Running: Probe: the webhooks do not answer yet\n" + after},
		{"no operator has recorded anything", toV1(v2alpha1.Version, nil), before + "  next: an operator in namespace di-system begins; none has recorded anything yet\n"},
		{"only a migration before is recorded", toV1(v2alpha1.Version, &earlier), before + "  next: objects will be stored in v1alpha1\n"},
		{"it is blocked", toV1(v2alpha1.Version, &blocked), before + "  next: waits: objects are not stored in v1alpha1, because\n"},
		{"the storage is switched", toV1(v1alpha1.Version, &earlier), during + "  next: the operator begins to write all objects once\n"},
		{"it settles", toV1(v1alpha1.Version, &settling), during + "  next: the API servers learn that v1alpha1 is stored; then all objects are written once\n"},
		{"it is written", toV1(v1alpha1.Version, rewriting()), during + "  500 of 1001 objects, 50.0 a second, 10s left\n  next: the rest of the objects is written\n"},
		{
			"an object cannot be written", toV1(v1alpha1.Version, rewriting(migration.Failure{Namespace: "rl", Name: "pong", Message: "too large"})),
			during + "  499 of 1001 objects, 49.9 a second, 10s left\n  cannot be written: rl/pong: too large\n  next: the rest of the objects is written\n",
		},
		{"all is written", pruned, "dijobs: stored in v1alpha1, wanted v1alpha1, served v1alpha1 and v2alpha1\n" +
			"  1001 of 1001 objects, 100.1 a second, 0s left\n  next: owner references will name v1alpha1\n"},
		{"it was uninstalled", retired, during + "  500 of 1001 objects, 50.0 a second, 10s left\n  next: it continues when DI Orchestrator, which was uninstalled, is installed again\n"},
		{"a version will no longer be served", stopping("", earlier), after +
			"  7 of 7 objects\n  next: owner references will name v2alpha1; then v1alpha1 is no longer served\n"},
		{"a version is served no more", stopping(v1alpha1.Version, earlier), less + "  7 of 7 objects\n  next: v1alpha1 is removed from the objects' managedFields\n"},
		{"a version will be served again", serving, less + "  7 of 7 objects\n  next: v1alpha1 is served again\n"},
	} {
		w.are(t, tc.as)
		got := w.migrate(t, "status")
		text, others, both := strings.Cut(got.stdout, "aggregatorconfigs: ")
		if got.code != cli.Done || got.stderr != "" || !both || text != tc.want {
			t.Errorf("%s: got %+v, want %s", tc.when, got, tc.want)
		}
		if done := strings.HasSuffix(others, "All is done.\n"); done != (tc.when == "nothing is left") {
			t.Errorf("%s: got %s", tc.when, got.stdout)
		}
	}
}

func (w *world) statusIsForScripts(t *testing.T) {
	w.are(t, toV1(v1alpha1.Version, rewriting()))
	got := w.migrate(t, "status", "-o", "json")
	var report installation.Report
	expect.NoError(t, json.Unmarshal([]byte(got.stdout), &report))
	both := []string{v1alpha1.Version, v2alpha1.Version}
	switching := []string{v2alpha1.Version, v1alpha1.Version}
	want := installation.Report{Resources: []installation.Resource{
		{
			Resource: "dijobs", Wanted: v1alpha1.Version, Storage: v1alpha1.Version, Stored: switching, Served: both,
			Record: rewriting(), Rate: 50, SecondsLeft: 10.02, Next: "the rest of the objects is written",
		},
		{
			Resource: "aggregatorconfigs", Wanted: v1alpha1.Version, Storage: v1alpha1.Version, Stored: switching, Served: both,
			Next: "an operator in namespace di-system begins; none has recorded anything yet",
		},
	}, Takeover: &installation.Shown{State: "Done", Text: "There is nothing left to take over."}}
	if diff := cmp.Diff(want, report); got.code != cli.Done || diff != "" {
		t.Errorf("exit code %d: %s%s", got.code, got.stderr, diff)
	}
	w.are(t, atRest())
	got = w.migrate(t, "status", "-o", "json", "--operator-namespace", "elsewhere")
	report = installation.Report{}
	expect.NoError(t, json.Unmarshal([]byte(got.stdout), &report))
	if got.code != cli.Done || !report.Done {
		t.Errorf("got %+v", got)
	}
}

func (w *world) statusIsWatched(t *testing.T) {
	w.are(t, toV1(v1alpha1.Version, rewriting()))
	watching := w.start(t, "default", "", "migrate", "status", "--watch")
	watching.out.shows(t, "500 of 1001 objects")
	w.are(t, atRest())
	watching.out.shows(t, "All is done.")
	if code := watching.ended(t); code != cli.Done || watching.report.String() != "" {
		t.Errorf("exit code %d: %s", code, watching.report)
	}
	if times := strings.Count(watching.out.String(), "500 of 1001 objects"); times != 1 {
		t.Errorf("what did not change was said %d times", times)
	}
}

// aMissingRightIsNamed creates each role that the command reports as missing by kubectl, and grants
// it to the user, until none is missing.
func (w *world) aMissingRightIsNamed(t *testing.T) {
	w.are(t, atRest())
	given := func(args []string, want string) {
		t.Helper()
		got := w.migrate(t, append(args, "--as", "olga")...)
		if got.code != cli.Failed || !strings.HasSuffix(got.stderr, "\na role of this right, bound to you, allows it:\n  "+want+"\n") {
			t.Fatalf("%v: got %+v, want %s", args, got, want)
		}
		w.kubectl(t, strings.Fields(want)[1:]...)
		words := strings.Fields(want)
		if words[2] == "clusterrole" {
			var made rbacv1.ClusterRole
			w.kubectl(t, "create", "clusterrolebinding", words[3], "--clusterrole", words[3], "--user", "olga")
			expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Name: words[3]}, &made))
			w.waitAllowed(t, "", "olga", &made.Rules[0])
			return
		}
		var made rbacv1.Role
		w.kubectl(t, "-n", words[2], "create", "rolebinding", words[5], "--role", words[5], "--user", "olga")
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: words[2], Name: words[5]}, &made))
		w.waitAllowed(t, words[2], "olga", &made.Rules[0])
	}
	status, back := []string{"status"}, []string{"--to", "v1alpha1"}
	given(status, "kubectl create clusterrole kubectl-di-get-customresourcedefinitions --verb=get --resource=customresourcedefinitions.apiextensions.k8s.io")
	given(status, "kubectl -n di-system create role kubectl-di-get-configmaps --verb=get --resource=configmaps --resource-name=di-orchestrator-storage-migration")
	if got := w.migrate(t, "status", "--as", "olga"); got.code != cli.Done {
		t.Errorf("got %+v", got)
	}
	given(back, "kubectl create clusterrole kubectl-di-list-dijobs --verb=list --resource=dijobs.diengine.opendilab.org")
	given(back, "kubectl create clusterrole kubectl-di-patch-customresourcedefinitions --verb=patch "+
		"--resource=customresourcedefinitions.apiextensions.k8s.io --resource-name=dijobs.diengine.opendilab.org")
	if got := w.migrate(t, "--to", "v1alpha1", "--as", "olga"); got.code != cli.Done {
		t.Errorf("got %+v", got)
	}
}

func (w *world) nothingIsInstalled(t *testing.T) {
	w.are(t, atRest())
	alone := w.definition(t, "dijobs")
	earlier := alone.DeepCopy()
	earlier.Spec.Versions = slices.DeleteFunc(earlier.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return version.Name == v1alpha1.Version
	})
	expect.NoError(t, w.live.Patch(t.Context(), earlier, client.MergeFrom(alone)))
	want := "kubectl-di: nothing was changed: customresourcedefinition dijobs.diengine.opendilab.org has no version v1alpha1 yet, only v2alpha1: an operator of this release adds it\n"
	if got := w.migrate(t, "--to", "v1alpha1"); got != (ran{stderr: want, code: cli.Failed}) {
		t.Errorf("got %+v, want %s", got, want)
	}
	expect.NoError(t, w.live.Delete(t.Context(), earlier))
	// The definition disappears after its objects.
	expect.NoError(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		err := w.live.Get(ctx, client.ObjectKeyFromObject(earlier), &apiextensionsv1.CustomResourceDefinition{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}))
	want = "kubectl-di: there is no customresourcedefinition dijobs.diengine.opendilab.org: DI Orchestrator is not installed\n"
	for _, args := range [][]string{{"status"}, {"--to", "v1alpha1"}} {
		if got := w.migrate(t, args...); got != (ran{stderr: want, code: cli.Failed}) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
}
