// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// same returns the origins of a part that did not move.
func same(path []string) [][]string { return [][]string{path} }

// moved returns the origins of a part that moved to another path.
func moved(from, to string) manifests.Origins {
	return func(path []string) [][]string {
		if below, ok := strings.CutPrefix(strings.Join(path, "/")+"/", to+"/"); ok {
			return [][]string{strings.Split(strings.TrimSuffix(from+"/"+below, "/"), "/"), path}
		}
		return same(path)
	}
}

func parse(tb testing.TB, text string) *manifests.Document {
	tb.Helper()
	document, err := manifests.Parse(&manifests.Part{Body: text, Line: 1})
	if err != nil {
		tb.Fatalf("parsing %s: %v", text, err)
	}
	return document
}

func rewrite(tb testing.TB, text, content string, origins manifests.Origins) string {
	tb.Helper()
	out, err := parse(tb, text).Rewrite([]byte(content), origins)
	if err != nil {
		tb.Fatalf("rewriting %s as %s: %v", text, content, err)
	}
	return string(out)
}

func TestAFileIsCutIntoItsDocuments(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file   string
		bodies []string
		lines  []int
	}{
		"one":                       {"a: 1\n", []string{"a: 1\n"}, []int{1}},
		"several":                   {"a: 1\n---\nb: 2\n--- # c\nc: 3", []string{"a: 1\n", "b: 2\n", "c: 3"}, []int{1, 3, 5}},
		"on the line of the marker": {"--- {a: 1}\n---\t[b]\n", []string{"{a: 1}\n", "[b]\n"}, []int{1, 2}},
		"no markers":                {"---a: 1\n ---\n", []string{"---a: 1\n ---\n"}, []int{1}},
		"ended by dots":             {"a: 1\n...\nb: 2\n", []string{"a: 1\n", "b: 2\n"}, []int{1, 3}},
		"Windows' line breaks":      {"a: 1\r\n---\r\nb: 2\r\n", []string{"a: 1\r\n", "b: 2\r\n"}, []int{1, 3}},
		"JSON in a row":             {"{\"a\": 1}\n{\n\"b\": 2}{}\n", []string{"{\"a\": 1}\n", "{\n\"b\": 2}", "{}\n"}, []int{1, 2, 3}},
		"objects in YAML's way":     {"{a: 1}\n---\n{\"b\": 2}", []string{"{a: 1}\n", "{\"b\": 2}"}, []int{1, 3}},
		"nothing":                   {"", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bodies []string
			var lines []int
			for _, part := range manifests.Split([]byte(tc.file)) {
				bodies, lines = append(bodies, part.Body), append(lines, part.Line)
			}
			expect.Equal(t, "bodies", tc.bodies, bodies)
			expect.Equal(t, "lines", tc.lines, lines)
		})
	}
}

// FuzzFiles checks that the joined parts equal the file. It also checks that every document that
// parses decodes like in kubectl and survives a rewrite.
func FuzzFiles(f *testing.F) {
	for _, text := range append(asKubectlReads(), "a: 1\n---\n\n# b\n...\n{}{}\n", "a: &x {b: 1}\nc: *x\n\n\n<<: *x\n",
		"a: 1\n...\nb: 2\n...", "\ufeff---\r\na: 1 # b\r\n", "{\"a\": 1}\n...\n--- # c\n[1]") {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var joined strings.Builder
		for _, part := range manifests.Split(file) {
			joined.WriteString(part.Separator + part.Body + part.End)
			document, err := manifests.Parse(&part)
			if err != nil {
				continue
			}
			if !json.Valid(document.JSON()) {
				t.Fatalf("%q was read as %s", part.Body, document.JSON())
			}
			out, err := document.Rewrite(document.JSON(), same)
			if err != nil {
				continue // Some values, such as an empty key, cannot be written.
			}
			again := parse(t, string(out))
			if !reflect.DeepEqual(decode(t, document.JSON()), decode(t, again.JSON())) {
				t.Fatalf("%q became %q", part.Body, out)
			}
		}
		if joined.String() != string(file) {
			t.Fatalf("%q was cut into %q", file, joined.String())
		}
	})
}

func decode(tb testing.TB, raw []byte) any {
	tb.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		tb.Fatalf("decoding %s: %v", raw, err)
	}
	return value
}

// asKubectlReads returns documents whose values depend on the decoder.
func asKubectlReads() []string {
	return []string{
		"{a: yes, b: No, c: on, d: y, e: 'yes', f: \"no\", g: True, h: null, i: ~, j: }",
		"{a: 010, b: 0x1F, c: 1_000, d: 0b11, e: 1:30, f: +1, g: 1e3, h: .5, i: -0, j: 0o7}",
		"{a: 2001-01-01, b: 2001-12-14t21:59:43.10-05:00, c: 1.2.3, d: 4Gi, e: 100m}",
		"{1: a, true: b, off: c, 1.5: d, 'x': e}",
		"{a: !!str 1, b: !!int \"5\", c: !!binary aGk=, d: !!str yes}",
		"a: |\n  text\n\n  # no comment\nb: >-\n  folded\n  text\n\nc: plain\n  on two lines\n\n  and more\nd: \"quoted\n\n  too\"\n",
		"base: &base {a: 1, b: {c: 2}}\none: {<<: *base, a: 3}\ntwo: *base\nthree: {<<: [{a: 9}, *base]}\n",
		"- a\n- [b, {c: d}]\n-\n  - e\n",
		"a: \"\\ud83d\\ude00 \\u2028\"\n",
		"a: 12345678901234567890\nb: 1.50\n",
	}
}

func TestValuesAreReadAsKubectlReadsThem(t *testing.T) {
	t.Parallel()
	for _, text := range asKubectlReads() {
		want, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			if document, err := manifests.Parse(&manifests.Part{Body: text, Line: 1}); err == nil {
				t.Errorf("%s was read as %s, which kubectl does not read", text, document.JSON())
			}
			continue
		}
		if diff := cmp.Diff(plain(t, want), plain(t, parse(t, text).JSON())); diff != "" {
			t.Errorf("%s (-kubectl +got):\n%s", text, diff)
		}
	}
}

// plain decodes JSON with numbers as float64.
func plain(tb testing.TB, raw []byte) any {
	tb.Helper()
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		tb.Fatalf("decoding %s: %v", raw, err)
	}
	return value
}

func TestErrorsNameTheLineOfTheFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: 1\nb: [\n":         "line 12: is no YAML",
		"a: 1\nb: 2\na: 3\n":   `line 12: "a" is there already, on line 10`,
		"a:\n  ? [b]\n  : c\n": "line 11: a key must be a word",
		"a: {<<: b}\n":         "line 10: <<: only mappings can be merged",
		"a: *missing\n":        "line 10: is no YAML: unknown anchor",
		"a: &x [*x]\n":         "line 10",
		"a: !!int text\n":      "line 10",
		"{a: 1}\n%TAG ! x\n":   "line 11: is no YAML",
		laughs():               "too big",
		"{{- if .x }}\na: b\n": "render it first",
		"a:\n\tb: 1\n":         "line 11: is no YAML: found character that cannot start any token; indent with spaces, not with tabs",
		"a: \"b\n":             "line 10: is no YAML: found unexpected end of stream",
		"a: \x01\n":            "line 10: is no YAML: control characters are not allowed",
	} {
		_, err := manifests.Parse(&manifests.Part{Body: text, Line: 10})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %s", text, err, want)
		}
	}
}

func TestFilesThatAreNotUTF8AreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                         "",
		"\ufeffa: \ufffdö\n":       "",
		"a: 1\nb: ö\nc: \xff\n":    "line 3: the byte 0xff is not UTF-8; save the file as UTF-8",
		"\xff\xfea\x00:\x00 \x001": "is written in UTF-16; save it as UTF-8",
	} {
		got := ""
		if err := manifests.CheckEncoding([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// laughs returns a document whose aliases expand to more than the memory.
func laughs() string {
	var text strings.Builder
	text.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		before, now := string(rune('0'+i)), string(rune('1'+i))
		text.WriteString("a" + now + ": &a" + now + " [" + strings.TrimSuffix(strings.Repeat("*a"+before+", ", 10), ", ") + "]\n")
	}
	return text.String()
}

func TestWhatStaysIsWrittenAsItWas(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"comments everywhere": "# head\n\n# of a\na: 1 # line\n# foot\n\n# of b\nb:\n  # of c\n  c: d\n# end\n",
		"blank lines":         "a:\n\n  b: 1\n\n\n  c: |\n    x\n\n    y\n\nd:\n- 1\n\n- 2\n",
		"quotes and numbers":  "a: 'x'\nb: \"y\"\nc: 1.50\nd: 0x10\ne: 12345678901234567890\nf: \"yes\"\ng: yes\n",
		"flow collections":    "a: {b: [1, 2], c: {d: e}}\nf: []\ng: {}\n",
		"indented lists":      "a:\n  - b\n  - c:\n      - d\n",
		"wide indentation":    "a:\n    b:\n        c: 1\n",
		"long lines":          "a: " + strings.Repeat("word ", 60) + "end\n",
		"anchors":             "a: &x\n  b: 1\nc: *x\nd:\n  !!merge <<: *x\n  e: 2\n",
		"folded text":         "a: >-\n  some text\n\n  and more\n",
		"Windows' line ends":  "# head\r\na: 1 # line\r\n\r\n# of b\r\nb: |\r\n  x\r\n\r\n  y\r\n",
		"other languages":     "a: 训练 # 注释\nb: é\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := rewrite(t, text, string(parse(t, text).JSON()), same)
			if diff := cmp.Diff(text, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatMovesTakesItsCommentsAlong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text, content string
		origins       manifests.Origins
		want          string
	}{
		"under another name": {
			"a: 1\n# about b\nb: 2 # line\n", `{"a":1,"z":2}`, moved("b", "z"),
			"a: 1\n# about b\nz: 2 # line\n",
		},
		"with another value": {
			"a: 'x' # line\n", `{"a":"y"}`, same,
			"a: 'y' # line\n",
		},
		"into a list": {
			"# about b\nb:\n  c: {d: 1} # line\n", `{"list":[{"e":2,"c":{"d":1}}]}`, moved("b", "list/0"),
			"list:\n# about b\n- e: 2\n  c: {d: 1} # line\n",
		},
		"out of a list": {
			"list:\n# about b\n- e: 2\n  c: {d: 1} # line\n", `{"b":{"c":{"d":1}}}`, moved("list/0", "b"),
			"# about b\nb:\n  c: {d: 1} # line\n",
		},
		"beside new keys": {
			"b: 1\nd: 2\n", `{"a":0,"b":1,"c":"x","d":2,"e":[]}`, same,
			"a: 0\nb: 1\nc: x\nd: 2\ne: []\n",
		},
		"before its anchor": {
			"one: &x {a: 1}\ntwo: *x\n", `{"list":[{"a":1},{"a":1}]}`,
			func(path []string) [][]string {
				if len(path) > 1 {
					return [][]string{append([]string{map[string]string{"0": "two", "1": "one"}[path[1]]}, path[2:]...)}
				}
				return same(path)
			},
			"list:\n- &x {a: 1}\n- *x\n",
		},
		"away from what it merged": {
			"base: &b {a: 1}\nx: {<<: *b, c: 2}\n", `{"x":{"a":1,"c":3}}`, same,
			"x: {c: 3, a: 1}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, rewrite(t, tc.text, tc.content, tc.origins)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewTextReadsAsText(t *testing.T) {
	t.Parallel()
	content, err := json.Marshal([]string{"yes", "on", "010", "1e3", "null", "~", "", " x", "a: b", "# c", "2001-01-01", "1:30", "*a", "two\nlines\n", "trailing \n", "\t", "0x1F", "é\u2028", "-", "<<", "="})
	expect.NoError(t, err)
	out, err := manifests.YAML(content)
	expect.NoError(t, err)
	read, err := yaml.YAMLToJSON(out)
	expect.NoError(t, err)
	expect.Equal(t, string(out), decode(t, content), decode(t, read))
}

// TestTheExamplesSurvive rewrites the manifests of this repository.
func TestTheExamplesSurvive(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "..", "examples", "*", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the examples: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		expect.NoError(t, err)
		for _, part := range manifests.Split(content) {
			if part.IsEmpty() {
				continue
			}
			got := rewrite(t, part.Body, string(parse(t, part.Body).JSON()), same)
			expect.Equal(t, file, part.Body, got)
		}
	}
}
