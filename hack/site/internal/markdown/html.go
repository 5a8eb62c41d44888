// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"io"
	"strings"

	"golang.org/x/net/html"
)

// HTML contains the references of an HTML page and the possible targets in it.
type HTML struct {
	Links []Link
	// Loads are the addresses that a browser loads to display the page.
	Loads []string
	// Anchors are the ids.
	Anchors map[string]bool
	// Repeated are the ids that occur more than once.
	Repeated []string
}

// ReadHTML parses a page or a part of one. It parses as browsers do, which accept all input.
func ReadHTML(source io.Reader) HTML {
	found := HTML{Anchors: map[string]bool{}}
	tokens := html.NewTokenizer(source)
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return found
		case html.StartTagToken, html.SelfClosingTagToken:
			found.addTag(tokens.Token())
		default:
			// Text, comments and end tags contain no references.
		}
	}
}

func (h *HTML) addTag(tag html.Token) {
	for _, attribute := range tag.Attr {
		switch attribute.Key {
		case "id":
			if h.Anchors[attribute.Val] {
				h.Repeated = append(h.Repeated, attribute.Val)
			}
			h.Anchors[attribute.Val] = true
		case "name":
			if tag.Data == "a" {
				h.Anchors[attribute.Val] = true
			}
		case "href", "src":
			h.addLink(tag.Data, strings.TrimSpace(attribute.Val))
		}
	}
}

func (h *HTML) addLink(tag, destination string) {
	h.Links = append(h.Links, Link{Destination: destination, IsImage: tag == "img"})
	if tag != "a" {
		h.Loads = append(h.Loads, destination)
	}
}
