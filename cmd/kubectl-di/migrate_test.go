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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/migrate"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/internal/upgrade/crds"
	"opendilab.org/di-orchestrator/internal/upgrade/migration"
)

// stored is how the objects of both definitions are stored and what is wanted, as
// administrators and the operator make it.
type stored struct {
	storage     string
	versions    []string
	unserved    string
	annotations map[string]string
	jobs        *migration.Record
}

// worldOfDefinitions returns an API server of a test's own, as there is one
// definition of each kind in one.
func worldOfDefinitions(t *testing.T) *world {
	t.Helper()
	w := &world{}
	t.Cleanup(func() { must(t, w.end()) })
	environment, err := testkit.StartAPI()
	must(t, err)
	w.environment = environment
	environment.Config.QPS = -1
	w.stop = append(w.stop, environment.Stop)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v2alpha1.AddToScheme} {
		must(t, add(scheme))
	}
	w.live, err = client.New(environment.Config, client.Options{Scheme: scheme})
	must(t, err)
	must(t, w.addAdministrator())
	must(t, w.live.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.SystemNamespace}}))
	return w
}

func (w *world) definition(t *testing.T, resource string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	must(t, w.live.Get(t.Context(), client.ObjectKey{Name: resource + "." + v2alpha1.GroupName}, definition))
	return definition
}

// are has the definitions, and the operator's record, be as a test wants them.
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
		for key, value := range as.annotations {
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, key, value)
		}
		must(t, w.live.Patch(t.Context(), changed, client.MergeFrom(found)))
		status, err := json.Marshal(map[string]any{"status": map[string]any{"storedVersions": as.versions}})
		must(t, err)
		must(t, w.live.Status().Patch(t.Context(), found, client.RawPatch(types.MergePatchType, status)))
	}
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: migration.RecordName}}
	must(t, client.IgnoreNotFound(w.live.Delete(t.Context(), record)))
	if as.jobs != nil {
		content, err := json.Marshal(as.jobs)
		must(t, err)
		record.Data = map[string]string{"dijobs": string(content)}
		must(t, w.live.Create(t.Context(), record))
	}
}

// delete deletes jobs when a test is over.
func (w *world) delete(t *testing.T, jobs ...*v2alpha1.DIJob) {
	t.Helper()
	for _, job := range jobs {
		must(t, w.live.Delete(context.WithoutCancel(t.Context()), job))
	}
}

// atRest is how a cluster is that needs nothing.
func atRest() stored {
	return stored{storage: v2alpha1.Version, versions: []string{v2alpha1.Version}}
}

// wanted returns what is wanted: the version to store, and the one to serve no more.
func (w *world) wanted(t *testing.T) [2]string {
	t.Helper()
	annotations := w.definition(t, "dijobs").Annotations
	return [2]string{annotations[crds.AnnotationStorageVersion], annotations[crds.AnnotationStopServing]}
}

func (w *world) migrate(t *testing.T, args ...string) ran {
	t.Helper()
	return w.di2(t, "default", append([]string{"migrate"}, args...)...)
}

func TestMigrateRefusesWhatIsNotRightBeforeAnybodyIsCalled(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"say one of --to, --stop-serving and --serve; kubectl di migrate status tells how far it is": {},
		"say one of --to, --stop-serving and --serve; kubectl di migrate status tells":               {"--to", "v2alpha1", "--serve", "v1alpha1"},
		`--to "v3": want v1alpha1 or v2alpha1`:                                                       {"--to", "v3"},
		`"v2alpha1" can neither cease to be served nor be served again: only v1alpha1 can`:           {"--stop-serving", "v2alpha1"},
		`"v3" can neither cease to be served nor be served again: only v1alpha1 can`:                 {"--serve", "v3"},
		"--for-release goes with --to":                                                               {"--serve", "v1alpha1", "--for-release", "v0.2.2"},
		`--for-release "v1.0.0": want v0.2.2 or v1.1.3`:                                              {"--to", "v2alpha1", "--for-release", "v1.0.0"},
		"release v0.2.2 stores objects in v1alpha1":                                                  {"--to", "v2alpha1", "--for-release", "v0.2.2"},
		"release v1.1.3 stores objects in v2alpha1":                                                  {"--to", "v1alpha1", "--for-release", "v1.1.3"},
		`-o "xml": want one of json, yaml`:                                                           {"status", "-o", "xml"},
	} {
		got := kubectlDI(t, "", append([]string{"migrate", "--kubeconfig", "/nope"}, args...)...)
		if got.code != exit.Usage || got.stdout != "" || !strings.HasPrefix(got.stderr, "kubectl-di: "+want) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
}

// The definitions are the same for all of it, so that one follows the other.
func TestMigrateSaysWhatIsWantedAndHowFarItIs(t *testing.T) {
	t.Parallel()
	w := worldOfDefinitions(t)
	t.Run("who lacks a right is told which role allows it", w.whoLacksARightToMigrateIsTold)
	t.Run("the way back is refused while the earlier release would misrun jobs", w.theWayBackIsRefused)
	t.Run("the way back is written, and forward again", w.theWayBackIsWritten)
	t.Run("a version ceases to be served when nothing is stored in it", w.aVersionCeasesToBeServed)
	t.Run("status says what comes next in each phase", w.statusSaysWhatComesNext)
	t.Run("status is for scripts", w.statusIsForScripts)
	t.Run("status is watched until all is done", w.statusIsWatched)
	t.Run("without the definitions it is said that nothing is installed", w.nothingIsInstalled)
}

func (w *world) theWayBackIsRefused(t *testing.T) {
	w.are(t, atRest())
	ns := w.namespace(t)
	cartpole, pong := w.trainer(t, ns, "cartpole"), w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	t.Cleanup(func() { w.delete(t, cartpole, pong) })
	for _, tc := range []struct {
		args          []string
		release, jobs string
	}{
		{[]string{"--to", "v1alpha1"}, "v0.2.2", ns + "/pong (it is led by its workers)"},
		{[]string{"--to", "v2alpha1", "--for-release", "v1.1.3"}, "v1.1.3", ns + "/cartpole (it is led by its coordinator)"},
	} {
		want := "kubectl-di: nothing was changed: " + tc.release +
			" would not run these jobs as they are to be run; delete them, or let them finish:\n  " + tc.jobs + "\n"
		if got := w.migrate(t, tc.args...); got != (ran{stderr: want, code: exit.Failed}) {
			t.Errorf("%v: got %+v, want %s", tc.args, got, want)
		}
	}
	if wanted := w.wanted(t); wanted != [2]string{} {
		t.Errorf("wanted is %v though it was refused", wanted)
	}
	pong.Status.Phase = v2alpha1.JobSucceeded
	must(t, w.live.Status().Update(t.Context(), pong))
	if got := w.migrate(t, "--to", "v1alpha1"); got.code != exit.Done {
		t.Errorf("got %+v, though the job has finished", got)
	}
}

func (w *world) theWayBackIsWritten(t *testing.T) {
	w.are(t, atRest())
	job := w.trainer(t, w.namespace(t), "cartpole")
	t.Cleanup(func() { w.delete(t, job) })
	back := `Objects are to be stored in v1alpha1; the operator has them written. To see it:

    kubectl di migrate status --watch

When all is done, and not before:

    helm uninstall di-orchestrator -n di-system

and install v0.2.2 again. Jobs are kept.
`
	forward := `Objects are to be stored in v2alpha1; the operator has them written. To see it:

    kubectl di migrate status --watch
`
	for _, tc := range []struct{ to, want string }{{v1alpha1.Version, back}, {v2alpha1.Version, forward}} {
		if got := w.migrate(t, "--to", tc.to); got != (ran{stdout: tc.want}) {
			t.Errorf("got %+v, want %s", got, tc.want)
		}
		if wanted := w.wanted(t); wanted != [2]string{tc.to, ""} {
			t.Errorf("wanted is %v", wanted)
		}
	}
}

func (w *world) aVersionCeasesToBeServed(t *testing.T) {
	refused := func(want string, args ...string) {
		t.Helper()
		before := w.wanted(t)
		if got := w.migrate(t, args...); got != (ran{stderr: "kubectl-di: " + want + "\n", code: exit.Failed}) {
			t.Errorf("got %+v, want %s", got, want)
		}
		if after := w.wanted(t); after != before {
			t.Errorf("wanted became %v", after)
		}
	}
	w.are(t, stored{storage: v2alpha1.Version, versions: []string{v1alpha1.Version, v2alpha1.Version}})
	refused("nothing was changed: objects may still be stored in v1alpha1: kubectl di migrate status tells how far it is", "--stop-serving", "v1alpha1")
	back := atRest()
	back.annotations = map[string]string{crds.AnnotationStorageVersion: v1alpha1.Version}
	w.are(t, back)
	refused("nothing was changed: objects are to be stored in v1alpha1: first run kubectl di migrate --to v2alpha1", "--stop-serving", "v1alpha1")

	w.are(t, atRest())
	want := "v1alpha1 is to be served no more, as soon as no pod, service or stored object needs it. To see it:\n\n    kubectl di migrate status --watch\n"
	if got := w.migrate(t, "--stop-serving", "v1alpha1"); got != (ran{stdout: want}) || w.wanted(t) != [2]string{"", "v1alpha1"} {
		t.Errorf("got %+v, wanted %v", got, w.wanted(t))
	}
	refused("nothing was changed: v1alpha1 is to be served no more: first run kubectl di migrate --serve v1alpha1", "--to", "v1alpha1")
	want = "v1alpha1 is to be served again. To see it:\n\n    kubectl di migrate status --watch\n"
	if got := w.migrate(t, "--serve", "v1alpha1"); got != (ran{stdout: want}) || w.wanted(t) != [2]string{} {
		t.Errorf("got %+v, wanted %v", got, w.wanted(t))
	}
}

// toV1 is how it is while objects come to be stored in v1alpha1.
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

// rewriting returns the record of an operator that has looked at 500 of 1001 objects.
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
		{"nothing is to be done", atRest(), after},
		{"no operator has recorded anything", toV1(v2alpha1.Version, nil), before + "  next: an operator in namespace di-system begins; none has recorded anything yet\n"},
		{"only a migration before is recorded", toV1(v2alpha1.Version, &earlier), before + "  next: objects come to be stored in v1alpha1\n"},
		{"it is blocked", toV1(v2alpha1.Version, &blocked), before + "  next: waits: objects are not stored in v1alpha1, because\n"},
		{"the storage is switched", toV1(v1alpha1.Version, &earlier), during + "  next: the operator begins to write all objects once\n"},
		{"it settles", toV1(v1alpha1.Version, &settling), during + "  next: the API servers learn that v1alpha1 is stored; then all objects are written once\n"},
		{"it is written", toV1(v1alpha1.Version, rewriting()), during + "  500 of 1001 objects, 50.0 a second, 10s left\n  next: the rest of the objects is written\n"},
		{
			"an object cannot be written", toV1(v1alpha1.Version, rewriting(migration.Failure{Namespace: "rl", Name: "pong", Message: "too large"})),
			during + "  499 of 1001 objects, 49.9 a second, 10s left\n  cannot be written: rl/pong: too large\n  next: the rest of the objects is written\n",
		},
		{"all is written", pruned, "dijobs: stored in v1alpha1, wanted v1alpha1, served v1alpha1 and v2alpha1\n" +
			"  1001 of 1001 objects, 100.1 a second, 0s left\n  next: owner references come to name v1alpha1\n"},
		{"it was uninstalled", retired, during + "  500 of 1001 objects, 50.0 a second, 10s left\n  next: it goes on when DI Orchestrator, which was uninstalled, is installed again\n"},
		{"a version is to be served no more", stopping("", earlier), after +
			"  7 of 7 objects\n  next: owner references come to name v2alpha1; then v1alpha1 ceases to be served\n"},
		{"a version is served no more", stopping(v1alpha1.Version, earlier), less + "  7 of 7 objects\n  next: v1alpha1 is taken from the objects' managedFields\n"},
		{"a version is to be served again", serving, less + "  7 of 7 objects\n  next: v1alpha1 is served again\n"},
	} {
		w.are(t, tc.as)
		got := w.migrate(t, "status")
		text, others, both := strings.Cut(got.stdout, "aggregatorconfigs: ")
		if got.code != exit.Done || got.stderr != "" || !both || text != tc.want {
			t.Errorf("%s: got %+v, want %s", tc.when, got, tc.want)
		}
		if done := strings.HasSuffix(others, "All is done.\n"); done != (tc.when == "nothing is to be done") {
			t.Errorf("%s: got %s", tc.when, got.stdout)
		}
	}
}

func (w *world) statusIsForScripts(t *testing.T) {
	w.are(t, toV1(v1alpha1.Version, rewriting()))
	got := w.migrate(t, "status", "-o", "json")
	var report migrate.Report
	must(t, json.Unmarshal([]byte(got.stdout), &report))
	both := []string{v1alpha1.Version, v2alpha1.Version}
	switching := []string{v2alpha1.Version, v1alpha1.Version}
	want := migrate.Report{Resources: []migrate.Resource{
		{
			Resource: "dijobs", Wanted: v1alpha1.Version, Storage: v1alpha1.Version, Stored: switching, Served: both,
			Record: rewriting(), Rate: 50, SecondsLeft: 10.02, Next: "the rest of the objects is written",
		},
		{
			Resource: "aggregatorconfigs", Wanted: v1alpha1.Version, Storage: v1alpha1.Version, Stored: switching, Served: both,
			Next: "an operator in namespace di-system begins; none has recorded anything yet",
		},
	}}
	if diff := cmp.Diff(want, report); got.code != exit.Done || diff != "" {
		t.Errorf("exit code %d: %s%s", got.code, got.stderr, diff)
	}
	w.are(t, atRest())
	got = w.migrate(t, "status", "-o", "json", "--operator-namespace", "elsewhere")
	report = migrate.Report{}
	must(t, json.Unmarshal([]byte(got.stdout), &report))
	if got.code != exit.Done || !report.Done {
		t.Errorf("got %+v", got)
	}
}

func (w *world) statusIsWatched(t *testing.T) {
	w.are(t, toV1(v1alpha1.Version, rewriting()))
	watching := w.start(t, "default", "", "migrate", "status", "--watch")
	watching.out.shows(t, "500 of 1001 objects")
	w.are(t, atRest())
	watching.out.shows(t, "All is done.")
	if code := <-watching.code; code != exit.Done || watching.told.String() != "" {
		t.Errorf("exit code %d: %s", code, watching.told)
	}
	if times := strings.Count(watching.out.String(), "500 of 1001 objects"); times != 1 {
		t.Errorf("what did not change was said %d times", times)
	}
}

// whoLacksARightToMigrateIsTold has kubectl make each role that the command says
// is missing, and gives it to the user, until none is.
func (w *world) whoLacksARightToMigrateIsTold(t *testing.T) {
	w.are(t, atRest())
	given := func(args []string, want string) {
		t.Helper()
		got := w.migrate(t, append(args, "--as", "olga")...)
		if got.code != exit.Failed || !strings.HasSuffix(got.stderr, "\na role of this right, bound to you, allows it:\n  "+want+"\n") {
			t.Fatalf("%v: got %+v, want %s", args, got, want)
		}
		w.kubectl(t, strings.Fields(want)[1:]...)
		words := strings.Fields(want)
		if words[2] == "clusterrole" {
			var made rbacv1.ClusterRole
			w.kubectl(t, "create", "clusterrolebinding", words[3], "--clusterrole", words[3], "--user", "olga")
			must(t, w.live.Get(t.Context(), client.ObjectKey{Name: words[3]}, &made))
			w.waitAllowed(t, "", "olga", &made.Rules[0])
			return
		}
		var made rbacv1.Role
		w.kubectl(t, "-n", words[2], "create", "rolebinding", words[5], "--role", words[5], "--user", "olga")
		must(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: words[2], Name: words[5]}, &made))
		w.waitAllowed(t, words[2], "olga", &made.Rules[0])
	}
	status, back := []string{"status"}, []string{"--to", "v1alpha1"}
	given(status, "kubectl create clusterrole kubectl-di-get-customresourcedefinitions --verb=get --resource=customresourcedefinitions.apiextensions.k8s.io")
	given(status, "kubectl -n di-system create role kubectl-di-get-configmaps --verb=get --resource=configmaps --resource-name=di-orchestrator-storage-migration")
	if got := w.migrate(t, "status", "--as", "olga"); got.code != exit.Done {
		t.Errorf("got %+v", got)
	}
	given(back, "kubectl create clusterrole kubectl-di-list-dijobs --verb=list --resource=dijobs.diengine.opendilab.org")
	given(back, "kubectl create clusterrole kubectl-di-patch-customresourcedefinitions --verb=patch "+
		"--resource=customresourcedefinitions.apiextensions.k8s.io --resource-name=dijobs.diengine.opendilab.org")
	if got := w.migrate(t, "--to", "v1alpha1", "--as", "olga"); got.code != exit.Done {
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
	must(t, w.live.Patch(t.Context(), earlier, client.MergeFrom(alone)))
	want := "kubectl-di: nothing was changed: customresourcedefinition dijobs.diengine.opendilab.org has no version v1alpha1 yet, only v2alpha1: an operator of this release adds it\n"
	if got := w.migrate(t, "--to", "v1alpha1"); got != (ran{stderr: want, code: exit.Failed}) {
		t.Errorf("got %+v, want %s", got, want)
	}
	must(t, w.live.Delete(t.Context(), earlier))
	// It goes when its objects are gone.
	must(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		err := w.live.Get(ctx, client.ObjectKeyFromObject(earlier), &apiextensionsv1.CustomResourceDefinition{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}))
	want = "kubectl-di: there is no customresourcedefinition dijobs.diengine.opendilab.org: DI Orchestrator is not installed\n"
	for _, args := range [][]string{{"status"}, {"--to", "v1alpha1"}} {
		if got := w.migrate(t, args...); got != (ran{stderr: want, code: exit.Failed}) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
}
