// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"html/template"
	"strings"

	"opendilab.org/di-orchestrator/hack/site/internal/markdown"
)

// view is the data of the page template.
type view struct {
	// Root is the path to the root of the site, Source the address for edits of the page.
	Root, Source string
	Title        string
	Menu         []menuView
	Body         template.HTML
	// Contents are the page's headings of level 2 to 4.
	Contents       []markdown.Heading
	Previous, Next *entryView
}

type menuView struct {
	Title   string
	Entries []entryView
}

type entryView struct {
	Title, Address string
	IsCurrent      bool
}

func (b *Builder) viewOf(page *markdown.Page, address string) view {
	shown := view{
		Root:   rootOf(address),
		Source: b.SourceURL + "/blob/main/" + page.Path,
		Title:  page.Title,
	}
	var all []entryView
	current := -1
	for _, section := range b.menu {
		group := menuView{Title: section.title}
		for _, entry := range section.entries {
			link := entryView{Title: entry.title, Address: shown.Root + addressOf(entry.page), IsCurrent: isWithin(page.Path, entry.page)}
			if entry.page == page.Path {
				current = len(all)
			}
			group.Entries = append(group.Entries, link)
			all = append(all, link)
		}
		shown.Menu = append(shown.Menu, group)
	}
	if current > 0 {
		shown.Previous = &all[current-1]
	}
	if next := current + 1; next < len(all) && (current >= 0 || page.Path == start) {
		shown.Next = &all[next]
	}
	for _, heading := range page.Headings {
		if heading.Level >= 2 && heading.Level <= 4 {
			shown.Contents = append(shown.Contents, heading)
		}
	}
	return shown
}

// isWithin reports whether a page is an entry of the menu, or belongs to the folder below docs
// whose index the entry is.
func isWithin(page, entry string) bool {
	folder, isIndex := strings.CutSuffix(entry, "README.md")
	return page == entry || isIndex && strings.HasPrefix(folder, "docs/") && strings.HasPrefix(page, folder)
}
