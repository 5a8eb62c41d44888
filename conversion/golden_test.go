// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var update = flag.Bool("update", false, "rewrite the second document of each golden file")

// between separates the two documents of a golden file.
const between = "---\n# The same in the other version, written by go test ./conversion -run Golden -update.\n"

// TestGoldenManifestsSayTheSameInBothVersions converts the manifests of testdata/golden. A file has
// the name of the version of its first document, which is written by hand. The second document is
// generated in the other version. Each must convert into the other.
func TestGoldenManifestsSayTheSameInBothVersions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	versions := map[string]string{
		v1alpha1.Version: v1alpha1.GroupVersion.String(),
		v2alpha1.Version: v2alpha1.GroupVersion.String(),
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			own := filepath.Base(filepath.Dir(file))
			other := v1alpha1.Version
			if own == other {
				other = v2alpha1.Version
			}
			content, err := os.ReadFile(file)
			expect.NoError(t, err)
			written, converted, _ := strings.Cut(string(content), between)
			if *update {
				converted = writeGolden(t, file, written, versions[other])
			}
			checkConverts(t, fromYAML(t, written), fromYAML(t, converted), versions[other])
			checkConverts(t, fromYAML(t, converted), fromYAML(t, written), versions[own])
		})
	}
}

// writeGolden writes the second document of a golden file and returns it.
func writeGolden(t *testing.T, file, written, apiVersion string) string {
	t.Helper()
	raw, err := Convert(fromYAML(t, written), apiVersion)
	expect.NoError(t, err)
	document, err := yaml.JSONToYAML(raw)
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(file, []byte(written+between+string(document)), 0o644))
	return string(document)
}
