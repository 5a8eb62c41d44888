// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const chartFolder = "charts/di-orchestrator"

const (
	// operatorImage is the image of the operator and of di-server in the manifests of the checkout.
	operatorImage = "di-orchestrator"
	// pageImage is that of the web page.
	pageImage = "kubectl-di"
)

// packageChart packages, with Helm, a copy of the chart whose default image is the release's.
func (r *release) packageChart(ctx context.Context) error {
	folder := filepath.Join(r.work, "chart", filepath.Base(chartFolder))
	if err := r.copyChart(ctx, folder); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, r.helm, "package", folder, "--destination", r.staged,
		"--version", chartVersion(r.version), "--app-version", r.version)
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s package: %w: %s", r.helm, err, bytes.TrimSpace(printed))
	}
	return nil
}

// copyChart copies the files that Git tracks. All get the time of the release because Helm packs
// their times.
func (r *release) copyChart(ctx context.Context, folder string) error {
	listed, err := git(ctx, r.root, "ls-files", "-z", chartFolder)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(listed, "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		inside := strings.TrimPrefix(name, chartFolder+"/")
		if content, err = withRegistry(inside, content, r.registry); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		path := filepath.Join(folder, inside)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(path, content, 0o644), os.Chtimes(path, r.source.time, r.source.time)); err != nil {
			return err
		}
	}
	return nil
}

// withRegistry returns a file of the chart whose default images are those of a registry. All other
// text, including comments, remains unchanged.
func withRegistry(file string, content []byte, registry string) ([]byte, error) {
	begins := map[string][]string{
		"values.yaml": {"\n  repository: " + operatorImage, "\n    repository: " + pageImage},
		"README.md":   {"\n| image.repository | string | `\"" + operatorImage, "\n| web.image.repository | string | `\"" + pageImage},
	}[file]
	for _, old := range begins {
		if count := bytes.Count(content, []byte(old)); count != 1 {
			return nil, fmt.Errorf("%d lines begin with %q, want one", count, old)
		}
		name := strings.LastIndexAny(old, " \"") + 1
		content = bytes.Replace(content, []byte(old), []byte(old[:name]+registry+"/"+old[name:]), 1)
	}
	return content, nil
}
