// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

func TestOnlyVersionsThatCanBeTagsOfEverythingAreTaken(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v2.0.0", "v2.0.0-rc.1", "v0.0.0-snapshot"} {
		if err := checkVersion(version); err != nil {
			t.Errorf("%s was refused: %v", version, err)
		}
	}
	for _, version := range []string{"", "2.0.0", "v2", "v2.0", "v2.0.0.1", "v02.0.0", "v2.0.0+build", "latest", "1cfff25-dirty"} {
		if err := checkVersion(version); err == nil || !strings.Contains(err.Error(), "such as v2.0.0") {
			t.Errorf("%q: got error %v, want one that shows a right version", version, err)
		}
	}
}

func TestArtifactsAreNamedByProgramVersionAndPlatform(t *testing.T) {
	t.Parallel()
	plugin := program{name: "kubectl-di", archive: true}
	for want, platform := range map[string]platform{
		"kubectl-di_v2.0.0_darwin_arm64.tar.gz": {"darwin", "arm64"},
		"kubectl-di_v2.0.0_windows_amd64.zip":   {"windows", "amd64"},
	} {
		if got := (binary{plugin, platform}).archive("v2.0.0"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestImagesAreOfLinuxOnlyAndPluginsOfAllSystems(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, binary := range binaries(programs(), platforms()) {
		count[binary.program.name]++
		if !binary.program.archive && binary.platform.os != "linux" {
			t.Errorf("%s is built for %s", binary.program.name, binary.platform)
		}
	}
	if count["di-orchestrator"] != 2 || count["cartpole"] != 2 || count["kubectl-di"] != 6 {
		t.Errorf("binaries are %v, want 2 of each image's and 6 of the plugin", count)
	}
}

func TestWhatNobodyCouldBuildAgainIsNoRelease(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		source source
		want   string
	}{
		"a file that is not committed": {source{changes: []string{" M go.mod"}}, "go.mod"},
		"a tag of another commit":      {source{version: "v2.0.0", revision: "a", tagged: "b"}, "v2.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := tc.source.check(false); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one that names %s", err, tc.want)
			}
			if err := tc.source.check(true); err != nil {
				t.Errorf("got error %v for a snapshot, want none", err)
			}
			if err := tc.source.checkRepeatable(); (err != nil) != (len(tc.source.changes) > 0) {
				t.Errorf("got error %v before building twice, want one where something is not committed", err)
			}
		})
	}
	if err := (source{version: "v2.0.0", revision: "a", tagged: "a"}).check(false); err != nil {
		t.Errorf("the commit of the tag was refused: %v", err)
	}
}

func TestTheTimeIsTheCommitsUnlessTheEnvironmentSaysAnother(t *testing.T) {
	t.Parallel()
	for epoch, want := range map[string]int64{"": 100, "7": 7} {
		got, err := releaseTime(epoch, "100")
		if err != nil || !got.Equal(time.Unix(want, 0)) {
			t.Errorf("SOURCE_DATE_EPOCH %q: got %s and error %v, want %d", epoch, got, err, want)
		}
	}
	if _, err := releaseTime("today", "100"); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("got error %v, want one that names SOURCE_DATE_EPOCH", err)
	}
}

func TestPlatformsAreChosenByName(t *testing.T) {
	t.Parallel()
	chosen, err := choose(platforms(), []string{"linux/arm64", "linux/amd64"})
	if err != nil || len(chosen) != 2 || chosen[0].String() != "linux/amd64" || chosen[1].String() != "linux/arm64" {
		t.Errorf("got %v and error %v, want the two of Linux", chosen, err)
	}
	if all, err := choose(platforms(), nil); err != nil || len(all) != len(platforms()) {
		t.Errorf("got %v and error %v, want all", all, err)
	}
	if _, err := choose(platforms(), []string{"linux/mips"}); err == nil || !strings.Contains(err.Error(), "linux/mips") {
		t.Errorf("got error %v, want one that names linux/mips", err)
	}
}
