// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// Render returns the page as HTML, with the destination of each link replaced by the result of
// rewrite. It must be called only once for a page.
func (p *Page) Render(rewrite func(Link) (string, error)) (string, error) {
	var failed error
	redirect := func(destination []byte, isImage bool) []byte {
		to, err := rewrite(Link{Destination: string(destination), IsImage: isImage})
		if err != nil && failed == nil {
			failed = err
		}
		return []byte(to)
	}
	p.each(func(node ast.Node) {
		switch node := node.(type) {
		case *ast.Link:
			node.Destination = redirect(node.Destination, false)
		case *ast.Image:
			node.Destination = redirect(node.Destination, true)
		}
	})
	if failed != nil {
		return "", failed
	}
	p.addPermalinks()
	p.removeBadges()
	var b bytes.Buffer
	if err := newMarkdown().Renderer().Render(&b, p.source, p.root); err != nil {
		return "", fmt.Errorf("rendering %s: %w", p.Path, err)
	}
	return b.String(), nil
}

// addPermalinks adds to each heading except the title a link to itself.
func (p *Page) addPermalinks() {
	var headings []*ast.Heading
	p.each(func(node ast.Node) {
		if heading, isHeading := node.(*ast.Heading); isHeading && heading.Level > 1 {
			headings = append(headings, heading)
		}
	})
	for _, heading := range headings {
		id, _ := heading.AttributeString("id")
		text, _ := id.([]byte)
		link := ast.NewLink()
		link.Destination = append([]byte("#"), text...)
		link.SetAttributeString("class", []byte("permalink"))
		link.SetAttributeString("aria-label", []byte("Link to this section"))
		link.AppendChild(link, ast.NewString([]byte("#")))
		heading.AppendChild(heading, link)
	}
}

// removeBadges removes blocks of HTML with pictures from elsewhere: a built page fetches nothing.
func (p *Page) removeBadges() {
	var badges []ast.Node
	p.each(func(node ast.Node) {
		if block, isBlock := node.(*ast.HTMLBlock); isBlock && strings.Contains(linesOf(block, p.source), `src="https://`) {
			badges = append(badges, block)
		}
	})
	for _, block := range badges {
		block.Parent().RemoveChild(block.Parent(), block)
	}
}

// codeRenderer highlights fenced code by its language.
type codeRenderer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (codeRenderer) RegisterFuncs(registerer renderer.NodeRendererFuncRegisterer) {
	registerer.Register(ast.KindFencedCodeBlock, renderCode)
}

func renderCode(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	block, isFenced := node.(*ast.FencedCodeBlock)
	if !entering || !isFenced {
		return ast.WalkSkipChildren, nil
	}
	language := string(block.Language(source))
	if err := highlight(w, language, linesOf(block, source)); err != nil {
		return ast.WalkStop, fmt.Errorf("colouring code of language %q: %w", language, err)
	}
	return ast.WalkSkipChildren, nil
}

func highlight(w io.Writer, language, code string) error {
	lexer := lexers.Get(language)
	if lexer == nil {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return err
	}
	return html.New(html.WithClasses(true)).Format(w, styles.Fallback, tokens)
}

// CodeStyles returns the CSS of highlighted code for light and dark mode.
func CodeStyles() (light, dark string, err error) {
	var day, night bytes.Buffer
	formatter := html.New(html.WithClasses(true))
	if err := formatter.WriteCSS(&day, styles.Get("github")); err != nil {
		return "", "", err
	}
	if err := formatter.WriteCSS(&night, styles.Get("github-dark")); err != nil {
		return "", "", err
	}
	return day.String(), night.String(), nil
}
