// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package markdown parses pages as GitHub does and renders them as HTML.
package markdown

import (
	"bytes"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Page is a parsed Markdown file.
type Page struct {
	// Path is the path of the file, relative to the repository, with slashes.
	Path string
	// Title is the text of the first heading of level 1.
	Title string
	// Headings are all headings in order.
	Headings []Heading
	// Links are the links and images, including those in HTML.
	Links []Link
	// Anchors are the ids that a link to the page can use.
	Anchors map[string]bool

	source []byte
	root   ast.Node
}

// Heading is a heading of a page.
type Heading struct {
	Level int
	// ID is the anchor that GitHub gives it.
	ID   string
	Text string
}

// Link is a link or an image of a page.
type Link struct {
	// Destination is the unresolved destination of the link.
	Destination string
	// Line is the line of the link, counted from 1; 0 if unknown.
	Line int
	// IsImage is set for images.
	IsImage bool
}

// Section is a heading with the text up to the next heading.
type Section struct {
	Heading
	// Body is the text without markup.
	Body string
}

// Parse parses a page. Headings get the anchors that GitHub gives them.
func Parse(path string, source []byte) *Page {
	page := &Page{
		Path:    path,
		Anchors: map[string]bool{},
		source:  source,
		root:    newMarkdown().Parser().Parse(text.NewReader(source)),
	}
	taken := slugs{}
	page.each(func(node ast.Node) {
		switch node := node.(type) {
		case *ast.Heading:
			page.addHeading(node, taken)
		case *ast.Link:
			page.addLink(node, string(node.Destination), false)
		case *ast.Image:
			page.addLink(node, string(node.Destination), true)
		case *ast.AutoLink:
			page.addLink(node, autoLinked(node, source), false)
		case *ast.HTMLBlock:
			page.addHTML(linesOf(node, source), page.lineOf(node))
		case *ast.RawHTML:
			page.addHTML(string(node.Segments.Value(source)), page.lineOf(node))
		}
	})
	return page
}

func newMarkdown() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.GFM),
		goldmark.WithRendererOptions(
			html.WithUnsafe(), // The pages are our own.
			renderer.WithNodeRenderers(util.Prioritized(codeRenderer{}, 100)),
		),
	)
}

// each calls visit for each node, parents first.
func (p *Page) each(visit func(node ast.Node)) {
	// Walk only returns the errors of its function, which returns none.
	_ = ast.Walk(p.root, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(node)
		}
		return ast.WalkContinue, nil
	})
}

func (p *Page) addHeading(node *ast.Heading, taken slugs) {
	heading := Heading{Level: node.Level, Text: p.textOf(node)}
	heading.ID = taken.next(heading.Text)
	node.SetAttributeString("id", []byte(heading.ID))
	p.Headings = append(p.Headings, heading)
	p.Anchors[heading.ID] = true
	if node.Level == 1 && p.Title == "" {
		p.Title = heading.Text
	}
}

func (p *Page) addLink(node ast.Node, destination string, isImage bool) {
	p.Links = append(p.Links, Link{Destination: destination, Line: p.lineOf(node), IsImage: isImage})
}

// addHTML adds the links and anchors of HTML within a page.
func (p *Page) addHTML(source string, line int) {
	found := ReadHTML(strings.NewReader(source))
	for _, link := range found.Links {
		p.Links = append(p.Links, Link{Destination: link.Destination, Line: line, IsImage: link.IsImage})
	}
	for id := range found.Anchors {
		p.Anchors[id] = true
	}
}

func autoLinked(node *ast.AutoLink, source []byte) string {
	address := string(node.URL(source))
	if node.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(address, "mailto:") {
		return "mailto:" + address
	}
	return address
}

// textOf returns a node's text without markup.
func (p *Page) textOf(node ast.Node) string {
	var b strings.Builder
	p.writeText(&b, node)
	return strings.TrimSpace(b.String())
}

func (p *Page) writeText(b *strings.Builder, node ast.Node) {
	switch node := node.(type) {
	case *ast.Text:
		b.Write(node.Segment.Value(p.source))
		if node.SoftLineBreak() || node.HardLineBreak() {
			b.WriteByte(' ')
		}
		return
	case *ast.String:
		b.Write(node.Value)
		return
	case *ast.AutoLink:
		b.Write(node.Label(p.source))
		return
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		b.WriteString(linesOf(node, p.source))
		return
	}
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		p.writeText(b, child)
		if child.Type() == ast.TypeBlock {
			b.WriteByte(' ')
		}
	}
}

func linesOf(node ast.Node, source []byte) string {
	return string(node.Lines().Value(source))
}

// lineOf returns the line of the first text in or above a node.
func (p *Page) lineOf(node ast.Node) int {
	for ; node != nil; node = node.Parent() {
		if start, found := startOf(node); found {
			return 1 + bytes.Count(p.source[:start], []byte("\n"))
		}
	}
	return 0
}

func startOf(node ast.Node) (int, bool) {
	if text, isText := node.(*ast.Text); isText {
		return text.Segment.Start, true
	}
	if node.Type() == ast.TypeBlock && node.Lines().Len() > 0 {
		return node.Lines().At(0).Start, true
	}
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if start, found := startOf(child); found {
			return start, true
		}
	}
	return 0, false
}

// Sections returns the page's text by heading.
func (p *Page) Sections() []Section {
	var sections []Section
	next := 0
	for node := p.root.FirstChild(); node != nil; node = node.NextSibling() {
		if node.Kind() == ast.KindHeading {
			sections = append(sections, Section{Heading: p.Headings[next]})
			next++
			continue
		}
		if len(sections) == 0 {
			sections = append(sections, Section{Heading: Heading{Level: 1, Text: p.Title}})
		}
		last := &sections[len(sections)-1]
		last.Body = strings.TrimSpace(last.Body + " " + p.textOf(node))
	}
	return sections
}

// List is a list of links below a heading.
type List struct {
	Heading Heading
	// Items are the first links of the list's items.
	Items []Item
}

// Item is a link with its text.
type Item struct {
	Text, Destination string
}

// Lists returns the lists of the page with their headings.
func (p *Page) Lists() []List {
	var lists []List
	headings := p.Headings
	var above Heading
	for node := p.root.FirstChild(); node != nil; node = node.NextSibling() {
		switch node := node.(type) {
		case *ast.Heading:
			above, headings = headings[0], headings[1:]
		case *ast.List:
			lists = append(lists, List{Heading: above, Items: p.itemsOf(node)})
		}
	}
	return lists
}

func (p *Page) itemsOf(list *ast.List) []Item {
	var items []Item
	for node := list.FirstChild(); node != nil; node = node.NextSibling() {
		block := node.FirstChild()
		if block == nil {
			continue
		}
		if link, isLink := block.FirstChild().(*ast.Link); isLink {
			items = append(items, Item{Text: p.textOf(link), Destination: string(link.Destination)})
		}
	}
	return items
}
