// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// step is a block of a page, marked for the walk.
func step(commands ...string) string {
	return "<!-- run: readme -->\n```sh\n" + strings.Join(commands, "\n") + "\n```\n"
}

func TestAWalkDoesTheMarkedStepsInOrderInACloneWithAnEmptyHome(t *testing.T) {
	t.Setenv("KUBECONFIG", "/somebody/elses")
	output, err := walk(t, "# Project\n"+
		step("ls -A \"$HOME\" | wc -l", "echo \"cluster: ${KUBECONFIG:-none}\"", "echo kept >ignored")+
		"Not this one:\n```sh\nfalse\n```\n"+
		step("cat ignored"))
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var printed []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line == "0" || line == "cluster: none" || line == "kept" {
			printed = append(printed, line)
		}
	}
	if got := strings.Join(printed, ", "); got != "0, cluster: none, kept" {
		t.Errorf("got %q of:\n%s", got, output)
	}
}

func TestAWalkEndsAtTheFirstStepThatFails(t *testing.T) {
	output, err := walk(t, "# Project\n"+step("echo before", "false | true", "echo beyond")+step("echo behind"))
	if err == nil || !strings.Contains(err.Error(), "README.md:4: echo before") {
		t.Errorf("got %v, want the line and the commands of the step", err)
	}
	for line := range strings.Lines(output) {
		if strings.TrimSpace(line) == "beyond" || strings.TrimSpace(line) == "behind" {
			t.Errorf("it went on: %s", output)
		}
	}
}

func TestAWalkFailsThatLeavesSomethingInTheClone(t *testing.T) {
	for name, command := range map[string]string{"?? new": "touch new", "M README.md": "echo more >>README.md"} {
		if output, err := walk(t, "# Project\n"+step(command)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want %q: %s", command, err, name, output)
		}
	}
}

func TestAPageWithoutStepsIsAnError(t *testing.T) {
	if output, err := walk(t, "# Project\n```sh\ntrue\n```\n"); err == nil || !strings.Contains(err.Error(), "<!-- run: readme -->") {
		t.Errorf("got %v: %s", err, output)
	}
}

// walk commits a README to a repository of its own and follows it.
func walk(t *testing.T, page string) (string, error) {
	t.Helper()
	repository := t.TempDir()
	for name, content := range map[string]string{"README.md": page, ".gitignore": "/ignored\n"} {
		if err := os.WriteFile(filepath.Join(repository, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "--quiet"},
		{"add", "."},
		{"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "--quiet", "-m", "Begin"},
	} {
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = repository
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, output)
		}
	}
	var output strings.Builder
	w := &Walk{Repository: repository, Page: "README.md", Name: "readme", Folder: t.TempDir(), Output: &output}
	err := w.Do(t.Context())
	return output.String(), err
}
