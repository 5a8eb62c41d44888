// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// These are the names of the manifests. They are the same in every release, so that
// releases/latest/download/NAME leads to the newest.
const (
	installManifest = "di-orchestrator.yaml"
	crdManifest     = "di-orchestrator.crds.yaml"
	// sampleManifest is the job that the quickstart submits.
	sampleManifest = "cartpole.yaml"
	sampleSource   = "examples/cartpole/v2alpha1.yaml"
	sampleImage    = "cartpole"
)

// writeManifests writes the files that kubectl apply installs: the whole installation, and the CRDs
// alone.
func (r *release) writeManifests() error {
	for name, folder := range map[string]string{installManifest: "config/default", crdManifest: "config/crd"} {
		if err := r.writeManifest(name, filepath.Join(r.root, folder)); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
	}
	return r.writeSample()
}

// writeSample writes the sample with the release's image.
func (r *release) writeSample() error {
	content, err := os.ReadFile(filepath.Join(r.root, sampleSource))
	if err != nil {
		return err
	}
	const old = "image: " + sampleImage + ":dev\n"
	if !bytes.Contains(content, []byte(old)) {
		return fmt.Errorf("%s: no %q", sampleSource, old)
	}
	released := bytes.ReplaceAll(content, []byte(old), fmt.Appendf(nil, "image: %s/%s:%s\n", r.registry, sampleImage, r.version))
	return os.WriteFile(r.artifact(sampleManifest), released, 0o644)
}

func (r *release) writeManifest(name, folder string) error {
	content, err := manifest(folder, r.registry+"/"+operatorImage, r.version)
	if err != nil {
		return err
	}
	return os.WriteFile(r.artifact(name), content, 0o644)
}

// manifest returns the objects of a kustomization, with the image of the operator and its tag.
func manifest(folder, image, tag string) ([]byte, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, err
	}
	released := types.Image{Name: operatorImage, NewName: image, NewTag: tag}
	if err := built.ApplyFilter(imagetag.LegacyFilter{ImageTag: released}); err != nil {
		return nil, fmt.Errorf("set image: %w", err)
	}
	return built.AsYaml()
}
