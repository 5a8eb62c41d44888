// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/program"
	"opendilab.org/di-orchestrator/test/webhooks"
)

// TestTheAPIServerAcceptsWhatIsConverted dry-run-creates the conversion of each sample, in both
// versions, on a real API server with the webhooks.
func TestTheAPIServerAcceptsWhatIsConverted(t *testing.T) {
	t.Parallel()
	api, err := webhooks.StartAPIWithWebhooks(t.Context())
	expect.NoError(t, err)
	t.Cleanup(func() {
		if err := api.Stop(); err != nil {
			t.Error(err)
		}
	})
	warnings := &warningList{}
	api.Config.WarningHandler = warnings
	c, err := client.New(api.Config, client.Options{FieldValidation: metav1.FieldValidationStrict})
	expect.NoError(t, err)
	for _, name := range []string{"kubeflow", "di-system", "nervex-system"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		expect.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), namespace)))
	}
	// The dry run tries pods, too, and jobs name this class.
	expect.NoError(t, c.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}))
	for _, file := range []string{
		"v1alpha1.yaml", "worker-led.yaml", "tfjob.yaml", "tfjob-workers.yaml", "tfjob-all-workers.yaml",
		"nervexjob.yaml", "nervex-aggregatorconfig.yaml", "first-dijob.yaml", "dijob-v1.0.0.yaml",
	} {
		for _, version := range []string{"v1alpha1", "v2alpha1"} {
			for _, object := range objects(t, converts(t, "", "-f", filepath.Join("testdata", file), "--to", version).stdout) {
				if object.GetNamespace() == "" {
					object.SetNamespace(metav1.NamespaceDefault)
				}
				if err := c.Create(t.Context(), object, client.DryRunAll); err != nil {
					t.Errorf("%s in %s: %v", file, version, err)
				}
			}
		}
	}
	replacesItself(t, c)
	submitsBothVersions(t, api)
	for _, warning := range *warnings {
		if !strings.Contains(warning, "deprecated") {
			t.Errorf("the API server warns: %s", warning)
		}
	}
}

// submitsBothVersions submits jobs of both versions, and one that the webhook rejects.
func submitsBothVersions(t *testing.T, api *webhooks.API) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, path, string(api.KubeConfig))
	submit := func(stdin string, args ...string) ran {
		return kubectlDI(t, stdin, append([]string{"submit", "--kubeconfig", path, "-n", "di-system", "-o", "name", "-f"}, args...)...)
	}
	got := submit("", "testdata/serial.yaml", "--validate=warn")
	if want := "is deprecated and still served"; got.code != 0 || !strings.Contains(got.stderr, want) || !strings.HasPrefix(got.stdout, "dijob.diengine.opendilab.org/") {
		t.Errorf("v1alpha1: got %+v, want %s", got, want)
	}
	if got := submit("", "testdata/worker-led.yaml"); got.code != 0 || got.stderr != "" {
		t.Errorf("v2alpha1: got %+v", got)
	}
	twice := manifest("twice", "collector")
	if got := submit(twice, "-"); got.code != cli.Failed || !strings.HasPrefix(got.stderr, "kubectl-di: stdin: job di-system/twice is refused:\n  spec.tasks") {
		t.Errorf("two collectors: got %+v", got)
	}
}

// replacesItself reads a job in v1alpha1, converts it with all fields that the API server set, and
// replaces the job with the result.
func replacesItself(t *testing.T, c client.Client) {
	t.Helper()
	job := objects(t, readFile(t, "testdata/serial.yaml"))[0]
	job.SetNamespace(metav1.NamespaceDefault)
	expect.NoError(t, c.Create(t.Context(), job))
	stored, err := yaml.Marshal(job.Object)
	expect.NoError(t, err)
	converted := objects(t, converts(t, string(stored), "-f", "-").stdout)[0]
	if converted.GetUID() != job.GetUID() || converted.GetResourceVersion() == "" {
		t.Errorf("the metadata became %v", converted.Object["metadata"])
	}
	before := job.GetGeneration()
	if err := c.Update(t.Context(), converted); err != nil {
		t.Error(err)
	}
	if converted.GetGeneration() != before {
		t.Errorf("replacing the job by itself changed it to %v", converted.Object)
	}
}

// warningList collects the API server's warnings.
type warningList []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warningList) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// objects decodes a stream of documents like clients.
func objects(tb testing.TB, stream string) []*unstructured.Unstructured {
	tb.Helper()
	var found []*unstructured.Unstructured
	for _, part := range manifests.Split([]byte(stream)) {
		if part.IsEmpty() {
			continue
		}
		raw, err := yaml.YAMLToJSON([]byte(part.Body))
		expect.NoError(tb, err)
		object := &unstructured.Unstructured{}
		expect.NoError(tb, utiljson.Unmarshal(raw, &object.Object))
		found = append(found, object)
	}
	return found
}

// TestKubectlRunsThePlugin builds the plugin and runs it by kubectl from PATH.
func TestKubectlRunsThePlugin(t *testing.T) {
	t.Parallel()
	assets := os.Getenv(testkit.AssetsVariable)
	if assets == "" {
		t.Fatalf("%s is not set: run the tests by make test, or set it to a folder with kubectl", testkit.AssetsVariable)
	}
	bin := t.TempDir()
	_, err := program.BuildCommand(t.Context(), bin, "kubectl-di", "-ldflags", "-X main.version=v9.9.9")
	expect.NoError(t, err)
	for name, tc := range map[string]struct {
		args []string
		want string
		code int
	}{
		"version": {[]string{"di", "version", "--client"}, "Client:  v9.9.9\n", 0},
		"convert": {[]string{"di", "convert", "-f", "testdata/v1alpha1.yaml"}, readFile(t, "testdata/golden/v1alpha1.out"), 0},
		"strict":  {[]string{"di", "convert", "-f", "testdata/extended.yaml", "--strict"}, "", cli.Lost},
		"help":    {[]string{"di", "convert", "--help"}, readFile(t, "testdata/golden/help.out"), 0},
	} {
		command := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), tc.args...)
		command.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := command.Output()
		if code := command.ProcessState.ExitCode(); code != tc.code {
			t.Errorf("%s: exit code %d, want %d: %v", name, code, tc.code, err)
		}
		if string(out) != tc.want {
			t.Errorf("%s: printed %s, want %s", name, out, tc.want)
		}
	}
}
