// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Document is a document of YAML as a tree that remembers how it is written.
type Document struct {
	node *yaml.Node
	json []byte
	read reader
	// windows says that lines end as Windows has it.
	windows bool
}

// Parse reads a document. Errors name the line of the file.
func Parse(part *Part) (*Document, error) {
	// YAML takes all ends of lines for the same, comments excepted.
	body := strings.ReplaceAll(part.Body, "\r\n", "\n")
	document, err := parse(body, part.Line)
	if err != nil && strings.Contains(body, "{{") {
		return nil, fmt.Errorf("%w; if it is a template, render it first", err)
	}
	if err != nil {
		return nil, err
	}
	if spaced := parseSpaced(body, document); spaced != nil {
		document = spaced
	}
	document.windows = len(body) < len(part.Body)
	return document, nil
}

// JSON returns the document's content.
func (d *Document) JSON() []byte { return d.json }

// Comments are the lines of comments in the document.
func (d *Document) Comments() []string {
	var lines []string
	eachNode(d.node, func(node *yaml.Node) {
		for _, comment := range []string{node.HeadComment, node.LineComment, node.FootComment} {
			for line := range strings.Lines(comment) {
				if line = strings.TrimSpace(line); line != "" && !isBlankMark(line) {
					lines = append(lines, line)
				}
			}
		}
	})
	return lines
}

func eachNode(node *yaml.Node, do func(*yaml.Node)) {
	do(node)
	for _, child := range node.Content {
		eachNode(child, do)
	}
}

func parse(body string, firstLine int) (*Document, error) {
	loader, err := yaml.NewLoader(strings.NewReader(body), yaml.WithUniqueKeys(false))
	if err != nil {
		return nil, fmt.Errorf("reading YAML: %w", err)
	}
	var node yaml.Node
	if err := loader.Load(&node); err != nil {
		return nil, atLine(err, body, firstLine)
	}
	if err := loader.Load(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: more than one document without --- between them", firstLine)
	}
	document := &Document{node: &node, read: reader{firstLine: firstLine}}
	var out bytes.Buffer
	if err := document.read.write(&out, content(&node), 0); err != nil {
		return nil, err
	}
	document.json = out.Bytes()
	return document, nil
}

func content(document *yaml.Node) *yaml.Node { return document.Content[0] }

// libraryError is how the library words errors: what it did, where, and why.
var libraryError = regexp.MustCompile(`(?s)^go-yaml load error in .*? at (?:L(\d+)\.C\d+(?:-[LC.\d]+)?|<unknown position>): (.*)$`)

// atLine counts the lines of the library's errors from the file's start.
func atLine(err error, body string, firstLine int) error {
	found := libraryError.FindStringSubmatch(err.Error())
	if found == nil {
		return fmt.Errorf("line %d: is no YAML: %w", firstLine, err)
	}
	why := strings.TrimSpace(found[2])
	line, err := strconv.Atoi(found[1])
	if err != nil {
		return fmt.Errorf("line %d: is no YAML: %s", firstLine, why)
	}
	if isTabbed(body, line) {
		why += "; indent with spaces, not with tabs"
	}
	return fmt.Errorf("line %d: is no YAML: %s", firstLine+line-1, why)
}

// isTabbed reports whether a line of the text, from 1, is indented with a tab.
func isTabbed(text string, line int) bool {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return false
	}
	content := strings.TrimLeft(lines[line-1], " \t")
	return strings.Contains(strings.TrimSuffix(lines[line-1], content), "\t")
}

// The library forgets blank lines. They are read as comments of a kind of their
// own, and written as what they were.
const blankMark = "#~blank~"

func isBlankMark(line string) bool { return strings.HasPrefix(line, blankMark) }

// parseSpaced is parse with the blank lines remembered; nil where that would
// change what the document says, as in a text of several lines.
func parseSpaced(body string, plain *Document) *Document {
	if strings.Contains(body, blankMark) {
		return nil
	}
	unmarked := map[string]bool{}
	for range 2 {
		spaced, err := parse(markBlankLines(body, unmarked), plain.read.firstLine)
		if err != nil {
			return nil
		}
		if bytes.Equal(spaced.json, plain.json) {
			copyLines(plain.node, spaced.node)
			return spaced
		}
		for _, mark := range regexp.MustCompile(blankMark+`\d+~`).FindAllString(string(spaced.json), -1) {
			unmarked[mark] = true
		}
	}
	return nil
}

// markBlankLines puts a mark, indented as what follows, on each blank line but
// those at the end.
func markBlankLines(body string, unmarked map[string]bool) string {
	lines := strings.SplitAfter(body, "\n")
	indent, seen := "", false
	for i := len(lines) - 1; i >= 0; i-- {
		text := strings.TrimLeft(lines[i], " ")
		if strings.TrimSpace(text) != "" {
			indent, seen = lines[i][:len(lines[i])-len(text)], true
			continue
		}
		if mark := fmt.Sprintf("%s%d~", blankMark, i); seen && !unmarked[mark] {
			lines[i] = indent + mark + "\n"
		}
	}
	return strings.Join(lines, "")
}

// copyLines keeps the nodes' lines as they are in the file.
func copyLines(from, to *yaml.Node) {
	to.Line, to.Column = from.Line, from.Column
	for i := range to.Content {
		if i < len(from.Content) {
			copyLines(from.Content[i], to.Content[i])
		}
	}
}

// sameContent reports whether two values are the same, numbers compared as they
// are written.
func sameContent(a, b any) bool { return reflect.DeepEqual(a, b) }
