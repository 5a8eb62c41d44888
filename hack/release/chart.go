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

	"go.yaml.in/yaml/v4"
)

const chartFolder = "charts/di-orchestrator"

// operatorImage is the image of the operator and of di-server, as the manifests
// in the checkout name it.
const operatorImage = "di-orchestrator"

// packageChart lets Helm package a copy of the chart whose default image is
// the release's.
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

// copyChart copies the files that Git knows. Helm packs their times, so all
// get that of the release.
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

// withRepository returns a file of the chart with another default of
// image.repository. All else, comments too, stays as it is.
func withRepository(file string, content []byte, repository string) ([]byte, error) {
	switch file {
	case "values.yaml":
		return replaceValue(content, repository, "image", "repository")
	case "README.md":
		old := "| image.repository | string | `\"" + operatorImage + "\"` |"
		if bytes.Count(content, []byte(old)) != 1 {
			return nil, fmt.Errorf("want one line that begins with %q", old)
		}
		return bytes.Replace(content, []byte(old), []byte(strings.Replace(old, operatorImage, repository, 1)), 1), nil
	default:
		return content, nil
	}
}

// replaceValue puts another plain scalar in the place of the one at the path.
func replaceValue(content []byte, value string, path ...string) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	node := &document
	if len(node.Content) == 1 {
		node = node.Content[0]
	}
	for _, key := range path {
		if node = member(node, key); node == nil {
			return nil, fmt.Errorf("%s is missing", strings.Join(path, "."))
		}
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	line := lines[node.Line-1]
	start := node.Column - 1
	if node.Kind != yaml.ScalarNode || !bytes.HasPrefix(line[start:], []byte(node.Value)) {
		return nil, fmt.Errorf("%s is no plain scalar on one line", strings.Join(path, "."))
	}
	lines[node.Line-1] = []byte(string(line[:start]) + value + string(line[start+len(node.Value):]))
	return bytes.Join(lines, nil), nil
}

func member(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}
