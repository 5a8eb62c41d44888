// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// ran is the result of a command.
type ran struct {
	stdout, stderr string
	code           int
}

// kubectlDI runs the command like main.
func kubectlDI(tb testing.TB, stdin string, args ...string) ran {
	tb.Helper()
	var out, report bytes.Buffer
	command := newCommand(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &report})
	command.SetArgs(args)
	code := run(tb.Context(), command)
	return ran{out.String(), report.String(), code}
}

// converts runs the command and requires success.
func converts(tb testing.TB, stdin string, args ...string) ran {
	tb.Helper()
	got := kubectlDI(tb, stdin, append([]string{"convert"}, args...)...)
	if got.code != 0 {
		tb.Fatalf("convert %v: exit code %d: %s", args, got.code, got.stderr)
	}
	return got
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	content, err := os.ReadFile(path)
	expect.NoError(tb, err)
	return string(content)
}

func writeFile(tb testing.TB, path, content string) {
	tb.Helper()
	expect.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o750))
	expect.NoError(tb, os.WriteFile(path, []byte(content), 0o600))
}

func TestWhatTheCommandPrints(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args  []string
		stdin string
		code  int
	}{
		"v1alpha1":            {args: []string{"-f", "testdata/v1alpha1.yaml"}},
		"v1alpha1-as-json":    {args: []string{"-f", "testdata/v1alpha1.yaml", "-o", "json"}},
		"already-v1alpha1":    {args: []string{"-f", "testdata/v1alpha1.yaml", "--to", "v1alpha1"}},
		"worker-led-down":     {args: []string{"-f", "testdata/worker-led.yaml", "--to", "v1alpha1"}},
		"list":                {args: []string{"-f", "testdata/list.yaml"}},
		"json":                {args: []string{"-f", "testdata/jobs.json"}},
		"json-as-yaml":        {args: []string{"-f", "testdata/jobs.json", "-o", "yaml"}},
		"extended":            {args: []string{"-f", "testdata/extended.yaml"}},
		"extended-strict":     {args: []string{"-f", "testdata/extended.yaml", "--strict"}, code: cli.Lost},
		"broken":              {args: []string{"-f", "testdata/list.yaml", "-f", "testdata/broken.yaml"}, code: cli.Failed},
		"tfjob":               {args: []string{"-f", "testdata/tfjob.yaml"}},
		"tfjob-down":          {args: []string{"-f", "testdata/tfjob-workers.yaml", "--to", "v1alpha1"}},
		"pytorchjob":          {args: []string{"-f", "testdata/pytorchjob.yaml"}},
		"tfjob-all-workers":   {args: []string{"-f", "testdata/tfjob-all-workers.yaml"}},
		"nervexjob":           {args: []string{"-f", "testdata/nervexjob.yaml"}},
		"nervexjob-to-legacy": {args: []string{"-f", "testdata/nervexjob.yaml", "--to", "v1alpha1"}},
		"nervex-config":       {args: []string{"-f", "testdata/nervex-aggregatorconfig.yaml"}},
		"v1.0.0":              {args: []string{"-f", "testdata/dijob-v1.0.0.yaml"}},
		"two-files":           {args: []string{"-f", "testdata/first-dijob.yaml", "-f", "testdata/list.yaml", "-f", "testdata/list.yaml"}},
		"stdin":               {args: []string{"-f", "-"}, stdin: "# only a comment\n---\n" + `apiVersion: diengine.opendilab.org/v1alpha1` + "\nkind: DIJob\n--- {a: b}\n...\n"},
		"no-file":             {args: []string{"-f", "testdata/missing.yaml"}, code: cli.Failed},
		"no-input":            {args: nil, code: cli.Usage},
		"unknown-version":     {args: []string{"-f", "-", "--to", "v1"}, code: cli.Usage},
		"unknown-format":      {args: []string{"-f", "-", "-o", "xml"}, code: cli.Usage},
		"unknown-flag":        {args: []string{"--nope"}, code: cli.Usage},
		"an-argument":         {args: []string{"jobs.yaml"}, code: cli.Usage},
		"stdin-in-place":      {args: []string{"-f", "-", "-w"}, code: cli.Usage},
		"both-places":         {args: []string{"-f", "x", "-w", "--output-dir", "y"}, code: cli.Usage},
		"in-place-as-json":    {args: []string{"-f", "x", "-w", "-o", "json"}, code: cli.Usage},
		"help":                {args: []string{"--help"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := kubectlDI(t, tc.stdin, append([]string{"convert"}, tc.args...)...)
			if got.code != tc.code {
				t.Errorf("exit code %d, want %d", got.code, tc.code)
			}
			checkGolden(t, name+".out", got.stdout)
			checkGolden(t, name+".err", got.stderr)
		})
	}
}

func checkGolden(tb testing.TB, name, got string) {
	tb.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		writeFile(tb, path, got)
	}
	expect.Equal(tb, name, readFile(tb, path), got)
}

func TestTheVersionIsPrinted(t *testing.T) {
	t.Parallel()
	if got := kubectlDI(t, "", "version", "--client"); got != (ran{stdout: "Client:  " + version + "\n"}) {
		t.Errorf("got %+v", got)
	}
}

// TestTheRoundTripKeepsTheText converts to the other version and back. The text must be equal,
// except for the spaces before trailing comments.
func TestTheRoundTripKeepsTheText(t *testing.T) {
	t.Parallel()
	for file, versions := range map[string][2]string{
		"v1alpha1.yaml":   {"v2alpha1", "v1alpha1"},
		"worker-led.yaml": {"v1alpha1", "v2alpha1"},
	} {
		original := readFile(t, filepath.Join("testdata", file))
		there := converts(t, original, "-f", "-", "--to", versions[0])
		back := converts(t, there.stdout, "-f", "-", "--to", versions[1])
		want := strings.NewReplacer("   #", " #", "cleanPodPolicy: ALL", "cleanPodPolicy: All").Replace(original)
		got := strings.ReplaceAll(back.stdout, "   #", " #")
		expect.Equal(t, file, want, got)
	}
}

// TestTheCommandConvertsAsTheWebhookDoes converts random jobs, as YAML and as JSON, by the command
// and by the function of the conversion webhook.
func TestTheCommandConvertsAsTheWebhookDoes(t *testing.T) {
	t.Parallel()
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 3).Funcs(
		func(o *v1alpha1.RawObject, c randfill.Continue) { o.Raw = randomTemplate(c) },
		func(o *v2alpha1.RawObject, c randfill.Continue) { o.Raw = randomTemplate(c) },
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			m.Name, m.Labels = pick(c, "", "yes", "job"), map[string]string{"a": pick(c, "1", "b # c")}
		},
		func(s *string, c randfill.Continue) {
			*s = pick(c, "", "a", "yes", "010", "a: b", "# c", "<&>", "two\nlines", " é\u2028\"\\", "~")
		},
		func(l *v2alpha1.Lifecycle, c randfill.Continue) {
			*l = pick(c, "", v2alpha1.LifecycleWorkerLed, v2alpha1.LifecycleCoordinatorLed)
		},
		func(s *v2alpha1.TaskType, c randfill.Continue) {
			*s = pick(c, v2alpha1.TaskTypeNone, v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner)
		},
	)
	for range 60 {
		v1, v2 := &v1alpha1.DIJob{}, &v2alpha1.DIJob{}
		fill.Fill(v1)
		fill.Fill(v2)
		v1.TypeMeta.APIVersion, v1.Kind, v1.Spec.Extended, v1.Status.Extended = v1alpha1.GroupVersion.String(), "DIJob", nil, nil
		v2.TypeMeta.APIVersion, v2.Kind = v2alpha1.GroupVersion.String(), "DIJob"
		convertsAlike(t, v1, v2alpha1.Version)
		convertsAlike(t, v2, v1alpha1.Version)
	}
}

func pick[T any](c randfill.Continue, values ...T) T { return values[c.Intn(len(values))] }

func randomTemplate(c randfill.Continue) []byte {
	return []byte(pick(c, `{}`, `{"a":12345678901234567890,"b":1.50,"c":[],"d":null,"on":"off"}`,
		`{"spec":{"containers":[{"name":"di-container","args":["|\n# x\n\n y","<&>"],"newer":{"deep":[[{}]]}}]}}`))
}

func convertsAlike(tb testing.TB, job any, to string) {
	tb.Helper()
	raw, err := json.Marshal(job)
	expect.NoError(tb, err)
	want, err := conversion.Convert(raw, v2alpha1.GroupName+"/"+to)
	expect.NoError(tb, err)
	text, err := yaml.JSONToYAML(raw)
	expect.NoError(tb, err)
	asJSON := converts(tb, string(raw), "-f", "-", "--to", to).stdout
	if !reflect.DeepEqual(decoded(tb, want), decoded(tb, []byte(asJSON))) {
		tb.Fatalf("%s became %s, want %s", raw, asJSON, want)
	}
	// sigs.k8s.io/yaml rounds floating-point numbers.
	rounded, err := yaml.YAMLToJSON(text)
	expect.NoError(tb, err)
	if want, err = conversion.Convert(rounded, v2alpha1.GroupName+"/"+to); err != nil {
		tb.Fatal(err)
	}
	asYAML := converts(tb, string(text), "-f", "-", "--to", to).stdout
	got, err := yaml.YAMLToJSON([]byte(asYAML))
	if err != nil {
		tb.Fatalf("%s became %s: %v", text, asYAML, err)
	}
	if !reflect.DeepEqual(decoded(tb, want), decoded(tb, got)) {
		tb.Fatalf("%s became %s (-want +got): %s", text, asYAML, cmp.Diff(decoded(tb, want), decoded(tb, got)))
	}
}

const legacyJob = `apiVersion: diengine.opendilab.org/v1alpha1
kind: DIJob
metadata: {name: job} # a job
spec: {coordinator: {template: {}}}
`

// decoded decodes JSON with the text of numbers.
func decoded(tb testing.TB, raw []byte) map[string]any {
	tb.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value map[string]any
	expect.NoError(tb, decoder.Decode(&value))
	return value
}

// folder creates a directory of manifests.
func folder(tb testing.TB) string {
	tb.Helper()
	at := tb.TempDir()
	writeFile(tb, filepath.Join(at, "a.yaml"), legacyJob)
	writeFile(tb, filepath.Join(at, "deep", "b.yml"), "---\n"+legacyJob)
	writeFile(tb, filepath.Join(at, "deep", "c.json"), `{"kind":  "ConfigMap"}`)
	writeFile(tb, filepath.Join(at, "README.md"), legacyJob)
	return at
}

// contents returns the files below a directory; none if there is no directory.
func contents(tb testing.TB, at string) map[string]string {
	tb.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(at, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(at, path)
		if about, err := os.Stat(path); err != nil || !about.IsDir() {
			found[filepath.ToSlash(relative)] = readFile(tb, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		tb.Fatal(err)
	}
	return found
}

// TestFilesAreConverted runs the command on a directory AT, with an empty directory TO.
func TestFilesAreConverted(t *testing.T) {
	t.Parallel()
	converted := converts(t, legacyJob, "-f", "-").stdout
	const other = `{"kind":  "ConfigMap"}`
	broken := func(content string) func(string) error {
		return func(at string) error { return os.WriteFile(filepath.Join(at, "z.yaml"), []byte(content), 0o600) }
	}
	lost := broken("apiVersion: kubeflow.org/v1\nkind: TFJob\nspec: {odd: 1, tfReplicaSpecs: {Worker: {}}}\n")
	for name, tc := range map[string]struct {
		prepare func(at string) error
		args    string
		// at and to are the changed files.
		at, to map[string]string
		code   int
		stderr string
	}{
		"in place":           {args: "-f AT -R -w", at: map[string]string{"a.yaml": converted, "deep/b.yml": "---\n" + converted}},
		"without subfolders": {args: "-f AT -w", at: map[string]string{"a.yaml": converted}},
		"through links": {
			prepare: func(at string) error { return os.Symlink("a.yaml", filepath.Join(at, "link.yaml")) },
			args:    "-f AT -w", at: map[string]string{"a.yaml": converted, "link.yaml": converted},
		},
		"with a mark at the beginning": {
			prepare: func(at string) error {
				return os.WriteFile(filepath.Join(at, "a.yaml"), []byte("\ufeff"+legacyJob), 0o600)
			},
			args: "-f AT -w", at: map[string]string{"a.yaml": "\ufeff" + converted},
		},
		"to another folder": {args: "-f AT -R --output-dir TO/new", to: map[string]string{"new/a.yaml": converted, "new/deep/b.yml": "---\n" + converted, "new/deep/c.json": other}},
		"not to the same":   {args: "-f AT --output-dir AT", code: cli.Failed, stderr: "is an input itself"},
		"not an empty one":  {args: "-f TO", code: cli.Failed, stderr: "holds no .yaml, .yml or .json file"},
		"not read-only ones": {
			prepare: func(at string) error { return os.Chmod(filepath.Join(at, "deep", "b.yml"), 0o400) },
			args:    "-f AT -R -w", code: cli.Failed, stderr: "b.yml: is read-only; make it writable, or use --output-dir\nnothing was written\n",
		},
		"not in place beside no YAML":       {prepare: broken("a: ["), args: "-f AT -R -w", code: cli.Failed},
		"not to a folder beside no YAML":    {prepare: broken("a: ["), args: "-f AT -R --output-dir TO/new", code: cli.Failed},
		"not to stdout beside no YAML":      {prepare: broken("a: ["), args: "-f AT -R", code: cli.Failed},
		"not beside an unknown version":     {prepare: broken("apiVersion: diengine.opendilab.org/v3\nkind: DIJob\n"), args: "-f AT -R -w", code: cli.Failed},
		"not in place where much is lost":   {prepare: lost, args: "-f AT -R -w --strict", code: cli.Lost},
		"not to a folder where any is lost": {prepare: lost, args: "-f AT -R --output-dir TO/new --strict", code: cli.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, to := folder(t), t.TempDir()
			expect.NoError(t, os.Chmod(filepath.Join(at, "a.yaml"), 0o640))
			if tc.prepare != nil {
				expect.NoError(t, tc.prepare(at))
			}
			want := contents(t, at)
			maps.Copy(want, tc.at)
			got := kubectlDI(t, "", append([]string{"convert"}, strings.Fields(strings.NewReplacer("AT", at, "TO", to).Replace(tc.args))...)...)
			if got.code != tc.code || got.stdout != "" || !strings.Contains(got.stderr, tc.stderr) {
				t.Errorf("got %+v", got)
			}
			expect.Equal(t, "the inputs", want, contents(t, at))
			if diff := cmp.Diff(tc.to, contents(t, to), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the outputs (-want +got):\n%s", diff)
			}
			if about, err := os.Lstat(filepath.Join(at, "a.yaml")); err != nil || about.Mode().Perm() != 0o640 {
				t.Errorf("the mode became %v, %v", about.Mode(), err)
			}
			if link, err := os.Readlink(filepath.Join(at, "link.yaml")); err == nil && link != "a.yaml" {
				t.Errorf("the link became %q", link)
			}
		})
	}
}

func TestTwoFilesDoNotBecomeOne(t *testing.T) {
	t.Parallel()
	one, two, to := folder(t), folder(t), t.TempDir()
	got := kubectlDI(t, "", "convert", "-f", one, "-f", two, "--output-dir", to)
	if got.code != cli.Failed || !strings.Contains(got.stderr, "would both be written to") || len(contents(t, to)) > 0 {
		t.Errorf("got %+v", got)
	}
}

// TestAFileIsReadOnce names files by two paths, and a directory by a link.
func TestAFileIsReadOnce(t *testing.T) {
	t.Parallel()
	at, link := folder(t), filepath.Join(t.TempDir(), "link")
	for to, from := range map[string]string{link: at, filepath.Join(at, "circle.yaml"): at} {
		expect.NoError(t, os.Symlink(from, to))
	}
	working, err := os.Getwd()
	expect.NoError(t, err)
	relative, err := filepath.Rel(working, filepath.Join(at, "a.yaml"))
	expect.NoError(t, err)
	if once, twice := converts(t, "", "-f", filepath.Join(at, "a.yaml")), converts(t, "", "-f", filepath.Join(at, "a.yaml"), "-f", relative); once != twice {
		t.Errorf("(-want +got):\n%s", cmp.Diff(once.stdout, twice.stdout))
	}
	if want, got := converts(t, "", "-f", at, "-R").stdout, converts(t, "", "-f", link, "-R").stdout; want != got {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
}

// TestAnInterruptEndsTheWaitForInput has a stdin that never ends.
func TestAnInterruptEndsTheWaitForInput(t *testing.T) {
	t.Parallel()
	for verb, written := range map[string]string{"convert": "written", "submit": "submitted"} {
		stdin, writer := io.Pipe()
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		report := &screen{}
		command := newCommand(genericiooptions.IOStreams{In: stdin, Out: io.Discard, ErrOut: report})
		command.SetArgs([]string{verb, "-f", "-"})
		if code := run(ctx, command); code != cli.Failed || report.String() != "kubectl-di: interrupted: nothing was "+written+"\n" {
			t.Errorf("%s: exit code %d, %s", verb, code, report)
		}
		expect.NoError(t, writer.Close()) // The read ends.
	}
}

// TestOtherDocumentsStayByteForByte converts one document among others.
func TestOtherDocumentsStayByteForByte(t *testing.T) {
	t.Parallel()
	other := "# odd\n{a:   b,  \"c\": [ 1,2 ]}   # spacing\n\n\n"
	windows := "apiVersion: v1\r\nkind: Service\r\nmetadata:   {name: x}\r\n"
	got := converts(t, other+"---\n"+legacyJob+"---   # marked\n"+windows+"--- |\n text\n", "-f", "-").stdout
	for _, part := range []string{other + "---\n", "---   # marked\n" + windows + "--- |\n text\n"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in %s", part, got)
		}
	}
	if want := fmt.Sprintf("%s---\n%s---   # marked\n%s--- |\n text\n", other, converts(t, legacyJob, "-f", "-").stdout, windows); got != want {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
}

// TestOddFilesLoseNothing converts files as editors and other programs leave them.
func TestOddFilesLoseNothing(t *testing.T) {
	t.Parallel()
	const mark = "\ufeff"
	converted := converts(t, legacyJob, "-f", "-").stdout
	other := "kind: ConfigMap\n"
	legacy := `{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob"}`
	current := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob"}`
	for name, tc := range map[string]struct{ in, out, report string }{
		"documents ended by dots":      {legacyJob + "...\n" + other + "...\n", converted + "...\n" + other + "...\n", "document 2 (line 6): ConfigMap: left as it is"},
		"a mark before a job":          {mark + legacyJob, converted, "document 1 (line 1): DIJob job"},
		"a mark before a marker":       {mark + "---\n---\n" + legacyJob, "---\n---\n" + converted, "document 1 (line 3): DIJob job"},
		"a mark before JSON":           {mark + legacy, current + "\n", "document 1 (line 1): DIJob"},
		"only a mark":                  {mark, "", "stdin: holds no document\n"},
		"nothing":                      {"", "", "stdin: holds no document\n"},
		"only a comment":               {"# later\n", "# later\n", "stdin: holds no document\n"},
		"an array":                     {"[" + legacy + "]", "[" + legacy + "]", "document 1 (line 1): is no object of Kubernetes, left as it is\n"},
		"Windows' ends of lines":       {strings.ReplaceAll(legacyJob, "\n", "\r\n"), strings.ReplaceAll(converted, "\n", "\r\n"), "DIJob job"},
		"a list in a list":             {`{"kind":"List","apiVersion":"v1","items":[null,{"apiVersion":"v1","kind":"List","items":[` + legacy + `]}]}`, `{"apiVersion":"v1","kind":"List","items":[null,{"apiVersion":"v1","kind":"List","items":[` + current + "]}]}\n", "document 1 (line 1): items[1]: items[0]: DIJob: becomes"},
		"dots between objects of JSON": {legacy + "\n...\n" + legacy + "\n", current + "\n" + current + "\n", "document 2 (line 3): DIJob: becomes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := converts(t, tc.in, "-f", "-")
			if diff := cmp.Diff(tc.out, got.stdout); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(got.stderr, tc.report) {
				t.Errorf("reported %s, want %s", got.stderr, tc.report)
			}
		})
	}
}

func TestAJobOfAnotherOperatorIsSaidNotToBeImported(t *testing.T) {
	t.Parallel()
	for head, isJob := range map[string]bool{
		"{apiVersion: kubeflow.org/v1alpha2, kind: MPIJob":              true,
		"{apiVersion: kubeflow.org/v1beta2, kind: TFJob":                true,
		"{apiVersion: kubeflow.org/v1, kind: XGBoostJob":                true,
		"{apiVersion: ray.io/v1, kind: RayJob":                          true,
		"{apiVersion: ray.io/v1, kind: RayCluster":                      true,
		"{apiVersion: batch.volcano.sh/v1alpha1, kind: Job":             true,
		"{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet":           true,
		"{apiVersion: batch/v1, kind: Job":                              false,
		"{apiVersion: batch/v1, kind: CronJob":                          false,
		"{apiVersion: v1, kind: ConfigMap":                              false,
		"{apiVersion: diengine.opendilab.org/v2alpha1, kind: ScalePlan": false,
	} {
		manifest := head + ", metadata: {name: other}}\n"
		for _, in := range []string{manifest, "apiVersion: v1\nkind: List\nitems:\n- " + manifest} {
			got := kubectlDI(t, in, "convert", "-f", "-")
			if got.code != 0 || got.stdout != in || strings.Contains(got.stderr, "other: not imported: ") != isJob || strings.Contains(got.stderr, "left as it is") == isJob {
				t.Errorf("%s: got %+v", in, got)
			}
			want := 0
			if isJob {
				want = cli.Lost
			}
			if got := kubectlDI(t, in, "convert", "-f", "-", "--strict"); got.code != want || (got.stdout == "") != isJob {
				t.Errorf("%s: strictly: got %+v", in, got)
			}
		}
	}
}

func TestWhatWouldLoseTextIsRefused(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"apiVersion":"v1","kind":"DIJob","kind":"Pod"}`:        `stdin: document 1 (line 1): duplicate field "kind"`,
		`{"kind":"DIJob","spec":{"a":{"b":1,"b":2}}}`:            `stdin: document 1 (line 1): duplicate field "spec.a.b"`,
		"kind: DIJob\nkind: Pod\n":                               `stdin: document 1 (line 1): line 2: "kind" is there already, on line 1`,
		"a: b\n---\n{\"apiVersion\":\"v1\",\n\"kind\":\"\xff\"}": "stdin: line 4: the byte 0xff is not UTF-8; save the file as UTF-8",
	} {
		if got := kubectlDI(t, in, "convert", "-f", "-"); got.code != cli.Failed || got.stdout != "" || got.stderr != "kubectl-di: "+want+"\nnothing was written\n" {
			t.Errorf("%s: got %+v", in, got)
		}
	}
}

// TestACommentThatIsGoneIsNamed drops a comment that is a prefix of another one.
func TestACommentThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	got := converts(t, strings.Replace(legacyJob, "spec: {coordinator: {template: {}}}", "spec:\n  extended:\n    suspend: odd # a\n  coordinator: {template: {}}", 1), "-f", "-")
	if !strings.Contains(got.stderr, `the comment "# a" was on something that is gone`) || strings.Contains(got.stderr, `"# a job"`) {
		t.Errorf("reported %s about %s", got.stderr, got.stdout)
	}
}

// TestTheDocumentationShowsWhatIsPrinted runs the documented commands and compares their output.
func TestTheDocumentationShowsWhatIsPrinted(t *testing.T) {
	documentation := readFile(t, filepath.Join("..", "..", "docs", "convert.md"))
	t.Chdir("testdata")
	shown := regexp.MustCompile("(?s)```console\n\\$ kubectl di ([^\n]*)\n(.*?)```").FindAllStringSubmatch(documentation, -1)
	if len(shown) < 3 {
		t.Fatalf("found only %d examples", len(shown))
	}
	for _, example := range shown {
		got := kubectlDI(t, "", strings.Fields(example[1])...)
		if diff := cmp.Diff(example[2], got.stderr+got.stdout); diff != "" {
			t.Errorf("%s (-documented +printed):\n%s", example[1], diff)
		}
	}
}
