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

// Document is a YAML document as a tree that preserves its formatting.
type Document struct {
	node *yaml.Node
	json []byte
	read reader
	// windows reports whether lines end with CRLF.
	windows bool
}

// Parse parses a document. Errors name the line of the file.
func Parse(part *Part) (*Document, error) {
	// YAML treats all line breaks as equal, except in comments.
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

// JSON returns the document's content as JSON.
func (d *Document) JSON() []byte { return d.json }

// Comments returns the comment lines of the document.
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

// libraryError matches the format of the library's errors: the operation, the position and the
// cause.
var libraryError = regexp.MustCompile(`(?s)^go-yaml load error in .*? at (?:L(\d+)\.C\d+(?:-[LC.\d]+)?|<unknown position>): (.*)$`)

// atLine changes the line of the library's errors to the line of the file.
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

// blankMark marks a blank line. The library drops blank lines. They are therefore parsed as special
// comments, and written as blank lines.
const blankMark = "#~blank~"

func isBlankMark(line string) bool { return strings.HasPrefix(line, blankMark) }

// parseSpaced is parse with preserved blank lines. It returns nil if that would change the content,
// for example of a multi-line string.
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

// markBlankLines puts a mark on each blank line except trailing ones, with the indent of the
// following line.
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

// copyLines restores the nodes' line numbers in the file.
func copyLines(from, to *yaml.Node) {
	to.Line, to.Column = from.Line, from.Column
	for i := range to.Content {
		if i < len(from.Content) {
			copyLines(from.Content[i], to.Content[i])
		}
	}
}

// sameContent reports whether two values are equal. It compares the text of numbers.
func sameContent(a, b any) bool { return reflect.DeepEqual(a, b) }
