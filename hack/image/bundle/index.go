// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// These annotations of an archive's only entry contain its name for programs that load it. The
// first is of the OCI layout, the second of containerd and Docker.
const (
	refName       = "org.opencontainers.image.ref.name"
	containerName = "io.containerd.image.name"
)

// Index builds one image of several platforms in memory with OCI's media types. It adds the
// annotations to the index and to the image of each platform.
func Index(specs []Spec, annotations map[string]string) (v1.ImageIndex, error) {
	if len(specs) == 0 {
		return nil, errors.New("platforms are empty: want at least one")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	seen := map[string]bool{}
	for _, spec := range specs {
		platform, err := check(spec)
		if err != nil {
			return nil, err
		}
		if seen[platform.String()] {
			return nil, fmt.Errorf("platform %q is given twice: want every platform once", platform)
		}
		seen[platform.String()] = true
		img, err := build(spec, platform, oci())
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", platform, err)
		}
		annotated, ok := mutate.Annotations(img, annotations).(v1.Image)
		if !ok {
			return nil, fmt.Errorf("image for %s is none any more with annotations", platform)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        annotated,
			Descriptor: v1.Descriptor{Platform: platform},
		})
	}
	annotated, ok := mutate.Annotations(index, annotations).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("the index is none any more with annotations")
	}
	return annotated, nil
}

// WriteArchive writes the index atomically under a name as an archive of an OCI image layout. It
// returns the digest of the index.
func WriteArchive(index v1.ImageIndex, ref, out string) (string, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return "", fmt.Errorf("name %q: %w", ref, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of %s: %w", ref, err)
	}
	if err := writeWhole(out, func(partial string) error { return writeLayout(index, tag, partial) }); err != nil {
		return "", err
	}
	return digest.String(), nil
}

func writeLayout(index v1.ImageIndex, tag name.Tag, out string) (err error) {
	dir := out + ".layout"
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("start layout: %w", err)
	}
	annotations := map[string]string{refName: tag.TagStr(), containerName: tag.Name()}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return fmt.Errorf("add images: %w", err)
	}
	return packFolder(dir, out)
}

// packFolder writes a tar archive of a folder, sorted by name.
func packFolder(dir, out string) (err error) {
	all := contents{}
	if err := all.addFolder(File{Source: dir, Path: "/"}); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return archive(all.sorted(), file)
}
