// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/internal/testkit"
)

// The counts of words that were given up, and the lengths of sentences, may only
// fall. -update lowers what is recorded and never raises it.
var update = flag.Bool("update", false, "lower the recorded counts in testdata to those of the tree")

const (
	// wantMedian and wantLong are the targets for the words of a sentence: the median and the 90th percentile.
	wantMedian, wantLong = 14, 25
	// glossary has the list of words.
	glossary = "docs/glossary.md"
	// medianKey and longKey are the rows of the record of sentences.
	medianKey, longKey = "median", "90th percentile"
	// examples is how many places of a word a failure names.
	examples = 5
)

func TestWordsThatWereGivenUpGetFewer(t *testing.T) {
	record := readRecord(t, "words.txt")
	texts := tree(t)
	for _, row := range givenUp(t) {
		found, places := 0, []string{}
		for _, text := range texts {
			if hits := row.pattern.FindAllString(text.words, -1); len(hits) > 0 {
				found += len(hits)
				places = append(places, fmt.Sprintf("%s: %q", text.path, hits[0]))
			}
		}
		if problem := record.compare(row.key, found, 0); problem != "" {
			t.Errorf("%q: %s; write %s. Found in %s", row.key, problem, row.instead, strings.Join(places[:min(examples, len(places))], ", "))
		}
	}
	record.finish(t)
}

func TestSentencesGetShorter(t *testing.T) {
	record := readRecord(t, "sentences.txt")
	var lengths []int
	for _, page := range guides(t) {
		here := Sentences(read(t, page))
		lengths = append(lengths, here...)
		slices.Sort(here)
		if len(here) > 0 {
			t.Logf("%-30s %4d sentences, median %d, 90th percentile %d words", page, len(here), here[len(here)/2], here[len(here)*9/10])
		}
	}
	slices.Sort(lengths)
	if len(lengths) < 500 {
		t.Fatalf("%d sentences were found: are the pages read at all?", len(lengths))
	}
	for _, measure := range []struct {
		key        string
		got, aimed int
	}{{medianKey, lengths[len(lengths)/2], wantMedian}, {longKey, lengths[len(lengths)*9/10], wantLong}} {
		if problem := record.compare(measure.key, measure.got, measure.aimed); problem != "" {
			t.Errorf("words of a sentence, %s: %s", measure.key, problem)
		}
	}
	record.finish(t)
}

func TestSentencesAreMeasuredWithoutCodeAndTables(t *testing.T) {
	const page = "# A heading is none\n\nOne two three. Four\n`x y z` six.\n\n| a | table |\n\n```\nsome code. And more.\n```\n- an item\n- [a link](to/somewhere.md) here: yes\n"
	if got, want := Sentences(page), []int{3, 3, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("sentences of %v words, want %v", got, want)
	}
}

func TestTheGlossaryNamesPlacesThatExist(t *testing.T) {
	place := regexp.MustCompile("`((?:apis|cmd|controllers|conversion|docs|internal|server|webhook)(?:/[A-Za-z0-9_./-]+)?)` \\|\n")
	found := place.FindAllStringSubmatch(read(t, glossary), -1)
	for _, match := range found {
		if _, err := os.Stat(filepath.Join(testkit.Root(), match[1])); err != nil {
			t.Errorf("%s: %v", glossary, err)
		}
	}
	if len(found) < 40 {
		t.Errorf("%d places were found: is the table read at all?", len(found))
	}
}

// word is a row of the glossary's table of words that were given up.
type word struct {
	key, instead string
	pattern      *regexp.Regexp
}

func givenUp(t *testing.T) []word {
	t.Helper()
	_, after, _ := strings.Cut(read(t, glossary), "## Words given up")
	var words []word
	for line := range strings.Lines(after) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.Contains(line, "---") || strings.Contains(line, "do not write") {
			continue
		}
		key := strings.TrimSpace(cells[1])
		var forms []string
		for form := range strings.SplitSeq(key, ",") {
			forms = append(forms, strings.Join(strings.Fields(regexp.QuoteMeta(strings.TrimSpace(form))), `\s+`))
		}
		words = append(words, word{key, strings.TrimSpace(cells[2]), regexp.MustCompile(`(?i)\b(?:` + strings.Join(forms, "|") + `)\b`)})
	}
	if len(words) < 20 {
		t.Fatalf("%s lists %d words: is the table read at all?", glossary, len(words))
	}
	return words
}

// source is the text of a file: comments and strings of Go, prose and tables of a page.
type source struct{ path, words string }

func tree(t *testing.T) []source {
	t.Helper()
	var found []source
	root := testkit.Root()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && name != "." || entry.Name() == "out" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		switch {
		case filepath.Ext(path) == ".go" && !strings.HasPrefix(entry.Name(), "zz_generated"):
			found = append(found, source{name, textOfGo(read(t, name))})
		case filepath.Ext(path) == ".md" && filepath.ToSlash(name) != glossary:
			found = append(found, source{name, withoutCode(read(t, name))})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// textOfGo returns the comments and string literals of a file. Lines of one comment are joined.
func textOfGo(file string) string {
	var text strings.Builder
	var scan scanner.Scanner
	set := token.NewFileSet()
	scan.Init(set.AddFile("", set.Base(), len(file)), []byte(file), nil, scanner.ScanComments)
	last := token.EOF
	for {
		_, kind, literal := scan.Scan()
		if kind == token.EOF {
			return text.String()
		}
		if kind == token.COMMENT || kind == token.STRING {
			if kind != token.COMMENT || last != token.COMMENT {
				text.WriteString("\n. ")
			}
			text.WriteString(strings.TrimPrefix(literal, "//") + " ")
		}
		last = kind
	}
}

func withoutCode(page string) string {
	return regexp.MustCompile("`[^`]*`").ReplaceAllString(withoutBlocks(page), "")
}

// guides are the pages whose sentences are measured.
func guides(t *testing.T) []string {
	t.Helper()
	pages := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	inDocs, err := filepath.Glob(filepath.Join(testkit.Root(), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range inDocs {
		pages = append(pages, "docs/"+filepath.Base(page))
	}
	return pages
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(testkit.Root(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// ratchet is a record of numbers that may only fall.
type ratchet struct {
	path     string
	recorded map[string]int
	next     []string
	seen     map[string]bool
}

func readRecord(t *testing.T, name string) *ratchet {
	t.Helper()
	r := &ratchet{path: filepath.Join("testdata", name), recorded: map[string]int{}, seen: map[string]bool{}}
	raw, err := os.ReadFile(r.path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		count, key, found := strings.Cut(strings.TrimSpace(line), "\t")
		number, err := strconv.Atoi(count)
		if !found || err != nil {
			t.Fatalf("%s: %q: want a number, a tab and a word", r.path, line)
		}
		r.recorded[key] = number
	}
	return r
}

// compare returns why a number does not fit its record, "" if it does. Below aimed any number does.
func (r *ratchet) compare(key string, got, aimed int) string {
	r.seen[key] = true
	recorded, known := r.recorded[key]
	got = max(got, aimed)
	if *update {
		if !known {
			recorded = got
		}
		recorded = min(recorded, got)
		known = true
	}
	r.next = append(r.next, fmt.Sprintf("%d\t%s\n", recorded, key))
	switch {
	case !known:
		return "it is not recorded; run go test ./test/docs -update"
	case got > recorded:
		return fmt.Sprintf("%d, want at most %d", got, recorded)
	}
	return ""
}

func (r *ratchet) finish(t *testing.T) {
	t.Helper()
	for key := range r.recorded {
		if !r.seen[key] && !*update {
			t.Errorf("%s: nothing counts %q", r.path, key)
		}
	}
	if *update {
		if err := os.WriteFile(r.path, []byte(strings.Join(r.next, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
