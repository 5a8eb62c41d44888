// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// The counts of words that were given up may only fall. -update lowers what is
// recorded and never raises it.
var update = flag.Bool("update", false, "lower the recorded counts in testdata to those of the tree")

const (
	// maxMedian and maxLong limit the words of a page's sentences: the median and the 90th percentile.
	maxMedian, maxLong = 14, 25
	// glossary has the terms, and list the words that were given up.
	glossary = "docs/glossary.md"
	list     = "test/docs/testdata/givenup.md"
	// record has the counts.
	record = "testdata/words.txt"
	// examples is how many places of a word a failure names.
	examples = 5
)

func TestWordsThatWereGivenUpGetFewer(t *testing.T) {
	recorded := readRecord(t)
	texts := tree(t)
	var next strings.Builder
	for _, row := range givenUp(t) {
		found, places := 0, []string{}
		for _, text := range texts {
			hits := row.pattern.FindAllString(text.words, -1)
			if len(hits) == 0 {
				continue
			}
			if text.isGuide {
				t.Errorf("%s: %q; write %s", text.path, hits[0], row.instead)
				continue
			}
			found += len(hits)
			places = append(places, fmt.Sprintf("%s: %q", text.path, hits[0]))
		}
		most, isKnown := recorded[row.key]
		delete(recorded, row.key)
		if *update && (!isKnown || found < most) {
			most, isKnown = found, true
		}
		if !isKnown || found > most {
			t.Errorf("%q: %d, want at most %d; write %s. Found in %s", row.key, found, most, row.instead, strings.Join(places[:min(examples, len(places))], ", "))
		}
		fmt.Fprintf(&next, "%d\t%s\n", most, row.key)
	}
	if *update {
		if err := os.WriteFile(record, []byte(next.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if len(recorded) > 0 {
		t.Errorf("%s: nothing counts %v", record, slices.Sorted(maps.Keys(recorded)))
	}
}

func TestSentencesOfEveryPageAreShort(t *testing.T) {
	pages := guides(t)
	for _, page := range pages {
		lengths := Sentences(read(t, page))
		slices.Sort(lengths)
		if len(lengths) == 0 {
			t.Errorf("%s: no sentence was found", page)
			continue
		}
		if median, long := lengths[len(lengths)/2], lengths[len(lengths)*9/10]; median > maxMedian || long > maxLong {
			t.Errorf("%s: words of a sentence: median %d, 90th percentile %d, want at most %d and %d", page, median, long, maxMedian, maxLong)
		}
	}
	if len(pages) < 30 {
		t.Errorf("%d pages were found: are they read at all?", len(pages))
	}
}

func TestSentencesAreMeasuredWithoutCodeAndTables(t *testing.T) {
	const page = "# A heading is none\n\nOne two three. Four\n`x y z` six.\n\n| a | table |\n\n```\nsome code. And more.\n```\n- an item\n- [a link](to/somewhere.md) here: yes\n"
	if got, want := Sentences(page), []int{3, 3, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("sentences of %v words, want %v", got, want)
	}
}

func TestTheGlossaryNamesPlacesThatExist(t *testing.T) {
	place := regexp.MustCompile("`((?:apis|cmd|controllers|conversion|docs|internal|job|server|sim|upgrade|webhook)(?:/[A-Za-z0-9_./-]+)?)` \\|\n")
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

// word is a row of the table of words that were given up.
type word struct {
	key, instead string
	pattern      *regexp.Regexp
}

func givenUp(t *testing.T) []word {
	t.Helper()
	var words []word
	for line := range strings.Lines(read(t, list)) {
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
		t.Fatalf("%s lists %d words: is the table read at all?", list, len(words))
	}
	return words
}

// source is the text of a file: comments and strings of Go, prose and tables of a page.
type source struct {
	path, words string
	// isGuide is set for what users read. It has none of the words.
	isGuide bool
}

func tree(t *testing.T) []source {
	t.Helper()
	var found []source
	root := testkit.Root()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && name != "." || entry.Name() == "out" || entry.Name() == "node_modules" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		switch {
		case filepath.Ext(path) == ".go" && !strings.HasPrefix(entry.Name(), "zz_generated"):
			found = append(found, source{name, textOfGo(read(t, name)), false})
		case filepath.Ext(path) == ".md":
			found = append(found, source{name, withoutCode(read(t, name)), isGuide(filepath.ToSlash(name))})
		}
		return nil
	})
	expect.NoError(t, err)
	return found
}

// isGuide reports whether a page has none of the words. In records of decisions they are counted.
func isGuide(page string) bool { return !strings.HasPrefix(page, "docs/adr/") }

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
	expect.NoError(t, err)
	for _, page := range inDocs {
		pages = append(pages, "docs/"+filepath.Base(page))
	}
	return pages
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(testkit.Root(), name))
	expect.NoError(t, err)
	return string(raw)
}

// readRecord returns the recorded count of each row.
func readRecord(t *testing.T) map[string]int {
	t.Helper()
	recorded := map[string]int{}
	raw, err := os.ReadFile(record)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		count, key, found := strings.Cut(strings.TrimSpace(line), "\t")
		number, err := strconv.Atoi(count)
		if !found || err != nil {
			t.Fatalf("%s: %q: want a number, a tab and a word", record, line)
		}
		recorded[key] = number
	}
	return recorded
}
