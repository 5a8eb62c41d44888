// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"strconv"
	"strings"
	"unicode"
)

// slugs are the anchors that a page has already used.
type slugs map[string]bool

// next returns the anchor that GitHub gives to a heading: its letters and digits in lower case,
// with hyphens for spaces, and a number if the anchor is already used.
func (s slugs) next(heading string) string {
	base := slug(heading)
	id := base
	for i := 1; s[id]; i++ {
		id = base + "-" + strconv.Itoa(i)
	}
	s[id] = true
	return id
}

func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
