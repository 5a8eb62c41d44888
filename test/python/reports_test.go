// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package python

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheLibraryChecksReportsAsTheOperatorDoes(t *testing.T) {
	command := python(t.Context(), t, "tests/reports.py")
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
