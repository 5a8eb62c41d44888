// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package python

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheLibraryAlone(t *testing.T) {
	library := filepath.Join(testkit.Root(), "python")
	readAll(t, library, filepath.Join(testkit.Root(), "examples"))
	command := exec.CommandContext(t.Context(), interpreter, "-m", "unittest", "discover", "--start-directory", "tests/unit")
	command.Dir = library
	command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(library, "src"), "PYTHONDONTWRITEBYTECODE=1")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, output)
	}
	t.Logf("%s", output)
}

func TestTheLibraryChecksReportsAsTheOperatorDoes(t *testing.T) {
	library := filepath.Join(testkit.Root(), "python")
	readAll(t, library)
	command := exec.CommandContext(t.Context(), interpreter, "tests/reports.py")
	command.Dir = library
	command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(library, "src"), "PYTHONDONTWRITEBYTECODE=1")
	command.Stderr = os.Stderr
	output, err := command.Output()
	expect.NoError(t, err)
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	refused := 0
	for _, line := range lines {
		var given struct {
			Report json.RawMessage
			Error  *string
		}
		expect.NoError(t, json.Unmarshal(line, &given))
		_, err := profilings.Parse(given.Report)
		switch {
		case err == nil && given.Error == nil:
		case err != nil && given.Error != nil && err.Error() == *given.Error:
			refused++
		default:
			t.Errorf("%s: the operator says %v", line, err)
		}
	}
	if accepted := len(lines) - refused; accepted < 20 || refused < 20 {
		t.Errorf("%d reports are accepted and %d refused: want at least 20 of each", accepted, refused)
	}
}
