// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Versions writes a page of docs/reference from what tests printed: for each version of a program the output of
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
// specs, and one of Python's unittest by its tests.
type result struct {
	version          string
	passed, skipped  int
	packages, failed []string
}

// pages returns the beginning of the page of each program.
func pages() map[string]string {
	return map[string]string{
		"Kubernetes": `# What ran on which Kubernetes

These packages were tested on the API server of each version, built from its source. It has no kubelet and no scheduler: the
[end-to-end tests](../compatibility.md) run on one version. A skipped test needs what its version lacks, such as the selection of jobs by fields before 1.31.
` + "`make test-kubernetes KUBERNETES=VERSION`" + ` runs them and writes this page.
`,
		"Python": `# What ran on which Python

These packages run the tests of [the library](../python.md) by the interpreter of each version.
` + "`make test-pythons PYTHONS=VERSION`" + ` runs them and writes this page. The tests on every change run one version, that of the machine.
`,
	}
}

func main() {
	if err := write(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hack/versions:", err)
		os.Exit(1)
	}
}

func write(out io.Writer, args []string) error {
	if len(args) < 2 || pages()[args[0]] == "" {
		return errors.New("usage: go run ./hack/versions Kubernetes|Python VERSION.json... >docs/reference/PAGE.md")
	}
	var text strings.Builder
	text.WriteString(pages()[args[0]])
	fmt.Fprintf(&text, `
| %s | packages | tests that passed | skipped | failed |
| --- | --- | --- | --- | --- |
`, args[0])
	for _, file := range args[1:] {
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
	line = strings.TrimSpace(line)
	if n, _ := fmt.Sscanf(line, "Ran %d tests in", &passed); n == 1 {
		r.passed += max(passed-1, 0)
	}
	if strings.HasPrefix(line, "FAILED (") {
		// The test that runs the suite does not count then.
		r.passed++
	}
	if n, _ := fmt.Sscanf(line, "OK (skipped=%d)", &skipped); n == 1 {
		r.passed, r.skipped = r.passed-skipped, r.skipped+skipped
	}
	if name, isFailure := cutAny(line, "FAIL: ", "ERROR: "); isFailure {
		r.failed = append(r.failed, short+": "+name)
		r.passed--
	}
}

// cutAny returns a line without the first of some prefixes that it has.
func cutAny(line string, prefixes ...string) (rest string, found bool) {
	for _, prefix := range prefixes {
		if rest, found = strings.CutPrefix(line, prefix); found {
			return rest, true
		}
	}
	return line, false
}
