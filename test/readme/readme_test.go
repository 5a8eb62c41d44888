// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build readme

package readme

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/docs"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestWhatTheReadmeSaysWorksInAFreshClone(t *testing.T) {
	folder, home := t.TempDir(), t.TempDir()
	environment, clone := newUser(os.Environ(), home), filepath.Join(folder, "clone")
	run(t, folder, environment, "git", "clone", "--quiet", testkit.Root(), clone)
	for _, step := range steps(t, clone) {
		fmt.Printf("\n%s:%d:\n%s", step.Page, step.Line, step.Text)
		run(t, clone, environment, "bash", "-euo", "pipefail", "-c", step.Text)
	}
	if changes := run(t, clone, environment, "git", "status", "--porcelain"); changes != "" {
		t.Errorf("the commands left files in the clone that git does not ignore:\n%s", changes)
	}
}

// steps returns the blocks of the clone's README that are marked for this test.
func steps(t *testing.T, clone string) []*docs.Block {
	t.Helper()
	blocks, err := docs.Blocks(clone, "README.md")
	expect.NoError(t, err)
	steps := slices.DeleteFunc(blocks, func(block *docs.Block) bool { return block.Run != "readme" })
	if len(steps) == 0 {
		t.Fatal("README.md has no block after <!-- run: readme -->")
	}
	return steps
}

// run runs a program with the environment of a new user and returns its output.
func run(t *testing.T, folder string, environment []string, program string, args ...string) string {
	t.Helper()
	var printed strings.Builder
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir, command.Env, command.Stdout, command.Stderr = folder, environment, io.MultiWriter(os.Stdout, &printed), os.Stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%s %s: %v\nIf the local cluster is up: make demo-down takes it down", program, strings.Join(args, " "), err)
	}
	return printed.String()
}

// newUser returns an environment without any setup. It keeps only variables about network access
// and the use of the machine.
func newUser(environment []string, home string) []string {
	kept := []string{
		"PATH", "LANG", "TERM", "TMPDIR", "USER", "LOGNAME", "CI", "SUDO_UID", "SUDO_GID",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOTOOLCHAIN",
	}
	// With this flag the module cache can be deleted with the home folder.
	found := []string{"HOME=" + home, "GOFLAGS=-modcacherw"}
	for _, variable := range environment {
		if name, _, _ := strings.Cut(variable, "="); slices.Contains(kept, name) {
			found = append(found, variable)
		}
	}
	return found
}
