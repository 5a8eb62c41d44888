// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/hack/site/internal/repository"
	"opendilab.org/di-orchestrator/hack/site/internal/site"
)

const source = "https://example.com/project"

func build(t *testing.T, files map[string]string) (map[string][]byte, error) {
	t.Helper()
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	read, err := repository.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	return (&site.Builder{Source: read, SourceURL: source}).Build()
}

// small returns a repository of a few pages.
func small() map[string]string {
	return map[string]string{
		"README.md": "# Project\n[concepts](docs/concepts.md#the-parts) [code](main.go) [all](docs/) [folder](hack)\n",
		"main.go":   "",
		"docs/README.md": "# Documentation\n## Learn\n- [Concepts](concepts.md): what is what\n" +
			"## Why\n- [Decisions](adr/README.md)\n- [Helping](../CONTRIBUTING.md)\n",
		"docs/concepts.md":      "# Concepts\nBefore.\n## The parts\n![parts](images/parts.svg) A *part* of it.\n",
		"docs/images/parts.svg": "<svg/>",
		"docs/adr/README.md":    "# Decisions\n[first](0001.md)\n",
		"docs/adr/0001.md":      "# First\n[back](README.md) [concepts](../concepts.md)\n",
		"CONTRIBUTING.md":       "# Contributing\n[start](README.md)\n",
		"hack/x.md":             "# Not listed\n",
	}
}

func TestTheSiteOfThisRepositoryIsWhole(t *testing.T) {
	t.Parallel()
	read, err := repository.Read(os.DirFS("../../../.."))
	if err != nil {
		t.Fatal(err)
	}
	files, err := (&site.Builder{Source: read, SourceURL: source}).Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := site.Check(files); err != nil {
		t.Error(err)
	}
}

func TestLinksLeadToPagesOfTheSiteElseToTheSource(t *testing.T) {
	t.Parallel()
	files, err := build(t, small())
	if err != nil {
		t.Fatal(err)
	}
	if err := site.Check(files); err != nil {
		t.Error(err)
	}
	for page, wanted := range map[string][]string{
		"index.html": {
			`<a href="concepts.html#the-parts">concepts</a>`, `<a href="docs.html">all</a>`,
			`<a href="https://example.com/project/blob/main/main.go">code</a>`,
			`<a href="https://example.com/project/tree/main/hack">folder</a>`,
		},
		"concepts.html":     {`<img src="images/parts.svg" alt="parts">`},
		"adr/0001.html":     {`<a href="../adr/index.html">back</a>`, `<a href="../concepts.html">concepts</a>`, `<link rel="stylesheet" href="../assets/site.css">`},
		"CONTRIBUTING.html": {`<a href="index.html">start</a>`},
	} {
		for _, want := range wanted {
			if !strings.Contains(string(files[page]), want) {
				t.Errorf("got of %s\n%s\nwant it to have %s", page, files[page], want)
			}
		}
	}
	if _, found := files["hack/x.html"]; found {
		t.Error("got a page that neither stands in docs nor is listed")
	}
}

func TestTheMenuIsTheIndexAndMarksTheCurrentPage(t *testing.T) {
	t.Parallel()
	files, err := build(t, small())
	if err != nil {
		t.Fatal(err)
	}
	_, menu, _ := strings.Cut(string(files["adr/0001.html"]), "<nav")
	menu, _, _ = strings.Cut(menu, "</nav>")
	var got []string
	for line := range strings.Lines(menu) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "<h2>") || strings.HasPrefix(line, "<li>") {
			got = append(got, line)
		}
	}
	want := []string{
		"<h2>Learn</h2>",
		`<li><a href="../concepts.html">Concepts</a></li>`,
		"<h2>Why</h2>",
		`<li><a href="../adr/index.html" aria-current="page">Decisions</a></li>`,
		`<li><a href="../CONTRIBUTING.html">Helping</a></li>`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("menu (-want +got):\n%s", diff)
	}
}

func TestASearchFindsSections(t *testing.T) {
	t.Parallel()
	files, err := build(t, small())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"id":"concepts.html","address":"concepts.html","page":"Concepts","heading":"Concepts","body":"Before."}`,
		`{"id":"concepts.html#the-parts","address":"concepts.html#the-parts","page":"Concepts","heading":"The parts","body":"parts A part of it."}`,
	} {
		if got := string(files["assets/search-index.js"]); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant it to have %s", got, want)
		}
	}
}

func TestWhatASearchFindsHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	odd := small()
	odd["docs/concepts.md"] = "Before the title.\n# Concepts\nx\n# Another title\n## The parts\n## Same\n## Same\n"
	files, err := build(t, odd)
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(files["assets/search-index.js"]), "=")
	var hits []struct{ ID string }
	if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimSpace(list), ";")), &hits); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, hit := range hits {
		if seen[hit.ID] {
			t.Errorf("two sections have the id %q", hit.ID)
		}
		seen[hit.ID] = true
	}
	if !seen["concepts.html"] || !seen["concepts.html#same-1"] {
		t.Errorf("got ids %v, want those of the page and of its last section among them", seen)
	}
}

func TestASiteWithALinkThatLeadsNowhereIsNotBuilt(t *testing.T) {
	t.Parallel()
	broken := small()
	broken["docs/concepts.md"] += "[gone](gone.md)\n"
	_, err := build(t, broken)
	want := `docs/concepts.md: "gone.md" leads to docs/gone.md, which is not there`
	if fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestWhatIsBrokenInASiteIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ page, want string }{
		"file":      {`<a href="gone.html">x</a>`, `a/b.html: "gone.html" leads to a/gone.html, which the site has not`},
		"picture":   {`<img src="../gone.svg">`, `a/b.html: "../gone.svg" leads to gone.svg, which the site has not`},
		"id":        {`<a href="#gone">x</a>`, `a/b.html: "#gone" names an id that a/b.html has not`},
		"twice":     {`<p id="x"><p id="x">`, `a/b.html: id "x" stands twice`},
		"elsewhere": {`<script src="https://example.com/x.js"></script>`, `a/b.html: "https://example.com/x.js" is fetched from elsewhere; put it into the site`},
		"nothing":   {`<a id="x" href="#x">x</a><a href="https://example.com">y</a>`, `<nil>`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := site.Check(map[string][]byte{"a/b.html": []byte(tc.page)})
			if diff := cmp.Diff(tc.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyASiteIsOverwritten(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "site")
	files, err := build(t, small())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := site.Write(files, folder); err != nil {
			t.Fatal(err)
		}
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := site.Write(files, other); err == nil {
		t.Error("got no error for a folder that holds something else")
	}
	if _, err := os.Stat(filepath.Join(other, "thesis.tex")); err != nil {
		t.Error(err)
	}
}
