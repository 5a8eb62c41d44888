// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// maxFound is how many files a search may find: a stranger reads their names.
const maxFound = 8

// TestOneSearchAnswersEachQuestionOfAStranger runs the searches of docs/development.md.
// Each finds the file of the answer, which declares the named symbol.
func TestOneSearchAnswersEachQuestionOfAStranger(t *testing.T) {
	_, after, _ := strings.Cut(read(t, "docs/development.md"), "## Find your way")
	section, _, _ := strings.Cut(after, "\n## ")
	row := regexp.MustCompile("(?m)^\\| [^|]+\\? \\| `grep -(rnE|rniE) '([^']+)' ([^`]+)` \\| `([^`]+)`: `(\\w+)`")
	rows := row.FindAllStringSubmatch(section, -1)
	if len(rows) < 20 {
		t.Fatalf("%d questions were found: is the table read at all?", len(rows))
	}
	for _, cells := range rows {
		flags, term, folders, answer, symbol := cells[1], cells[2], strings.Fields(cells[3]), cells[4], cells[5]
		if strings.Contains(flags, "i") {
			term = "(?i)" + term
		}
		found := search(t, regexp.MustCompile(term), folders)
		if _, isFound := found[answer]; !isFound || len(found) > maxFound {
			t.Errorf("%q finds %d files, want at most %d with %s", term, len(found), maxFound, answer)
		}
		if !regexp.MustCompile(`(?m)(^func (\([^)]+\) )?|^type |^const |^var |^\t)` + symbol + `\b`).MatchString(found[answer]) {
			t.Errorf("%s declares no %s", answer, symbol)
		}
	}
}

// search returns the files below the folders with a line that matches, with their contents.
func search(t *testing.T, term *regexp.Regexp, folders []string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(testkit.Root(), folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err == nil && term.Match(content) {
				name, _ := filepath.Rel(testkit.Root(), path)
				found[filepath.ToSlash(name)] = string(content)
			}
			return err
		})
		expect.NoError(t, err)
	}
	return found
}
