// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const reference = "ghcr.io/example/program:v1.2.3"

func platformSpecs(t *testing.T, changed time.Time) []Spec {
	t.Helper()
	program := writeProgram(t, changed)
	var specs []Spec
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		spec := specFor(program)
		spec.Platform = platform
		spec.Created = time.Unix(1_700_000_000, 0)
		spec.Labels = map[string]string{"org.opencontainers.image.version": "v1.2.3"}
		specs = append(specs, spec)
	}
	return specs
}

func writeIndex(t *testing.T, changed time.Time) (archive, digest string) {
	t.Helper()
	index, err := Index(platformSpecs(t, changed), map[string]string{"org.opencontainers.image.title": "program"})
	if err != nil {
		t.Fatal(err)
	}
	archive = filepath.Join(t.TempDir(), "program.oci.tar")
	digest, err = WriteArchive(index, reference, archive)
	if err != nil {
		t.Fatal(err)
	}
	return archive, digest
}

func unpack(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	dir := t.TempDir()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(dir, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(target, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(reader); err == nil {
				err = os.WriteFile(target, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// onlyEntry returns the entry of the layout that all tools load without a name.
func onlyEntry(t *testing.T, dir string) (v1.Descriptor, v1.ImageIndex) {
	t.Helper()
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %d entries, want 1", len(manifest.Manifests))
	}
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Manifests[0], index
}

func TestAnArchiveHoldsOneNamedImageOfAllPlatforms(t *testing.T) {
	t.Parallel()
	archive, digest := writeIndex(t, time.Unix(1, 0))
	entry, index := onlyEntry(t, unpack(t, archive))
	if entry.Digest.String() != digest || entry.MediaType != types.OCIImageIndex {
		t.Errorf("entry is %s of %s, want index %s", entry.Digest, entry.MediaType, digest)
	}
	if entry.Annotations[refName] != "v1.2.3" || entry.Annotations[containerName] != reference {
		t.Errorf("entry is named %v, want %s", entry.Annotations, reference)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Annotations["org.opencontainers.image.title"] != "program" {
		t.Errorf("annotations of the index are %v, want the title", manifest.Annotations)
	}
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
		checkImage(t, index, descriptor)
	}
	if got := strings.Join(platforms, " "); got != "linux/amd64 linux/arm64" {
		t.Errorf("platforms are %s, want linux/amd64 and linux/arm64", got)
	}
}

func checkImage(t *testing.T, index v1.ImageIndex, descriptor v1.Descriptor) {
	t.Helper()
	img, err := index.Image(descriptor.Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Platform().String(); got != descriptor.Platform.String() {
		t.Errorf("configuration is for %s, the index says %s", got, descriptor.Platform)
	}
	if config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" || config.Created.Unix() != 1_700_000_000 {
		t.Errorf("labels %v, created %s: want the version and the given time", config.Config.Labels, config.Created)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != types.OCIConfigJSON ||
		manifest.Layers[0].MediaType != types.OCILayer || manifest.Annotations["org.opencontainers.image.title"] != "program" {
		t.Errorf("manifest is %+v, want OCI's media types and the title", manifest)
	}
	if err := readLayer(img); err != nil {
		t.Errorf("layer of %s: %v", descriptor.Platform, err)
	}
}

func readLayer(img v1.Image) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, content)
	return errors.Join(err, content.Close())
}

func TestTheSameInputGivesTheSameArchiveWheneverItWasBuilt(t *testing.T) {
	t.Parallel()
	var contents [][]byte
	for _, changed := range []time.Time{time.Unix(1, 0), time.Unix(1_000_000, 0)} {
		archive, _ := writeIndex(t, changed)
		content, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		contents = append(contents, content)
	}
	if !bytes.Equal(contents[0], contents[1]) {
		t.Error("archives of the same input differ")
	}
}

func TestAnIndexOfNoOrTheSamePlatformsIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := Index(nil, nil); err == nil {
		t.Error("an index of no platforms was made, want an error")
	}
	specs := platformSpecs(t, time.Unix(1, 0))
	specs[1].Platform = specs[0].Platform
	if _, err := Index(specs, nil); err == nil || !strings.Contains(err.Error(), "linux/amd64") {
		t.Errorf("got error %v, want one that names linux/amd64", err)
	}
}
