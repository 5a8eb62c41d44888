// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// statuses say in each language that a release is not published.
func statuses() []string { return []string{"not published yet", "尚未发布"} }

// A reader types the first command of a page before reading on.
func TestAPageSaysAboveItsCommandsThatTheirReleaseIsNotPublished(t *testing.T) {
	upcoming := regexp.MustCompile(`(?m)^To become ([0-9]+\.[0-9]+\.[0-9]+)`).FindStringSubmatch(read(t, "CHANGELOG.md"))
	said := 0
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" || strings.HasPrefix(page, "docs/adr/") {
			continue
		}
		at := statusLine(read(t, page))
		if at > 0 {
			said++
		}
		switch {
		case at > 0 && upcoming == nil:
			t.Errorf("%s:%d: the release is published: remove the line", page, at)
		case upcoming != nil:
			if line := firstUse(t, page, upcoming[1]); line > 0 && (at == 0 || at > line) {
				t.Errorf("%s:%d: the commands need release %s, and no line above says that it is %q, and what to do instead",
					page, line, upcoming[1], statuses()[0])
			}
		}
	}
	if upcoming != nil && said < 5 {
		t.Errorf("%d pages say so: are the pages read at all?", said)
	}
}

// statusLine returns the number of the line that says so; 0 for none.
func statusLine(page string) int {
	for _, status := range statuses() {
		if before, _, found := strings.Cut(page, status); found {
			return 1 + strings.Count(before, "\n")
		}
	}
	return 0
}

// firstUse returns the line of the first block of code that names a version; 0 for none.
func firstUse(t *testing.T, page, version string) int {
	t.Helper()
	for _, block := range blocksOf(t, page) {
		if strings.Contains(block.Text, version) {
			return block.Line
		}
	}
	return 0
}
