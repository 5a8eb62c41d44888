// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPageSaysWhatRanOnWhichVersion(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"1.30.1.json": `{"Action":"pass","Package":"p","Test":"TestA/part"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"\u001b[38;5;10m\u001b[1mSUCCESS!\u001b[0m -- \u001b[1m3 Passed\u001b[0m | \u001b[1m0 Failed\u001b[0m | 0 Pending | \u001b[1m2 Skipped\u001b[0m\n"}
{"Action":"pass","Package":"p","Test":"TestC"}
{"Action":"pass","Package":"p"}`,
		"1.31.1.json": `{"Action":"output","Package":"opendilab.org/di-orchestrator/q","Test":"TestC","Output":"  \u001b[38;5;9m[FAIL]\u001b[0m A gang \u001b[38;5;9m[It]\u001b[0m waits\n"}
{"Action":"fail","Package":"opendilab.org/di-orchestrator/q","Test":"TestC"}
{"Action":"fail","Package":"opendilab.org/di-orchestrator/q"}
{"Action":"fail","Package":"opendilab.org/di-orchestrator/broken"}`,
		"3.13.json": `{"Action":"output","Package":"p","Test":"TestA","Output":"    Ran 9 tests in 2.5s\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    OK (skipped=2)\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    ERROR: test_b (b.B)\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    Ran 5 tests in 2.5s\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    FAILED (errors=1)\n"}
{"Action":"fail","Package":"p","Test":"TestB"}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var page strings.Builder
	if err := write(&page, []string{"Kubernetes", filepath.Join(folder, "1.30.1.json"), filepath.Join(folder, "1.31.1.json"), filepath.Join(folder, "3.13.json")}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| 1.30.1 | `p` | 4 | 3 | none |", "| 1.31.1 | `broken`, `q` | 0 | 0 | `broken`, `q.TestC`, `q: A gang [It] waits` |",
		"| 3.13 | none | 11 | 2 | `p.TestB`, `p: test_b (b.B)` |"} {
		if !strings.Contains(page.String(), row) {
			t.Errorf("the page lacks %q:\n%s", row, page.String())
		}
	}
}

func TestAFileThatIsNoOutputOfTestsIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "1.30.1.json")
	if err := os.WriteFile(path, []byte("panic"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(&strings.Builder{}, []string{"Python", path}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
}

func TestAPageIsOfAKnownProgram(t *testing.T) {
	t.Parallel()
	if err := write(&strings.Builder{}, []string{"Perl", "5.json"}); err == nil || !strings.Contains(err.Error(), "Kubernetes|Python") {
		t.Errorf("got %v, want an error that says which programs there are", err)
	}
}
