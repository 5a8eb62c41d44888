// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestANoteHasAtMostTheBytesThatTheAPIServerAccepts(t *testing.T) {
	t.Parallel()
	fits := strings.Repeat("n", maxNote)
	if got := Note(fits); got != fits {
		t.Errorf("a text of %d bytes became one of %d", len(fits), len(got))
	}
	for _, long := range []string{fits + "n", strings.Repeat("ü", maxNote), strings.Repeat("界", maxNote)} {
		got := Note(long)
		if len(got) > maxNote || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") || !strings.HasPrefix(long, strings.TrimSuffix(got, "...")) {
			t.Errorf("a text of %d bytes became %d bytes: %q", len(long), len(got), got)
		}
	}
}
