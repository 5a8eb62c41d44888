// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"
)

const testVersion = "v9.8.7"

// buildQuickly builds the release of this checkout with programs that compile quickly in place of
// the real ones.
func buildQuickly(t *testing.T) string {
	t.Helper()
	return buildFor(t, platform{"linux", "amd64"}, platform{"linux", "arm64"}, platform{"windows", "amd64"})
}

func buildFor(t *testing.T, platforms ...platform) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal("HELM is empty: want the path of a Helm; make helm builds out/bin/helm")
	}
	source, err := inspect(t.Context(), root, testVersion)
	if err != nil {
		t.Fatal(err)
	}
	const folder = "hack/release/testdata/program"
	r := &release{
		options: options{
			version: testVersion, registry: "registry.example.com/folder", root: root, helm: helm,
			out: filepath.Join(t.TempDir(), "release"), ldflags: "-s -w -X main.version=" + testVersion, snapshot: true,
		},
		source: source,
		programs: []program{
			{name: operatorImage, folder: folder, title: "Operator", image: true},
			{name: "kubectl-di", folder: folder, title: "Plugin", image: true, archive: true},
		},
		platforms: platforms,
		progress:  t.Output(),
	}
	if err := r.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.out
}

func TestAReleaseHoldsWhatItsUsersInstall(t *testing.T) {
	t.Parallel()
	out := buildQuickly(t)
	t.Run("every file has its checksum", func(t *testing.T) { checkSums(t, out) })
	t.Run("the plugin's archives hold program and licence", func(t *testing.T) { checkArchives(t, out) })
	t.Run("krew downloads what was built", func(t *testing.T) { checkKrew(t, out) })
	t.Run("the chart is of the release's version and image", func(t *testing.T) { checkChart(t, out) })
	t.Run("the manifests install the release's image", func(t *testing.T) { checkManifests(t, out) })
	t.Run("the schemas accept every example and refuse a misspelled field of a container", func(t *testing.T) { checkSchemas(t, out) })
	t.Run("each binary has a bill of materials", func(t *testing.T) { checkMaterials(t, out) })
	t.Run("the notes name the image by its digest, and the compiler", func(t *testing.T) { checkNotes(t, out) })
	t.Run("a second build gives the same bytes", func(t *testing.T) { checkRepeat(t, out) })
}

func TestASnapshotMayBeOfAPlatformWithoutImages(t *testing.T) {
	t.Parallel()
	out := buildFor(t, platform{"windows", "amd64"})
	if _, err := os.Stat(filepath.Join(out, "kubectl-di_v9.8.7_windows_amd64.zip")); err != nil {
		t.Error(err)
	}
	if notes := read(t, out, "release-notes.md"); strings.Contains(notes, "Images") {
		t.Errorf("notes are %q, want none of the images that there are not", notes)
	}
}

func checkSums(t *testing.T, out string) {
	t.Helper()
	sums, err := checksums(out)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{checksumFile: sums[checksumFile]}
	for line := range strings.Lines(read(t, out, checksumFile)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	if differ := differences(sums, listed); len(differ) > 0 {
		t.Errorf("checksums are missing or wrong of %v", differ)
	}
	for _, name := range []string{
		"di-orchestrator_v9.8.7_image.oci.tar", "kubectl-di_v9.8.7_image.oci.tar", "di_orchestrator-9.8.7-py3-none-any.whl", "di_orchestrator-9.8.7.tar.gz",
	} {
		if _, ok := sums[name]; !ok {
			t.Errorf("there is no %s among %v", name, sums)
		}
	}
}

func checkArchives(t *testing.T, out string) {
	t.Helper()
	for arch, want := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		files := readTarGz(t, filepath.Join(out, "kubectl-di_v9.8.7_linux_"+arch+".tar.gz"))
		if len(files["LICENSE"]) == 0 {
			t.Errorf("the archive for %s has no LICENSE", arch)
		}
		program, err := elf.NewFile(bytes.NewReader(files["kubectl-di"]))
		if err != nil {
			t.Fatal(err)
		}
		if program.Machine != want {
			t.Errorf("the program for %s is of %s", arch, program.Machine)
		}
		if !bytes.Contains(files["kubectl-di"], []byte(testVersion)) {
			t.Errorf("the program for %s does not know its version", arch)
		}
	}
	windows, err := zip.OpenReader(filepath.Join(out, "kubectl-di_v9.8.7_windows_amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := windows.Close(); err != nil {
			t.Error(err)
		}
	}()
	var names []string
	for _, file := range windows.File {
		names = append(names, file.Name)
	}
	if !slices.Equal(names, []string{"LICENSE", "kubectl-di.exe"}) {
		t.Errorf("the archive for Windows holds %v", names)
	}
}

func checkKrew(t *testing.T, out string) {
	t.Helper()
	var manifest krewManifest
	if err := yaml.UnmarshalStrict([]byte(read(t, out, "krew-di.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Spec.Version != testVersion || len(manifest.Spec.Platforms) != 3 {
		t.Fatalf("version %s for %d platforms, want %s for 3", manifest.Spec.Version, len(manifest.Spec.Platforms), testVersion)
	}
	for _, platform := range manifest.Spec.Platforms {
		sum, err := checksum(filepath.Join(out, filepath.Base(platform.URI)))
		if err != nil || sum != platform.SHA256 {
			t.Errorf("%s: sum is %s with error %v, the manifest says %s", platform.URI, sum, err, platform.SHA256)
		}
	}
}

func checkChart(t *testing.T, out string) {
	t.Helper()
	files := readTarGz(t, filepath.Join(out, "di-orchestrator-9.8.7.tgz"))
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(files["di-orchestrator/Chart.yaml"], &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version != "9.8.7" || chart.AppVersion != testVersion {
		t.Errorf("the chart is %+v, want 9.8.7 of %s", chart, testVersion)
	}
	var values struct{ Image struct{ Repository string } }
	if err := yaml.Unmarshal(files["di-orchestrator/values.yaml"], &values); err != nil {
		t.Fatal(err)
	}
	const want = "registry.example.com/folder/di-orchestrator"
	if values.Image.Repository != want || !bytes.Contains(files["di-orchestrator/README.md"], []byte(want)) {
		t.Errorf("image is %q, want %s, also in the chart's README", values.Image.Repository, want)
	}
}

func checkManifests(t *testing.T, out string) {
	t.Helper()
	install := read(t, out, installManifest)
	if n := strings.Count(install, "image: registry.example.com/folder/di-orchestrator:v9.8.7\n"); n != 3 {
		t.Errorf("the image stands in the manifest %d times, want 3: operator, webhooks and server", n)
	}
	if sample := read(t, out, sampleManifest); !strings.Contains(sample, "image: registry.example.com/folder/cartpole:v9.8.7\n") {
		t.Errorf("the sample has another image than the release's: %s", sample)
	}
	for manifest, kinds := range map[string]string{install: "kind: Deployment", read(t, out, crdManifest): "kind: CustomResourceDefinition"} {
		if !strings.Contains(manifest, kinds) {
			t.Errorf("a manifest has no %s", kinds)
		}
	}
}

func checkMaterials(t *testing.T, out string) {
	t.Helper()
	for _, stem := range []string{"di-orchestrator_v9.8.7_linux_arm64", "kubectl-di_v9.8.7_windows_amd64"} {
		bom := new(cdx.BOM)
		content := strings.NewReader(read(t, out, stem+".cdx.json"))
		if err := cdx.NewBOMDecoder(content, cdx.BOMFileFormatJSON).Decode(bom); err != nil {
			t.Fatal(err)
		}
		if bom.Metadata.Component.Version != testVersion || (*bom.Components)[0].PackageURL != "pkg:golang/stdlib@"+strings.TrimPrefix(runtime.Version(), "go") {
			t.Errorf("%s lists %+v, want %s and Go's library", stem, *bom.Components, testVersion)
		}
		licences := map[string]cdx.Licenses{}
		for _, component := range *bom.Components {
			licences[component.Name] = *component.Licenses
		}
		for name, identifier := range map[string]string{"stdlib": "BSD-3-Clause", "k8s.io/client-go": "Apache-2.0", "go.uber.org/zap": "MIT"} {
			if found := licences[name]; len(found) != 1 || found[0].License.ID != identifier {
				t.Errorf("%s says of %s the licences %+v, want %s", stem, name, found, identifier)
			}
		}
	}
}

func checkNotes(t *testing.T, out string) {
	t.Helper()
	notes := read(t, out, "release-notes.md")
	for _, part := range []string{"registry.example.com/folder/di-orchestrator:v9.8.7@sha256:", "with go1."} {
		if !strings.Contains(notes, part) {
			t.Errorf("notes are %q, want %s in them", notes, part)
		}
	}
}

func checkRepeat(t *testing.T, out string) {
	t.Helper()
	first, err := checksums(out)
	if err != nil {
		t.Fatal(err)
	}
	second, err := checksums(buildQuickly(t))
	if err != nil {
		t.Fatal(err)
	}
	if differ := differences(first, second); len(differ) > 0 {
		t.Errorf("two builds differ in %v", differ)
	}
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func readTarGz(t *testing.T, path string) map[string][]byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	uncompressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	reader := tar.NewReader(uncompressed)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
