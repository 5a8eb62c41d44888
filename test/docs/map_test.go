// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/internal/testkit"
)

func TestTheMapOfTheCodeHasEveryFolder(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "development.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "## The map")
	told, _, _ := strings.Cut(after, "\n## ")
	for _, parent := range []string{"cmd", "internal", "apis", "hack", "test"} {
		folders, err := os.ReadDir(filepath.Join(testkit.Root(), parent))
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range folders {
			if path := parent + "/" + folder.Name(); folder.IsDir() && !strings.Contains(told, "`"+path+"`") {
				t.Errorf("docs/development.md: the map lacks %s", path)
			}
		}
	}
}
