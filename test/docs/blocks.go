// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the docs: commands, messages, tables and words.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// Block is a block of code of a page.
type Block struct {
	// Page is the page, relative to the root of the checkout, and Line the first
	// line of the block's content.
	Page string
	Line int
	// Language is the language of the block; empty if the page names none.
	Language string
	// Text is its content.
	Text string
	// Run is the name in the comment <!-- run: NAME --> before the block; empty for
	// none. Tests run the blocks of a name in their order.
	Run string
}

// Blocks returns the blocks of code of a page, relative to the root.
func Blocks(root, page string) ([]*Block, error) {
	source, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	var found []*Block
	document := goldmark.DefaultParser().Parse(text.NewReader(source))
	err = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		isCode := node.Kind() == ast.KindFencedCodeBlock || node.Kind() == ast.KindCodeBlock
		if entering && isCode && node.Lines().Len() > 0 {
			found = append(found, newBlock(page, source, node))
		}
		return ast.WalkContinue, nil
	})
	return found, err
}

func newBlock(page string, source []byte, node ast.Node) *Block {
	block := &Block{
		Page: page,
		Line: 1 + strings.Count(string(source[:node.Lines().At(0).Start]), "\n"),
		Text: string(node.Lines().Value(source)),
		Run:  mark(source, node.PreviousSibling()),
	}
	if fenced, isFenced := node.(*ast.FencedCodeBlock); isFenced {
		block.Language = string(fenced.Language(source))
	}
	return block
}

// mark returns the name in the comment before a block.
func mark(source []byte, before ast.Node) string {
	if before == nil || before.Kind() != ast.KindHTMLBlock {
		return ""
	}
	found := regexp.MustCompile(`<!-- run: ([a-z-]+) -->`).FindSubmatch(before.Lines().Value(source))
	if found == nil {
		return ""
	}
	return string(found[1])
}
