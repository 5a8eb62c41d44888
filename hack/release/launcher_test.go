// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheManifestForDIEngineHasTheImageOfTheNewestRelease(t *testing.T) {
	t.Parallel()
	const released = "## [2.0.1] - 2026-02-03\n\n- Fixes.\n\n## [2.0.0] - 2026-01-31\n\n- All.\n"
	for changelog, want := range map[string]string{
		"# Changelog\n\n## [Unreleased]\n\n" + released:            "2.0.1",
		"# Changelog\n\n" + released:                               "2.0.1",
		"# Changelog\n\n## [Unreleased]\n\n- New.\n\n" + released:  "",
		"# Changelog\n\n## [Unreleased]\n\n- All that there is.\n": "",
		"": "",
	} {
		if got := releasedVersion(changelog); got != want {
			t.Errorf("%q: got %q, want %q", changelog, got, want)
		}
	}
}

func TestTheCommittedManifestForDIEngineIsCurrent(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	want, err := launcherContent(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, launcherManifest))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not current: run make manifests", launcherManifest)
	}
}

func TestAReleaseIsRefusedWhoseManifestForDIEngineHasAnotherImage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	content := "        image: ghcr.io/opendilab/di-orchestrator:v2.0.0\n"
	if err := os.WriteFile(filepath.Join(root, launcherManifest), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (&release{options: options{root: root, version: "v2.0.0"}}).checkLauncher(); err != nil {
		t.Errorf("the release itself: %v", err)
	}
	err := (&release{options: options{root: root, version: "v2.0.1"}}).checkLauncher()
	if err == nil || !strings.Contains(err.Error(), `config/di-manager.yaml: has no "image: ghcr.io/opendilab/di-orchestrator:v2.0.1": run make manifests`) {
		t.Errorf("another release: got error %v", err)
	}
	if err := (&release{options: options{root: root, version: "v2.0.1", snapshot: true}}).checkLauncher(); err != nil {
		t.Errorf("a snapshot: %v", err)
	}
}
