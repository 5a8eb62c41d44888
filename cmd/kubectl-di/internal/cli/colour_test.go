// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestPhasesAreColouredInTheirColumn(t *testing.T) {
	t.Parallel()
	const lines = "NAME  PHASE\na     Running\nbc    Failed   Error\nd     Pending, suspended\ne\nf     Gone\n"
	on := Palette{isOn: true}
	expect.Equal(t, "on a terminal", "NAME  PHASE\na     \x1b[32mRunning\x1b[0m\nbc    \x1b[31mFailed\x1b[0m   Error\nd     \x1b[33mPending\x1b[0m, suspended\ne\nf     Gone\n",
		string(on.At(6, []byte(lines))))
	expect.Equal(t, "elsewhere", lines, string(NewPalette(&bytes.Buffer{}).At(6, []byte(lines))))
}

func TestNoColourIsUsedWhereTheUserWantsNone(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "1")
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "")
	if !NewPalette(&bytes.Buffer{}).isOn {
		t.Error("colours cannot be forced")
	}
	t.Setenv("NO_COLOR", "1")
	if NewPalette(&bytes.Buffer{}).isOn {
		t.Error("NO_COLOR is ignored")
	}
}

func TestRowsThatComeLaterKeepTheColumns(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	lines := Lines{Out: &out, Column: "PHASE"}
	expect.NoError(t, lines.Write(Table{{"NAME", "PHASE", "AGE"}, {"pong", "Running", "3s"}}))
	expect.NoError(t, lines.Write(Table{{"a", "Failed", ""}}))
	expect.NoError(t, lines.Write(Table{{"a-long\nname", "Failed", "\x1b[2J"}}))
	expect.Equal(t, "lines", "NAME  PHASE    AGE\npong  Running  3s\na     Failed\na-long name  Failed   ^[[2J\n", out.String())
}
