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

// operatorImage is the image of the operator and of di-server in the manifests of the checkout.
const operatorImage = "di-orchestrator"

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
		if content, err = withRepository(inside, content, r.registry+"/"+operatorImage); err != nil {
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

// withRepository returns a file of the chart with another default of image.repository. All other
// text, including comments, remains unchanged.
func withRepository(file string, content []byte, repository string) ([]byte, error) {
	begins := map[string]string{
		"values.yaml": "\n  repository: ",
		"README.md":   "\n| image.repository | string | `\"",
	}[file]
	if begins == "" {
		return content, nil
	}
	old, changed := []byte(begins+operatorImage), []byte(begins+repository)
	if count := bytes.Count(content, old); count != 1 {
		return nil, fmt.Errorf("%d lines begin with %q, want one", count, begins+operatorImage)
	}
	return bytes.Replace(content, old, changed, 1), nil
}
