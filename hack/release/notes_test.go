// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const changelog = `# Changelog

## [Unreleased]

## [2.0.1] - 2026-03-01

### Fixed

- A thing.

## [2.0.0] - 2026-01-31

### Added

- Another.

[2.0.1]: https://example.com/2.0.1
`

func TestReleaseNotesAreTheSectionOfTheVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"2.0.1": "### Fixed\n\n- A thing.", "2.0.0": "### Added\n\n- Another."} {
		got, err := section(changelog, version)
		if err != nil || got != want {
			t.Errorf("%s: got %q and error %v, want %q", version, got, err, want)
		}
	}
}

func TestAVersionWithoutNotesIsRefused(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.0", "3.0.0", "Unreleased"} {
		if _, err := section(changelog, version); err == nil || !strings.Contains(err.Error(), version) {
			t.Errorf("got error %v, want one that names %s", err, version)
		}
	}
}

// changesOf returns the changes of a version's release with the given changelog.
func changesOf(t *testing.T, changelog, version string, snapshot bool) (string, error) {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(changelog), 0o600); err != nil {
		t.Fatal(err)
	}
	return (&release{options: options{root: root, version: version, snapshot: snapshot}}).changes()
}

func TestLinksAndLinesOfTheNotesAreRightOnThePageOfTheRelease(t *testing.T) {
	t.Parallel()
	const changelog = `## [2.0.0] - 2026-01-31

One paragraph
of two lines, see [upgrade](docs/upgrade.md#pods).

### Added

- An item, see
  [elsewhere](https://example.com/a) and [below](#fixed),
  - with one in it
    of two lines.
- ` + "`a`" + `:

  ` + "```" + `
  kept
  as it is
  ` + "```" + `

| a |
| - |
| b |
`
	const want = `One paragraph of two lines, see [upgrade](https://github.com/opendilab/DI-orchestrator/blob/v2.0.0/docs/upgrade.md#pods).

### Added

- An item, see [elsewhere](https://example.com/a) and [below](#fixed),
  - with one in it of two lines.
- ` + "`a`" + `:

  ` + "```" + `
  kept
  as it is
  ` + "```" + `

| a |
| - |
| b |`
	got, err := changesOf(t, changelog, "v2.0.0", false)
	if err != nil || got != want {
		t.Errorf("got error %v and\n%s\nwant\n%s", err, got, want)
	}
}

func TestOnlyASnapshotGetsAlongWithoutNotes(t *testing.T) {
	t.Parallel()
	const emptied = "## [Unreleased]\n\n## [2.0.0] - 2026-01-31\n\n- A thing.\n"
	const filled = "## [Unreleased]\n\n- Something new.\n"
	for _, tc := range []struct{ changelog, version, want string }{
		{emptied, "v0.0.0-snapshot", "The changelog says nothing of this snapshot."},
		{emptied, "v2.0.0", "- A thing."},
		{filled, "v2.0.0", "- Something new."},
	} {
		got, err := changesOf(t, tc.changelog, tc.version, true)
		if err != nil || got != tc.want {
			t.Errorf("%s: got %q and error %v, want %q", tc.version, got, err, tc.want)
		}
	}
	if _, err := changesOf(t, filled, "v2.0.0", false); err == nil || !strings.Contains(err.Error(), "[2.0.0] - YYYY-MM-DD") {
		t.Errorf("got error %v for a release without notes, want one that shows the heading", err)
	}
}
