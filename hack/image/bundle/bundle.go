// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle builds container images from files and folders on an empty base. The same input
// gives the same bytes: all times are fixed and all entries are sorted.
package bundle

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonRoot is the user and group that images run as.
const nonRoot = "65532:65532"

// Spec specifies an image.
type Spec struct {
	// Name is the reference of the image with its tag.
	Name string
	// Platform is OS/ARCH, such as linux/amd64.
	Platform string
	// Entrypoint is the program with its fixed arguments.
	Entrypoint []string
	// Files are files of the image, and Folders are folders with all that is in them.
	Files, Folders []File
	// Env are variables besides PATH, as NAME=VALUE.
	Env []string
	// Labels are the labels in the image's configuration.
	Labels map[string]string
	// Created is the creation time in the image. If zero, it is the start of 1970.
	Created time.Time
}

// File is one file or folder of the image.
type File struct {
	// Source is a path on this machine.
	Source string
	// Path is the absolute path in the image.
	Path string
}

// HostPlatform is the platform of this process, with the operating system of
// containers: Linux.
func HostPlatform() string { return "linux/" + runtime.GOARCH }

// ParseFiles parses SOURCE=PATH pairs.
func ParseFiles(pairs []string) ([]File, error) {
	files := make([]File, 0, len(pairs))
	for _, pair := range pairs {
		source, dest, found := strings.Cut(pair, "=")
		if !found || source == "" || !path.IsAbs(dest) {
			return nil, fmt.Errorf("file %q: want SOURCE=PATH with an absolute PATH", pair)
		}
		files = append(files, File{Source: source, Path: path.Clean(dest)})
	}
	return files, nil
}

// WriteFile writes the image atomically as a tarball in Docker's archive layout and returns its
// digest.
func WriteFile(spec Spec, out string) (string, error) {
	tag, err := name.NewTag(spec.Name)
	if err != nil {
		return "", fmt.Errorf("name %q: %w", spec.Name, err)
	}
	img, err := Build(spec)
	if err != nil {
		return "", err
	}
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of %s: %w", spec.Name, err)
	}
	if err := writeWhole(out, func(partial string) error { return tarball.WriteToFile(partial, tag, img) }); err != nil {
		return "", err
	}
	return digest.String(), nil
}

// writeWhole writes a file atomically.
func writeWhole(out string, write func(partial string) error) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("folder of %s: %w", out, err)
	}
	partial := fmt.Sprintf("%s.%d.partial", out, os.Getpid())
	if err := write(partial); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", partial, err), os.Remove(partial))
	}
	if err := os.Rename(partial, out); err != nil {
		return fmt.Errorf("put %s in place: %w", out, err)
	}
	return nil
}

// Build builds the image in memory with Docker's media types.
func Build(spec Spec) (v1.Image, error) {
	platform, err := check(spec)
	if err != nil {
		return nil, err
	}
	return build(spec, platform, docker())
}

func check(spec Spec) (*v1.Platform, error) {
	if len(spec.Entrypoint) == 0 {
		return nil, errors.New("entrypoint is empty: want the path of a program in the image")
	}
	if len(spec.Files)+len(spec.Folders) == 0 {
		return nil, errors.New("files are empty: want at least the program to run")
	}
	platform, err := v1.ParsePlatform(spec.Platform)
	if err != nil {
		return nil, fmt.Errorf("platform %q: want OS/ARCH: %w", spec.Platform, err)
	}
	return platform, nil
}

// media are the media types of an image's parts.
type media struct {
	layer, config, manifest types.MediaType
}

func docker() media {
	return media{layer: types.DockerLayer, config: types.DockerConfigJSON, manifest: types.DockerManifestSchema2}
}

func oci() media {
	return media{layer: types.OCILayer, config: types.OCIConfigJSON, manifest: types.OCIManifestSchema1}
}

func build(spec Spec, platform *v1.Platform, media media) (v1.Image, error) {
	contents, err := entries(&spec)
	if err != nil {
		return nil, err
	}
	layer, err := newLayer(contents, media.layer)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, media.manifest), media.config)
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("add files: %w", err)
	}
	return configure(img, spec, platform)
}

func configure(img v1.Image, spec Spec, platform *v1.Platform) (v1.Image, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	created := v1.Time{Time: epoch()}
	if !spec.Created.IsZero() {
		created.Time = spec.Created.UTC()
	}
	config.Created = created
	for i := range config.History {
		config.History[i].Created = created
	}
	config.Config.Labels = spec.Labels
	config.Config.Entrypoint = spec.Entrypoint
	config.Config.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/"}, spec.Env...)
	config.Config.User = nonRoot
	config.Config.WorkingDir = "/"
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return nil, fmt.Errorf("set configuration: %w", err)
	}
	return img, nil
}

// epoch returns the time of all files in an image. It is fixed because the same input must give the
// same digest.
func epoch() time.Time { return time.Unix(0, 0).UTC() }
