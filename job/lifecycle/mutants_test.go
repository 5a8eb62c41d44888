// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// mutant is a fault of the operator that a release once had.
type mutant struct {
	file, original, mutated string
}

// mutants returns the faults that the random worlds must find, by what they do.
func mutants() map[string]mutant {
	return map[string]mutant{
		"the clocks of API server and operator are compared": {
			filepath.Join("handshake", "handshake.go"), "h.isRunningMember(pod) && h.listed.Has(pod)",
			"h.isRunningMember(pod) && h.listed.active.Has(podstate.Rank(pod)) && !pod.CreationTimestamp.After(h.published.PublishedAt.Time)",
		},
		"a replica that was asked away stays": {
			filepath.Join("coordinatorled", "excess", "excess.go"), "		going[pod.Name] = true\n		s.out.DeletePod(pod)\n", "		going[pod.Name] = true\n",
		},
		"the first cause is lost": {
			filepath.Join("problems", "problems.go"), "	if stall == nil {\n		return message", "	if stall == nil || r.in.Job != nil {\n		return message",
		},
	}
}

// TestTheWorldsFindKnownFaults_Slow compiles the package with each fault, and plays as many worlds as must find it.
func TestTheWorldsFindKnownFaults_Slow(t *testing.T) {
	for name, fault := range mutants() {
		t.Run(name, func(t *testing.T) {
			found := regexp.MustCompile(`-world\.seed=.*`).FindString(playWith(t, fault))
			if found == "" {
				t.Fatalf("no world of %d finds it", mutantRounds)
			}
			t.Log(found)
		})
	}
}

// playWith plays the worlds with a fault, and returns what the tests print.
func playWith(t *testing.T, fault mutant) string {
	t.Helper()
	content, err := os.ReadFile(fault.file)
	expect.NoError(t, err)
	if count := strings.Count(string(content), fault.original); count != 1 {
		t.Fatalf("%s has %q %d times", fault.file, fault.original, count)
	}
	original, err := filepath.Abs(fault.file)
	expect.NoError(t, err)
	folder := t.TempDir()
	mutated, overlay := filepath.Join(folder, "mutated.go"), filepath.Join(folder, "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	expect.NoError(t, err)
	for path, text := range map[string]string{mutated: strings.Replace(string(content), fault.original, fault.mutated, 1), overlay: string(replaced)} {
		expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	command := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-overlay", overlay, "-run", "InAWorldThat", fmt.Sprintf("-world.rounds=%d", mutantRounds), ".")
	printed, err := command.CombinedOutput()
	if err == nil || strings.Contains(string(printed), "[build failed]") {
		t.Logf("%v\n%s", err, printed)
	}
	return string(printed)
}
