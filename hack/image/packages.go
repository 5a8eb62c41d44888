// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"opendilab.org/di-orchestrator/hack/image/bundle"
	"opendilab.org/di-orchestrator/hack/image/debian"
)

// packages are the packages of Debian in an image.
type packages struct {
	names, leaveOut []string
}

// unpacked calls build with the unpacked packages, then removes them. The versions are written
// beside the image, as FILE.packages.
func (p *packages) unpacked(ctx context.Context, out string, build func(roots ...bundle.File) error) (err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("folder for what is downloaded: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".packages-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root := filepath.Join(dir, "root")
	found, err := debian.Unpack(ctx, &debian.Request{
		Sources: debian.Debian12, Packages: p.names, LeaveOut: p.leaveOut, Cache: filepath.Join(cache, "di-orchestrator", "debian"),
	}, root)
	if err != nil {
		return err
	}
	if err := debian.CompilePython(ctx, root); err != nil {
		return err
	}
	var versions strings.Builder
	for _, each := range found {
		fmt.Fprintln(&versions, each)
	}
	if err := os.WriteFile(out+".packages", []byte(versions.String()), 0o644); err != nil {
		return err
	}
	return build(bundle.File{Source: root, Path: "/"})
}
