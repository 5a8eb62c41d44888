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
)

// Helm prints the notes after an installation.
func TestTheNotesOfTheChartNameCommandsAndFilesThatThereAre(t *testing.T) {
	c := newChecker(t)
	for _, values := range [][]string{nil, {"monitoring.prometheusRule.enabled=true", "configuration.common.watchNamespaces={rl}", "webhook.hostNetwork=true"}} {
		for _, namespace := range []string{"di-system", "elsewhere"} {
			notes := notesOf(t, namespace, values)
			commands := commandsOfNotes(notes)
			if len(commands) < 5 {
				t.Fatalf("got %d commands: are the notes read at all?\n%s", len(commands), notes)
			}
			for _, command := range commands {
				c.checkText(t, command)
			}
			for _, path := range regexp.MustCompile(`\b(?:docs|examples|config|charts)/[a-z0-9./-]+[a-z0-9]`).FindAllString(notes, -1) {
				if _, err := os.Stat(filepath.Join(testkit.Root(), path)); err != nil {
					t.Errorf("the notes name a file that does not exist: %v", err)
				}
			}
		}
	}
}

// notesOf returns the notes that an installation prints.
func notesOf(t *testing.T, namespace string, values []string) string {
	t.Helper()
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal("HELM is not set: run the tests by make test, or set it to the program")
	}
	args := []string{"install", "di", filepath.Join(testkit.Root(), "charts", "di-orchestrator"), "--dry-run=client", "--namespace", namespace}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	output, err := exec.CommandContext(t.Context(), helm, args...).CombinedOutput()
	_, notes, found := strings.Cut(string(output), "\nNOTES:\n")
	if err != nil || !found {
		t.Fatalf("there are no notes: %v\n%s", err, output)
	}
	return notes
}

// commandsOfNotes returns what a line of notes tells to type: what follows its label, or the first words of a choice.
func commandsOfNotes(notes string) []string {
	var found []string
	for _, match := range regexp.MustCompile(`\b(?:kubectl|make|helm) [^,\n]+`).FindAllString(notes, -1) {
		command, _, _ := strings.Cut(match, " for a ")
		found = append(found, command)
	}
	return found
}

func (c *checker) checkText(t *testing.T, command string) {
	t.Helper()
	commands, err := commandsOf(&Block{Language: "sh", Text: command})
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
	for _, args := range commands {
		if err := c.command("README.md", args); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}
