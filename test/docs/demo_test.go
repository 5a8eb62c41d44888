// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// The demo leaves its reader in a shell with these lines.
func TestTheLastLinesOfTheDemoAreCommandsThatWorkInItsShell(t *testing.T) {
	c := newChecker(t)
	_, said, _ := strings.Cut(read(t, "hack/demo/main.go"), "To look around:\n")
	var commands []string
	for _, match := range regexp.MustCompile(`(?m)^  (.+)$`).FindAllStringSubmatch(said, -1) {
		commands = append(commands, match[1])
		c.checkText(t, match[1])
	}
	all := strings.Join(commands, "\n")
	for _, want := range []string{"cluster-env", "kubectl di top ", "kubectl di ui --open"} {
		if !strings.Contains(all, want) {
			t.Errorf("the demo does not say %s:\n%s", want, all)
		}
	}
	for _, match := range regexp.MustCompile(`kubectl di top (\S+)`).FindAllStringSubmatch(all, -1) {
		if !strings.Contains(read(t, "examples/cartpole/v2alpha1.yaml"), "name: "+match[1]+"\n") {
			t.Errorf("the demo has no job %s", match[1])
		}
	}
}

func TestTheShellOfTheDemoFindsThePlugin(t *testing.T) {
	out := t.TempDir()
	tool := filepath.Join(out, "bin", "cluster")
	write(t, tool, "#!/bin/sh\necho export KUBECONFIG=/cluster\n")
	write(t, filepath.Join(out, "bin", "kubectl-di"), "#!/bin/sh\necho found\n")
	// What make runs, without building the tool.
	command := exec.CommandContext(t.Context(), "sh", "-c", `eval "$(make -s cluster-env --assume-old=cluster-tool OUT=`+out+`)" && kubectl-di && echo "$KUBECONFIG"`)
	command.Dir = testkit.Root()
	command.Env = append(os.Environ(), "KUBECONFIG=/cluster")
	if output, err := command.CombinedOutput(); err != nil || string(output) != "found\n/cluster\n" {
		t.Errorf("got %v: %s", err, output)
	}
}

// kubectl di version compares its own with the tags of the images.
func TestThePluginAndTheImagesAreBuiltWithOneVersion(t *testing.T) {
	for _, tc := range []struct{ variables, want string }{
		{"", "main.version=dev "},
		{"TAG=mine", "main.version=mine "},
		{"VERSION=v2.0.0", "main.version=v2.0.0 "},
	} {
		for _, target := range []string{"build", "images"} {
			args := append([]string{"--dry-run", target}, strings.Fields(tc.variables)...)
			command := exec.CommandContext(t.Context(), "make", args...)
			command.Dir = testkit.Root()
			output, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			if !strings.Contains(string(output), tc.want) {
				t.Errorf("make %s %s builds with another version than %s:\n%s", target, tc.variables, tc.want, output)
			}
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o755))
}
