// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// krewManifest is a manifest of krew's index in version v1alpha2.
type krewManifest struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// writeKrew writes the manifest with which krew installs the plugin.
func (r *release) writeKrew(all []binary) error {
	manifest := krewManifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   krewMetadata{Name: "di"},
		Spec: krewSpec{
			Version:          r.version,
			Homepage:         sourceURL,
			ShortDescription: "Work with jobs of DI Orchestrator",
			Description: "Resizes, restarts and inspects the reinforcement-learning jobs (DIJobs) that\n" +
				"DI Orchestrator runs, and converts their manifests between API versions.\n",
		},
	}
	for _, binary := range all {
		if !binary.program.archive {
			continue
		}
		platform, err := r.krewPlatform(binary)
		if err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, platform)
	}
	content, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return os.WriteFile(r.artifact("krew-di.yaml"), content, 0o644)
}

func (r *release) krewPlatform(b binary) (krewPlatform, error) {
	sum, err := checksum(r.artifact(b.archive(r.version)))
	if err != nil {
		return krewPlatform{}, err
	}
	return krewPlatform{
		Selector: krewSelector{MatchLabels: map[string]string{"os": b.platform.os, "arch": b.platform.arch}},
		URI:      fmt.Sprintf("%s/releases/download/%s/%s", sourceURL, r.version, b.archive(r.version)),
		SHA256:   sum,
		Bin:      b.file(),
	}, nil
}
