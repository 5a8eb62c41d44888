// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestEveryStringIsQuotedAsJSONSaysIt(t *testing.T) {
	t.Parallel()
	strings := []string{"", "plain", "<&>", "é", "\u2028", "\U0001f600", "a\"b", `a\b`}
	for c := range rune(0x80) {
		strings = append(strings, fmt.Sprintf("a%cb", c))
	}
	for _, s := range strings {
		quoted := quote(s)
		var back string
		if err := json.Unmarshal(quoted, &back); err != nil || back != s {
			t.Errorf("%q is quoted %s, which is %q: %v", s, quoted, back, err)
		}
		if got := text(quoted); got != s {
			t.Errorf("%s is read as %q, want %q", quoted, got, s)
		}
	}
}

func TestOnlyAStringHasAText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		``: "", `"`: "", `""`: "", `null`: "", `123`: "", `true`: "", `{"a":"b"}`: "", `["a"]`: "",
		`"\u0041\n"`: "A\n", "\"\xff\"": "\ufffd", "\"a\nb\"": "", `"a"b"`: "",
	} {
		if got := text([]byte(raw)); got != want {
			t.Errorf("%s has the text %q, want %q", raw, got, want)
		}
	}
}

func TestCuttingWhatIsNoJSONEnds(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`{`, `{"`, `{"a`, `{"a\`, `{"a\"`, `{"a":`, `{"a":"`, `{,}`, `{]`, `{}}`, "{\"a\":\"b\nc\"}", "{\"\x01", `[`, `[,`, `[}`, `[]]`, `[{}{}]`,
	} {
		parseObject([]byte(raw))
		parseArray([]byte(raw))
	}
}

func TestAValueEndsWithItsLastBracket(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{}{}`: `{}`, `[1][2]`: `[1]`, `{"a":{}}x`: `{"a":{}}`, `"a""b"`: `"a"`, ` 1 2`: `1`, "\"a\nb\",1": "\"a\nb\"", `"a\"b" `: `"a\"b"`,
	} {
		s := scanner{data: []byte(raw)}
		if got := string(s.value()); got != want {
			t.Errorf("the value at the start of %q is %q, want %q", raw, got, want)
		}
	}
}
