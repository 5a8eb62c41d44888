// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	original    = "README.md"
	translation = "README.zh.md"
)

// TestTheTranslationHasTheCommandsAndLinksOfTheReadme finds what was changed in one of them only.
func TestTheTranslationHasTheCommandsAndLinksOfTheReadme(t *testing.T) {
	if diff := cmp.Diff(codeOf(t, original), codeOf(t, translation)); diff != "" {
		t.Errorf("blocks of code (-%s +%s):\n%s", original, translation, diff)
	}
	if diff := cmp.Diff(partsOf(t, original), partsOf(t, translation)); diff != "" {
		t.Errorf("links, images, code and headings (-%s +%s):\n%s", original, translation, diff)
	}
}

func codeOf(t *testing.T, page string) []Block {
	t.Helper()
	var found []Block
	for _, block := range blocksOf(t, page) {
		found = append(found, Block{Language: block.Language, Text: block.Text, Run: block.Run})
	}
	if len(found) < 5 {
		t.Fatalf("%s has %d blocks of code: is it read at all?", page, len(found))
	}
	return found
}

// partsOf returns what a translation keeps of a page: headings and items as their kind,
// targets of links and images, and words in code font, sorted.
func partsOf(t *testing.T, page string) []string {
	t.Helper()
	source := []byte(read(t, page))
	var found []string
	err := ast.Walk(goldmark.DefaultParser().Parse(text.NewReader(source)), func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Heading:
			found = append(found, strings.Repeat("#", node.Level))
		case *ast.Image:
			found = append(found, "image "+string(node.Destination))
		case *ast.Link:
			// Each page links to the other.
			if target := string(node.Destination); target != original && target != translation {
				found = append(found, "link "+target)
			}
		case *ast.ListItem:
			found = append(found, "item")
		case *ast.CodeSpan:
			var span strings.Builder
			for part := node.FirstChild(); part != nil; part = part.NextSibling() {
				if segment, isText := part.(*ast.Text); isText {
					span.Write(segment.Segment.Value(source))
				}
			}
			found = append(found, "code "+span.String())
		}
		return ast.WalkContinue, nil
	})
	expect.NoError(t, err)
	slices.Sort(found)
	return found
}
