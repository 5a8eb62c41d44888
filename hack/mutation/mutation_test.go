// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `package sample

func Sum(numbers ...int) int {
	total := 0
	for _, n := range numbers {
		total += n
	}
	return total
}

type sized struct{}

func kind(n int) string {
	switch {
	case n > 0 && n < 10:
		return "small"
	default:
		return "other"
	}
}

func (sized) one(_ int) int { return 1 }

func Kinds() []string { return []string{kind(Sum(1, 2)), kind(0)} }
`

// writeModule writes a module of one package with a test and returns its folder.
func writeModule(t *testing.T, test string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":         "module example.org/sample\n\ngo 1.26\n",
		"net.yaml":       "[{name: sample, change: [.]}]",
		"sample.go":      sample,
		"sample_test.go": "package sample\n\nimport \"testing\"\n\nfunc TestKinds(t *testing.T) {\n" + test + "\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAWeakTestLetsMutantsSurvive(t *testing.T) {
	t.Chdir(writeModule(t, `if len(Kinds()) != 2 { t.Error("not two") }`))
	var out bytes.Buffer
	err := run(t.Context(), []string{"-net", "net.yaml"}, &out)
	if err == nil || !strings.Contains(err.Error(), "no test notices") {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{
		"sample.go:5: survived: sample.go: Sum: statement: for _, n := range numbers { total += n }\n",
		`sample.go:15: survived: sample.go: kind: operand: n > 0 && n < 10 -> n > 0` + "\n",
		`sample.go:16: survived: sample.go: kind: result: "small" of return "small" -> ""` + "\n",
		"sample.go:24: survived: sample.go: Kinds: argument: 2 of Sum(1, 2)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "member:") {
		t.Errorf("a member that a test counts has survived:\n%s", &out)
	}
}

func TestAStrongTestKillsAllButTheListed(t *testing.T) {
	dir := writeModule(t, `
	if got := Kinds(); got[0] != "small" || got[1] != "other" || kind(10) != "other" || kind(9) != "small" { t.Error(got) }
	if (sized{}).one(5) != 1 || Sum(1, 2) != 3 || len(Kinds()) != 2 { t.Error("wrong sum") }`)
	t.Chdir(dir)
	list := filepath.Join(dir, "equivalent.txt")
	args := []string{"-net", "net.yaml", "-equivalent", list}
	// The kind of 1 is that of 3.
	const equivalent = "sample.go: Kinds: argument: 1 of Sum(1, 2)\nsample.go: Kinds: argument: 2 of Sum(1, 2)\n"
	if err := os.WriteFile(list, []byte("# a comment\n"+equivalent), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), args, &out); err != nil {
		t.Errorf("%v:\n%s", err, &out)
	}
	if err := os.WriteFile(list, []byte(equivalent+"sample.go: Sum: result: total of return total -> 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), args, &out); err == nil || !strings.Contains(err.Error(), "total of return total") {
		t.Errorf("a mutant that is listed and killed is not told: %v", err)
	}
}

func TestTestsThatFailWithoutAChangeShowNothing(t *testing.T) {
	t.Chdir(writeModule(t, `t.Error("broken")`))
	err := run(t.Context(), []string{"-net", "net.yaml"}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "does not pass on the code as it is") {
		t.Errorf("got %v", err)
	}
}

func TestARecordOnlyFalls(t *testing.T) {
	const weak, strong = `if len(Kinds()) != 2 { t.Error("not two") }`, `if got := Kinds(); got[0] != "small" || len(got) != 2 { t.Error(got) }`
	record := filepath.Join(t.TempDir(), "record.txt")
	try := func(test string) (string, error) {
		t.Chdir(writeModule(t, test))
		err := run(t.Context(), []string{"-net", "net.yaml", "-record", record}, &bytes.Buffer{})
		content, _ := os.ReadFile(record)
		return string(content), err
	}
	first, err := try(weak)
	if err != nil || !strings.Contains(first, "sample sample.go ") {
		t.Fatalf("got %v and record %q", err, first)
	}
	second, err := try(strong)
	if err != nil || second == first {
		t.Errorf("got %v and record %q of a better test", err, second)
	}
	if third, err := try(weak); err == nil || !strings.Contains(err.Error(), "more than the") || third != second {
		t.Errorf("got %v and record %q of a worse test", err, third)
	}
}
