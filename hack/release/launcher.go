// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// launcherManifest is the file that DI-engine's OrchestratorLauncher downloads from the tag of a
	// release. It is committed, because the launcher knows no other place.
	launcherManifest = "config/di-manager.yaml"
	launcherSource   = "config/di-engine"
	// defaultRegistry is the registry and folder of the released images.
	defaultRegistry = "ghcr.io/opendilab"

	launcherHeader = "# Made by make manifests of config/di-engine, for DI-engine's OrchestratorLauncher: do not edit.\n"
)

// launcherCommand is a part of make manifests, so that make verify finds a file that is not current.
func launcherCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "launcher",
		Short: "Write " + launcherManifest + ", with the image of the release that the changelog describes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			content, err := launcherContent(root)
			if err != nil {
				return fmt.Errorf("%s: %w", launcherManifest, err)
			}
			return os.WriteFile(filepath.Join(root, launcherManifest), content, 0o644)
		},
	}
	cmd.Flags().StringVar(&root, "root", "../..", "checkout to write to")
	return cmd
}

// launcherContent returns the manifest of a checkout. A checkout with unreleased changes has no
// released image: its manifest has that of config/default.
func launcherContent(root string) ([]byte, error) {
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	image, tag := operatorImage, "dev"
	if version := releasedVersion(string(changelog)); version != "" {
		image, tag = defaultRegistry+"/"+operatorImage, "v"+version
	}
	content, err := manifest(filepath.Join(root, launcherSource), image, tag)
	return append([]byte(launcherHeader), content...), err
}

// releasedVersion returns the newest version of a changelog, and none if it has unreleased changes.
func releasedVersion(changelog string) string {
	if _, err := section(changelog, unreleased); err == nil {
		return ""
	}
	for line := range strings.Lines(changelog) {
		if title, isHeading := strings.CutPrefix(line, "## "); isHeading && headingVersion(title) != unreleased {
			return headingVersion(title)
		}
	}
	return ""
}

// checkLauncher returns an error if the committed manifest is not that of the release.
func (r *release) checkLauncher() error {
	if r.snapshot {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(r.root, launcherManifest))
	if err != nil {
		return err
	}
	image := "image: " + defaultRegistry + "/" + operatorImage + ":" + r.version + "\n"
	if !bytes.Contains(content, []byte(image)) {
		return errors.New(launcherManifest + ": has no \"" + strings.TrimSpace(image) +
			"\": run make manifests and commit, after the changelog has the section of the version and nothing unreleased")
	}
	return nil
}
