// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion/importers"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// samples returns manifests as users have them, by file name.
func samples(tb testing.TB) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("finding samples: %v", err)
	}
	found := map[string][]byte{}
	for _, file := range files {
		found[file] = manifest(tb, read(tb, file))
	}
	return found
}

func read(tb testing.TB, file string) string {
	tb.Helper()
	content, err := os.ReadFile(file)
	expect.NoError(tb, err)
	return string(content)
}

func manifest(tb testing.TB, text string) []byte {
	tb.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatalf("reading %s: %v", text, err)
	}
	return raw
}

func decode(tb testing.TB, raw []byte) map[string]any {
	tb.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	value := map[string]any{}
	if err := decoder.Decode(&value); err != nil {
		tb.Fatalf("decoding %s: %v", raw, err)
	}
	return value
}

// golden returns a result in the form of the golden files.
func golden(tb testing.TB, result *importers.Result) string {
	tb.Helper()
	object, err := yaml.JSONToYAML(result.Object)
	expect.NoError(tb, err)
	var out strings.Builder
	out.Write(object)
	for _, of := range []struct {
		heading  string
		findings []importers.Finding
	}{{"lost", result.Lost}, {"note", result.Notes}} {
		for _, finding := range of.findings {
			fmt.Fprintf(&out, "# %s: %s = %v: %s; %s\n", of.heading, finding.Path, finding.Value, finding.Why, finding.Do)
		}
	}
	return out.String()
}

func TestWhatManifestsBecome(t *testing.T) {
	t.Parallel()
	for file, raw := range samples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			if !importers.Recognizes(raw) {
				t.Fatal("is not recognized")
			}
			result, err := importers.Import(raw)
			expect.NoError(t, err)
			got, goldenFile := golden(t, result), strings.TrimSuffix(file, ".yaml")+".golden"
			if *update {
				expect.NoError(t, os.WriteFile(goldenFile, []byte(got), 0o600))
			}
			if diff := cmp.Diff(read(t, goldenFile), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			fitsItsType(t, result.Object)
			accountsFor(t, raw, result)
		})
	}
}

// fitsItsType checks that the type of the object's version has all fields of the object.
func fitsItsType(tb testing.TB, raw []byte) {
	tb.Helper()
	head := decode(tb, raw)
	types := map[string]any{
		"DIJob " + v1alpha1.GroupVersion.String():            new(v1alpha1.DIJob),
		"DIJob " + v2alpha1.GroupVersion.String():            new(v2alpha1.DIJob),
		"AggregatorConfig " + v1alpha1.GroupVersion.String(): new(v1alpha1.AggregatorConfig),
	}
	typed := types[fmt.Sprint(head["kind"], " ", head["apiVersion"])]
	if strict, err := kjson.UnmarshalStrict(raw, typed); err != nil || len(strict) > 0 {
		tb.Errorf("%s is no object of its type: %v, %v", raw, err, strict)
	}
}

// accountsFor checks that each value of the manifest is in the object where the result says it
// moved, or is reported.
func accountsFor(tb testing.TB, raw []byte, result *importers.Result) {
	tb.Helper()
	object := decode(tb, result.Object)
	eachLeaf(nil, decode(tb, raw), func(path importers.Path, value any) {
		switch {
		case value == nil, path.String() == "apiVersion", path.String() == "kind":
		case named(result.Lost, path), named(result.Notes, path):
		case isIn(object, path, value):
		default:
			for _, move := range result.Moves {
				if below, ok := path.Below(move.From); ok && isIn(object, move.To.Child(below...), value) {
					return
				}
			}
			tb.Errorf("%s = %v of\n%s\nis neither in\n%s\nnor in the report", path, value, raw, result.Object)
		}
	})
}

func named(findings []importers.Finding, path importers.Path) bool {
	for _, finding := range findings {
		// If a value below was renamed or noted, the finding describes only that value.
		if _, ok := path.Below(finding.Path); ok && (finding.Value != nil || len(finding.Path) == len(path) || strings.HasPrefix(finding.Why, "left out")) {
			return true
		}
	}
	return false
}

func isIn(object any, path importers.Path, value any) bool {
	for _, step := range path {
		switch of := object.(type) {
		case map[string]any:
			object = of[step]
		case []any:
			var i int
			if _, err := fmt.Sscanf(step, "%d", &i); err != nil || i >= len(of) {
				return false
			}
			object = of[i]
		default:
			return false
		}
	}
	return reflect.DeepEqual(object, value)
}

func eachLeaf(at importers.Path, value any, do func(importers.Path, any)) {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			eachLeaf(at.Child(key), member, do)
		}
	case []any:
		for i, item := range value {
			eachLeaf(at.Child(strconv.Itoa(i)), item, do)
		}
	default:
		do(at, value)
	}
}

func TestWhatIsNotToBeImported(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a DIJob of tasks":                `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, spec: {tasks: []}}`,
		"a DIJob of both":                 `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, spec: {tasks: [], template: {}}}`,
		"a DIJob without anything":        `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob}`,
		"a DIJob of v1alpha1":             `{apiVersion: diengine.opendilab.org/v1alpha1, kind: DIJob, spec: {template: {}}}`,
		"an MPIJob of an earlier version": `{apiVersion: kubeflow.org/v1alpha2, kind: MPIJob, spec: {}}`,
		"a TFJob of v1beta2":              `{apiVersion: kubeflow.org/v1beta2, kind: TFJob}`,
		"a list":                          `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := manifest(t, text)
			if importers.Recognizes(raw) {
				t.Error("is recognized")
			}
			if result, err := importers.Import(raw); err == nil {
				t.Errorf("was imported as %s", result.Object)
			}
		})
	}
}

func TestErrorsNameThePathAndTheValue(t *testing.T) {
	t.Parallel()
	const (
		tfJob    = "{apiVersion: kubeflow.org/v1, kind: TFJob, spec: "
		torchJob = "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: "
	)
	for text, want := range map[string]string{
		tfJob + `{tfReplicaSpecs: {Worker: {replicas: two}}}}`:                                             `spec.tfReplicaSpecs.Worker.replicas: "two" is no whole number that fits`,
		tfJob + `{tfReplicaSpecs: {Worker: {restartPolicy: Sometimes}}}}`:                                  `spec.tfReplicaSpecs.Worker.restartPolicy: "Sometimes" is none of`,
		tfJob + `{tfReplicaSpecs: {Worker: {template: 3}}}}`:                                               `spec.tfReplicaSpecs.Worker.template: 3 is no object`,
		tfJob + `{tfReplicaSpecs: {Worker: {}, worker: {}}}}`:                                              `spec.tfReplicaSpecs.worker: is the same replica type as spec.tfReplicaSpecs.Worker`,
		tfJob + `{tfReplicaSpecs: {}}}`:                                                                    `spec.tfReplicaSpecs: names no replica type`,
		tfJob + `{successPolicy: Some, tfReplicaSpecs: {Worker: {}}}}`:                                     `spec.successPolicy: "Some"`,
		tfJob + `{runPolicy: {backoffLimit: 99999999999}, tfReplicaSpecs: {Worker: {}}}}`:                  `spec.runPolicy.backoffLimit: 99999999999 is no whole number that fits`,
		torchJob + `{pytorchReplicaSpecs: {Chief: {}}}}`:                                                   `spec.pytorchReplicaSpecs.Chief: is neither Master nor Worker`,
		torchJob + `{pytorchReplicaSpecs: {}}}`:                                                            `spec.pytorchReplicaSpecs: names no replica type`,
		torchJob + `{nprocPerNode: 4, pytorchReplicaSpecs: {Worker: {}}}}`:                                 `spec.nprocPerNode: 4 is no text`,
		torchJob + `{elasticPolicy: {maxReplicas: many}, pytorchReplicaSpecs: {Worker: {}}}}`:              `spec.elasticPolicy.maxReplicas: "many" is no whole number that fits`,
		`{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, spec: {template: {}, minReplicas: x}}`: `spec.minReplicas: "x" is no whole number that fits`,
	} {
		_, err := importers.Import(manifest(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// FuzzImport checks that every imported value is accounted for, and that the object fits its type.
func FuzzImport(f *testing.F) {
	for _, raw := range samples(f) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || !importers.Recognizes(raw) {
			return
		}
		result, err := importers.Import(raw)
		if err != nil {
			return
		}
		if !json.Valid(result.Object) {
			t.Fatalf("%s became %s", raw, result.Object)
		}
		accountsFor(t, raw, result)
	})
}

// TestChangedManifestsAreAccountedFor changes the samples at random paths.
func TestChangedManifestsAreAccountedFor(t *testing.T) {
	t.Parallel()
	r, imported := rand.New(rand.NewSource(1)), 0
	all := samples(t)
	files := slices.Sorted(maps.Keys(all))
	for range 2000 {
		object := decode(t, all[files[r.Intn(len(files))]])
		for range 1 + r.Intn(4) {
			change(r, object)
		}
		raw, err := json.Marshal(object)
		expect.NoError(t, err)
		if !importers.Recognizes(raw) {
			continue
		}
		result, err := importers.Import(raw)
		if err != nil {
			continue // Another test covers what it names.
		}
		imported++
		accountsFor(t, raw, result)
		if t.Failed() {
			return
		}
	}
	if imported < 400 {
		t.Errorf("only %d of the changed manifests could be imported, the changes are too rough", imported)
	}
}

// change removes, replaces or adds a random member of an object.
func change(r *rand.Rand, object map[string]any) {
	keys := slices.Sorted(maps.Keys(object))
	if len(keys) == 0 || r.Intn(8) == 0 {
		object[pick(r, "newer", "suspend", "backoffLimit", "queue", "replicas", "restartPolicy", "labels")] = anyValue(r)
		return
	}
	key := keys[r.Intn(len(keys))]
	switch below := object[key].(type) {
	case map[string]any:
		if r.Intn(10) > 0 {
			change(r, below)
			return
		}
	case []any:
		if len(below) > 0 && r.Intn(10) > 0 {
			if item, ok := below[r.Intn(len(below))].(map[string]any); ok {
				change(r, item)
				return
			}
		}
	}
	if r.Intn(3) == 0 {
		delete(object, key)
		return
	}
	object[key] = anyValue(r)
}

func anyValue(r *rand.Rand) any {
	return pick[any](r, "", "text", "Always", "ExitCode", "<nervex>", nil, true, false, json.Number("0"), json.Number("7"),
		map[string]any{}, map[string]any{"a": []any{"b"}}, []any{}, []any{nil, "c"})
}

func pick[T any](r *rand.Rand, values ...T) T {
	return values[r.Intn(len(values))]
}
