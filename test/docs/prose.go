// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
)

// Prose returns the paragraphs of a page: its text without code, tables,
// headings, comments and the targets of links. An item of a list is a paragraph.
func Prose(page string) []string {
	var paragraphs []string
	var current []string
	end := func() {
		if len(current) > 0 {
			paragraphs = append(paragraphs, strings.Join(current, " "))
		}
		current = nil
	}
	for line := range strings.Lines(withoutBlocks(page)) {
		line = strings.TrimSpace(line)
		item := startsItem().FindString(line)
		if line == "" || item != "" || isLayout(line) {
			end()
		}
		if !isLayout(line) && line != "" {
			current = append(current, withoutMarkup(strings.TrimPrefix(line, item)))
		}
	}
	end()
	return paragraphs
}

// Sentences returns how many words each sentence of a page has.
func Sentences(page string) []int {
	var lengths []int
	for _, paragraph := range Prose(page) {
		for _, sentence := range regexp.MustCompile(`[.!?](?:\s+|$)`).Split(paragraph, -1) {
			if words := len(strings.Fields(sentence)); words > 0 {
				lengths = append(lengths, words)
			}
		}
	}
	return lengths
}

// withoutBlocks removes blocks of code and HTML comments.
func withoutBlocks(page string) string {
	page = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$").ReplaceAllString(page, "")
	return regexp.MustCompile(`(?s)<!--.*?-->`).ReplaceAllString(page, "")
}

// withoutMarkup replaces code by one word and links by their text.
func withoutMarkup(line string) string {
	line = regexp.MustCompile("`[^`]*`").ReplaceAllString(line, "code")
	line = regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(line, "")
	return strings.NewReplacer("![", "", "[", "", "**", "", "]", "").Replace(line)
}

// startsItem matches the mark of an item of a list.
func startsItem() *regexp.Regexp { return regexp.MustCompile(`^(?:[-*]|[0-9]+\.)\s+`) }

// isLayout reports whether a line is a row of a table, a heading or an image.
func isLayout(line string) bool {
	return strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "![")
}
