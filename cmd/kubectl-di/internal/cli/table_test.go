// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheLinesOfATextStayBelowEachOther(t *testing.T) {
	t.Parallel()
	rows := Table{
		{"Pod:", "job-learner-0"},
		{"Message:", "Traceback (most recent call last):\n  File \"main.py\", line 3\n\n\tjoin()\r\nRuntimeError: no answer\x1b[2J\n"},
		{"Seen\nthen:", " now  "},
		{"", ""},
	}
	var out bytes.Buffer
	rows.Write(&out, "  ")
	expect.Equal(t, "text", `  Pod:        job-learner-0
  Message:    Traceback (most recent call last):
                File "main.py", line 3
                  join()
              RuntimeError: no answer^[[2J
  Seen then:  now

`, out.String())
}

func TestEmptyCellsKeepTheColumnsAligned(t *testing.T) {
	t.Parallel()
	rows := Table{{"NAME", "GROUP", "USER"}, {"a", "", ""}, {"pong", "games", "jane"}}
	var out bytes.Buffer
	rows.Write(&out, "")
	expect.Equal(t, "text", "NAME  GROUP  USER\na\npong  games  jane\n", out.String())
}
