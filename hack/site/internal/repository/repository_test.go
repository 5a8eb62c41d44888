// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package repository_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/hack/site/internal/repository"
)

func read(t *testing.T, files map[string]string) *repository.Repository {
	t.Helper()
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	found, err := repository.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLinksThatLeadSomewherePass(t *testing.T) {
	t.Parallel()
	found := read(t, map[string]string{
		"README.md":       "# A\n[b](docs/b.md#the-end) [c](docs/c.yaml) [folder](docs/) [own](#a) <https://example.com> [mail](mailto:a@example.com)",
		"docs/b.md":       "# B\n## The end\n[up](../README.md#a)\n",
		"docs/c.yaml":     "",
		"out/gone.md":     "[gone](nowhere.md)",
		".git/gone.md":    "[gone](nowhere.md)",
		"x/testdata/a.md": "[gone](nowhere.md)",
	})
	if err := found.Check(); err != nil {
		t.Error(err)
	}
}

func TestLinksThatLeadNowhereAreNamedWithTheirPlace(t *testing.T) {
	t.Parallel()
	for link, want := range map[string]string{
		"[x](nowhere.md)":         `"nowhere.md" leads to docs/nowhere.md, which is not there`,
		"![x](nowhere.svg)":       `"nowhere.svg" leads to docs/nowhere.svg, which is not there`,
		"[x](#nowhere)":           `"#nowhere" names an anchor that docs/a.md has not`,
		"[x](b.md#nowhere)":       `"b.md#nowhere" names an anchor that docs/b.md has not`,
		"[x](b.md#B)":             `"b.md#B" names an anchor that docs/b.md has not`,
		"[x](c.yaml#L1)":          `"c.yaml#L1" names an anchor in docs/c.yaml, which is no Markdown`,
		"[x](/docs/b.md)":         `"/docs/b.md" leads to the root of the site that shows it; write it relative to the page`,
		"[x](../../b.md)":         `"../../b.md" leads to ../b.md, which is not there`,
		"[x](https://)":           `"https:" names no host`,
		"[x](htps://example.com)": `"htps://example.com" has scheme "htps"; write https, http or mailto`,
		"[x](mailto:nobody)":      `"mailto:nobody" names no mailbox`,
		`<a href="nowhere.md">`:   `"nowhere.md" leads to docs/nowhere.md, which is not there`,
	} {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			found := read(t, map[string]string{"docs/a.md": "# A\n\ntext " + link + "\n", "docs/b.md": "# B\n", "docs/c.yaml": ""})
			err := found.Check()
			if diff := cmp.Diff("docs/a.md:3: "+want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func theRepository(t *testing.T) *repository.Repository {
	t.Helper()
	found, err := repository.Read(os.DirFS("../../../.."))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAllLinksOfThisRepositoryLeadSomewhere(t *testing.T) {
	t.Parallel()
	if err := theRepository(t).Check(); err != nil {
		t.Error(err)
	}
}

func TestEveryPageOfTheDocsHasATitleAndIsFoundFromTheIndex(t *testing.T) {
	t.Parallel()
	found := theRepository(t)
	reached := map[string]bool{}
	reach(t, found, "docs/README.md", reached)
	for name, page := range found.Pages {
		if !strings.HasPrefix(name, "docs/") {
			continue
		}
		if page.Title == "" {
			t.Errorf("%s has no heading of level 1", name)
		}
		if !reached[name] {
			t.Errorf("%s is linked to neither by docs/README.md nor by the README.md of its folder; list it there", name)
		}
	}
}

// reach follows the links of an index and of the indices that it links to.
func reach(t *testing.T, found *repository.Repository, index string, reached map[string]bool) {
	t.Helper()
	reached[index] = true
	for _, link := range found.Pages[index].Links {
		target, err := found.Resolve(found.Pages[index], link)
		if err != nil || target.External || reached[target.Path] {
			continue
		}
		reached[target.Path] = true
		if path.Base(target.Path) == "README.md" && strings.HasPrefix(target.Path, "docs/") {
			reach(t, found, target.Path, reached)
		}
	}
}

func TestEveryDiagramIsShown(t *testing.T) {
	t.Parallel()
	found := theRepository(t)
	// Catalogs of charts show the icon.
	shown := []string{"docs/images/icon.svg"}
	for _, page := range found.Pages {
		for _, link := range page.Links {
			if target, err := found.Resolve(page, link); err == nil && link.IsImage {
				shown = append(shown, target.Path)
			}
		}
	}
	pictures, err := os.ReadDir("../../../../docs/images")
	if err != nil {
		t.Fatal(err)
	}
	for _, picture := range pictures {
		if name := "docs/images/" + picture.Name(); path.Ext(name) == ".svg" && !slices.Contains(shown, name) {
			t.Errorf("no page shows %s", name)
		}
	}
}
