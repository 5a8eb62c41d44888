// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Kubernetes writes docs/reference/kubernetes.md from what tests printed: for each version of Kubernetes the output of
// go test -json, in a file that is named after the version.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// result is what the tests of a version came to. Tests are counted without their parts, but a suite of Ginkgo by its
// specs.
type result struct {
	version          string
	passed, skipped  int
	packages, failed []string
}

func main() {
	if err := write(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hack/kubernetes:", err)
		os.Exit(1)
	}
}

func write(out io.Writer, files []string) error {
	if len(files) == 0 {
		return errors.New("usage: go run ./hack/kubernetes VERSION.json... >docs/reference/kubernetes.md")
	}
	var text strings.Builder
	text.WriteString(`# What ran on which Kubernetes

These packages were tested on the API server of each version, built from its source. It has no kubelet and no scheduler: the
[end-to-end tests](../compatibility.md) run on one version. A skipped test needs what its version lacks, such as the selection of jobs by fields before 1.31.
` + "`make test-kubernetes KUBERNETES=VERSION`" + ` runs them and writes this page.

| Kubernetes | packages | tests that passed | skipped | failed |
| --- | --- | --- | --- | --- |
`)
	for _, file := range files {
		r, err := read(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "| %s | %s | %d | %d | %s |\n", r.version, quoted(r.packages), r.passed, r.skipped, quoted(r.failed))
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

func read(path string) (result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return result{}, fmt.Errorf("read what tests printed: %w", err)
	}
	r := result{version: strings.TrimSuffix(filepath.Base(path), ".json")}
	failedTests := map[string]bool{}
	// Terminals are coloured by these sequences.
	content = regexp.MustCompile(`\\u001b\[[0-9;]*m`).ReplaceAll(content, nil)
	for decoder := json.NewDecoder(bytes.NewReader(content)); ; {
		var e event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			slices.Sort(r.failed)
			slices.Sort(r.packages)
			return r, nil
		case err != nil:
			return result{}, fmt.Errorf("%s: %w", path, err)
		}
		r.count(e, failedTests)
	}
}

// count adds an event. A package that failed without a failed test counts by its name, because it did not compile or
// was interrupted.
func (r *result) count(e event, failedTests map[string]bool) {
	short := strings.TrimPrefix(e.Package, "opendilab.org/di-orchestrator/")
	switch {
	case e.Action == "output":
		r.countSpecs(short, e.Output)
	case e.Test == "" && (e.Action == "pass" || e.Action == "fail"):
		r.packages = append(r.packages, short)
		if e.Action == "fail" && !failedTests[e.Package] {
			r.failed = append(r.failed, short)
		}
	case e.Test == "" || strings.Contains(e.Test, "/"):
	case e.Action == "pass":
		r.passed++
	case e.Action == "skip":
		r.skipped++
	case e.Action == "fail":
		failedTests[e.Package] = true
		r.failed = append(r.failed, short+"."+e.Test)
	}
}

// countSpecs adds a line of a suite: the numbers at its end, or the name of a spec that failed.
func (r *result) countSpecs(short, line string) {
	var passed, failed, pending, skipped int
	_, numbers, found := strings.Cut(line, " -- ")
	if n, _ := fmt.Sscanf(numbers, "%d Passed | %d Failed | %d Pending | %d Skipped", &passed, &failed, &pending, &skipped); found && n == 4 {
		// The test that runs the suite counts by its result.
		r.passed, r.skipped = r.passed+max(passed-1, 0), r.skipped+skipped
	}
	if name, isFailure := strings.CutPrefix(line, "  [FAIL] "); isFailure {
		r.failed = append(r.failed, short+": "+strings.TrimSpace(name))
	}
}
