// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package markdown_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/hack/site/internal/markdown"
)

func TestHeadingsHaveTheAnchorsOfGitHub(t *testing.T) {
	t.Parallel()
	page := markdown.Parse("a.md", []byte(strings.Join([]string{
		"# The two versions: a job's", "## `extended` in v1alpha1", "## diengine.opendilab.org/v1alpha1",
		"## Same", "## Same", "## snake_case, and [a link](b.md)", "## Größe",
	}, "\n\n")))
	var got []string
	for _, heading := range page.Headings {
		got = append(got, heading.ID)
	}
	want := []string{
		"the-two-versions-a-jobs", "extended-in-v1alpha1", "diengineopendilaborgv1alpha1",
		"same", "same-1", "snake_case-and-a-link", "größe",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("anchors (-want +got):\n%s", diff)
	}
	if want := "The two versions: a job's"; page.Title != want {
		t.Errorf("got title %q, want %q", page.Title, want)
	}
}

func TestLinksAreFoundWhereverTheyStand(t *testing.T) {
	t.Parallel()
	page := markdown.Parse("a.md", []byte(`# A

[inline](b.md#x), [reference][r] and <https://example.com/auto>.

| table |
| --- |
| ![picture](c.svg) |

<p id="own"><a href="d.md">html</a></p>

`+"`[code](no.md)`"+`

    [indented](no.md)

[r]: e.md
`))
	want := []markdown.Link{
		{Destination: "b.md#x", Line: 3},
		{Destination: "e.md", Line: 3},
		{Destination: "https://example.com/auto", Line: 3},
		{Destination: "c.svg", Line: 7, IsImage: true},
		{Destination: "d.md", Line: 9},
	}
	if diff := cmp.Diff(want, page.Links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if !page.Anchors["own"] {
		t.Errorf("got anchors %v, want one of the HTML in the page", page.Anchors)
	}
}

func TestSectionsHoldTheTextWithoutMarkup(t *testing.T) {
	t.Parallel()
	page := markdown.Parse("a.md", []byte("# A\n\nSome *text*\nof `code`.\n\n## B\n\n- one\n- [two](b.md)\n\n```sh\nmake test\n```\n"))
	var got []string
	for _, section := range page.Sections() {
		got = append(got, section.ID+": "+strings.Join(strings.Fields(section.Body), " "))
	}
	if diff := cmp.Diff([]string{"a: Some text of code.", "b: one two make test"}, got); diff != "" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
}

func TestPagesAreRenderedWithLinksRewritten(t *testing.T) {
	t.Parallel()
	page := markdown.Parse("a.md", []byte("# A\n\n## B\n\n[b](b.md)\n\n```yaml\nkind: DIJob\n```\n"))
	got, err := page.Render(func(link markdown.Link) (string, error) {
		return strings.TrimSuffix(link.Destination, ".md") + ".html", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<h1 id="a">A</h1>`, `<a href="b.html">b</a>`, `<a href="#b" class="permalink"`, `<span class="nt">kind</span>`} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant it to have %s", got, want)
		}
	}
}

func TestAPageWithALinkThatCannotBeRewrittenIsNotRendered(t *testing.T) {
	t.Parallel()
	refusal := errors.New("no such page")
	page := markdown.Parse("a.md", []byte("[b](b.md)\n"))
	if _, err := page.Render(func(markdown.Link) (string, error) { return "", refusal }); !errors.Is(err, refusal) {
		t.Errorf("got %v, want %v", err, refusal)
	}
}

func TestBadgesAreNotRendered(t *testing.T) {
	t.Parallel()
	page := markdown.Parse("a.md", []byte("# A\n\n<p>\n<a href=\"LICENSE\"><img src=\"https://example.com/x\"></a>\n</p>\n\nText\n"))
	got, err := page.Render(func(link markdown.Link) (string, error) { return link.Destination, nil })
	if err != nil || strings.Contains(got, "example.com") || !strings.Contains(got, "Text") {
		t.Errorf("got %q, %v, want the text without the picture", got, err)
	}
}
