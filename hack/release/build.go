// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// release is one build of a release.
type release struct {
	options
	source    source
	programs  []program
	platforms []platform
	progress  io.Writer
	// env extends the environment of the compiler.
	env []string

	// work is a folder for temporary files, and staged for artifacts.
	work, staged string
	// compiler is the version of Go that the binaries record.
	compiler string
	// digests are the digests of the images, by program.
	digests map[string]string
}

// preflight returns an error early, rather than after minutes, if the release cannot be built. The
// flags and the checkout were validated before. A release that is built twice requires that all
// changes are committed.
func (r *release) preflight(twice bool) error {
	if twice {
		if err := r.source.checkRepeatable(); err != nil {
			return err
		}
	}
	if err := checkInterpreter(); err != nil {
		return err
	}
	if _, err := r.changes(); err != nil {
		return err
	}
	return r.checkLauncher()
}

// build builds all artifacts. They replace the content of the folder when all of them are complete.
func (r *release) build(ctx context.Context) (err error) {
	started := time.Now()
	if err := r.preflight(false); err != nil {
		return err
	}
	r.staged = r.out + ".partial"
	r.digests = map[string]string{}
	if r.work, err = os.MkdirTemp("", "release-"); err != nil {
		return fmt.Errorf("folder to work in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work), os.RemoveAll(r.staged)) }()
	if err := emptyFolder(r.staged); err != nil {
		return err
	}
	steps := r.steps()
	for i, step := range steps {
		r.say("[%d/%d, %s] %s", i+1, len(steps), time.Since(started).Round(time.Second), step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	if err := errors.Join(os.RemoveAll(r.out), os.Rename(r.staged, r.out)); err != nil {
		return fmt.Errorf("put %s in place: %w", r.out, err)
	}
	r.say("%s of commit %s is in %s, after %s", r.version, r.source.revision, r.out, time.Since(started).Round(time.Second))
	return nil
}

// step is one step of a build.
type step struct {
	what string
	do   func(context.Context) error
}

func (r *release) steps() []step {
	var steps []step
	all := binaries(r.programs, r.platforms)
	for _, binary := range all {
		steps = append(steps, step{
			fmt.Sprintf("compile %s for %s", binary.program.name, binary.platform),
			func(ctx context.Context) error { return r.compile(ctx, binary) },
		})
	}
	return append(steps,
		step{"pack images", func(context.Context) error { return r.packImages(all) }},
		step{"pack archives", func(context.Context) error { return r.packArchives(all) }},
		step{"write the plugin's manifest for krew", func(context.Context) error { return r.writeKrew(all) }},
		step{"write bills of materials", func(ctx context.Context) error { return r.writeMaterials(ctx, all) }},
		step{"package the chart", r.packageChart},
		step{"write manifests", func(context.Context) error { return r.writeManifests() }},
		step{"write JSON schemas", r.writeSchemas},
		step{"build the Python library", r.buildPython},
		step{"cut release notes", func(context.Context) error { return r.writeNotes() }},
		step{"write checksums", func(context.Context) error { return writeChecksums(r.staged) }},
	)
}

// compile builds a binary. It sets all environment variables with which the caller could change the
// result.
func (r *release) compile(ctx context.Context, b binary) error {
	if err := os.MkdirAll(filepath.Dir(r.binaryPath(b)), 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", r.ldflags,
		"-o", r.binaryPath(b), ".")
	cmd.Dir = filepath.Join(r.root, b.program.folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+b.platform.os, "GOARCH="+b.platform.arch,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")
	cmd.Env = append(cmd.Env, r.env...)
	cmd.Stdout, cmd.Stderr = r.progress, r.progress
	return cmd.Run()
}

// binaryPath returns the path of a binary before it is packed.
func (r *release) binaryPath(b binary) string {
	return filepath.Join(r.work, "bin", b.platform.os+"_"+b.platform.arch, b.file())
}

// artifact returns the path of an artifact during the build.
func (r *release) artifact(name string) string { return filepath.Join(r.staged, name) }

func (r *release) say(format string, args ...any) {
	fmt.Fprintf(r.progress, "release: "+format+"\n", args...)
}

func emptyFolder(path string) error {
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o755)); err != nil {
		return fmt.Errorf("empty %s: %w", path, err)
	}
	return nil
}
