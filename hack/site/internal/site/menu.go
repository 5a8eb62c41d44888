// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"path"
	"strings"

	"opendilab.org/di-orchestrator/hack/site/internal/markdown"
	"opendilab.org/di-orchestrator/hack/site/internal/repository"
)

// start is the start page of the site. index is the page whose sections and links form the menu.
const (
	start = "README.md"
	index = "docs/README.md"
)

// entry is a link to a page of the site.
type entry struct {
	title, page string
}

// section is a heading of the menu with its entries.
type section struct {
	title   string
	entries []entry
}

// menuOf reads the menu from the index: its headings of level 2, and the first link of each item
// below them. It omits pages that do not exist yet.
func menuOf(source *repository.Repository) ([]section, error) {
	page, found := source.Pages[index]
	if !found {
		return nil, fmt.Errorf("%s, which the menu is read from, is not there", index)
	}
	var menu []section
	for _, list := range page.Lists() {
		if list.Heading.Level != 2 {
			continue
		}
		read := section{title: list.Heading.Text}
		for _, item := range list.Items {
			target, err := source.Resolve(page, markdown.Link{Destination: item.Destination})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", index, err)
			}
			if source.Pages[target.Path] != nil {
				read.entries = append(read.entries, entry{title: item.Text, page: target.Path})
			}
		}
		if len(read.entries) > 0 {
			menu = append(menu, read)
		}
	}
	return menu, nil
}

// addressOf returns the address in the site of a page or picture of the repository, relative to the
// site's root.
func addressOf(name string) string {
	switch name {
	case start:
		return "index.html"
	case index:
		return "docs.html"
	}
	name = strings.TrimPrefix(name, "docs/")
	if path.Ext(name) != ".md" {
		return name
	}
	if path.Base(name) == "README.md" {
		return path.Join(path.Dir(name), "index.html")
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

// rootOf returns the relative path from a page to the root of the site, so that the site works in
// any folder and without a server.
func rootOf(address string) string {
	return strings.Repeat("../", strings.Count(address, "/"))
}
