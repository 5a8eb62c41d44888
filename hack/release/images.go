// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/hack/image/bundle"
)

const sourceURL = "https://github.com/opendilab/DI-orchestrator"

// packImages writes one archive per image, for all its platforms. A snapshot may have no platform
// that images support.
func (r *release) packImages(all []binary) error {
	for _, program := range r.programs {
		if !program.image {
			continue
		}
		if err := r.packImage(program, all); err != nil {
			return fmt.Errorf("image %s: %w", program.name, err)
		}
	}
	return nil
}

func (r *release) packImage(program program, all []binary) error {
	facts := annotations(program, r.source)
	var specs []bundle.Spec
	for _, binary := range all {
		if binary.program == program && binary.platform.os == "linux" {
			specs = append(specs, r.imageSpec(binary, facts))
		}
	}
	if len(specs) == 0 {
		return nil
	}
	index, err := bundle.Index(specs, facts)
	if err != nil {
		return err
	}
	digest, err := bundle.WriteArchive(index, r.imageName(program), r.artifact(imageArchive(program, r.version)))
	if err != nil {
		return err
	}
	r.digests[program.name] = digest
	return nil
}

func (r *release) imageSpec(b binary, facts map[string]string) bundle.Spec {
	return bundle.Spec{
		Name:       r.imageName(b.program),
		Platform:   b.platform.String(),
		Entrypoint: []string{"/" + b.program.name},
		Files:      []bundle.File{{Source: r.binaryPath(b), Path: "/" + b.program.name}},
		Labels:     facts,
		Created:    r.source.time,
	}
}

// imageName returns the name with which an image must be pushed.
func (r *release) imageName(p program) string { return r.registry + "/" + p.name + ":" + r.version }

// imageArchive returns the file name of an image's archive.
func imageArchive(p program, version string) string {
	return fmt.Sprintf("%s_%s_image.oci.tar", p.name, version)
}

// annotations returns the annotations that OCI defines.
func annotations(p program, s source) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":         p.name,
		prefix + "description":   p.title,
		prefix + "version":       s.version,
		prefix + "revision":      s.revision,
		prefix + "created":       s.time.Format(time.RFC3339),
		prefix + "source":        sourceURL,
		prefix + "url":           sourceURL,
		prefix + "documentation": sourceURL + "/tree/" + s.version + "/docs",
		prefix + "licenses":      "Apache-2.0",
		prefix + "vendor":        "The DI Orchestrator Authors",
	}
}
