// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inCache writes a module with one file into a module cache, and returns the licences that read it.
func inCache(t *testing.T, folder, file, content string) *licences {
	t.Helper()
	texts, err := newLicences(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	texts.cache = t.TempDir()
	root := filepath.Join(texts.cache, filepath.FromSlash(folder))
	if err := os.MkdirAll(root, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestALicenceIsRecognisedByItsText(t *testing.T) {
	own, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	texts := inCache(t, "example.com/!some!one/module@v1.0.0", "Licence.md", string(own))
	if found, err := texts.of("example.com/SomeOne/module", "v1.0.0"); err != nil || !slices.Equal(found, []string{"Apache-2.0"}) {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestAModuleWithoutALicenceThatIsKnownIsNamed(t *testing.T) {
	texts := inCache(t, "example.com/module@v1.0.0", "LICENSE", "All rights reserved.")
	if found, err := texts.of("example.com/module", "v1.0.0"); err == nil || !strings.Contains(err.Error(), "example.com/module@v1.0.0 has no licence") {
		t.Errorf("got %v, %v", found, err)
	}
}
