// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package site builds a site of static files from the Markdown of the repository.
package site

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/hack/site/internal/markdown"
	"opendilab.org/di-orchestrator/hack/site/internal/repository"
)

// searchIndex is the script with the searchable text.
const searchIndex = "search-index.js"

//go:embed assets
var assets embed.FS

// Builder builds a site.
type Builder struct {
	// Source is the repository from which the site is built.
	Source *repository.Repository
	// SourceURL is the URL of the repository. Links to files that are not in the site lead there.
	SourceURL string

	menu []section
	page *template.Template
	// files are the files of the site, by address.
	files map[string][]byte
}

// Build returns the files of the site by their addresses.
func (b *Builder) Build() (map[string][]byte, error) {
	b.files = map[string][]byte{}
	var err error
	if b.menu, err = menuOf(b.Source); err != nil {
		return nil, err
	}
	if b.page, err = template.ParseFS(assets, "assets/page.html"); err != nil {
		return nil, err
	}
	var hits []hit
	for _, name := range b.pages() {
		page := b.Source.Pages[name]
		// The index repeats the text of the other pages.
		if name != index {
			hits = append(hits, hitsOf(page)...)
		}
		if err := b.addPage(page); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return b.files, errors.Join(b.addSearch(hits), b.addAssets())
}

// pages returns the pages of the site: the start page, all docs, and the other pages in the menu.
func (b *Builder) pages() []string {
	pages := map[string]bool{start: b.Source.Pages[start] != nil}
	for name := range b.Source.Pages {
		pages[name] = pages[name] || strings.HasPrefix(name, "docs/")
	}
	for _, section := range b.menu {
		for _, entry := range section.entries {
			pages[entry.page] = true
		}
	}
	maps.DeleteFunc(pages, func(_ string, isPage bool) bool { return !isPage })
	return slices.Sorted(maps.Keys(pages))
}

func (b *Builder) addPage(page *markdown.Page) error {
	address := addressOf(page.Path)
	view := b.viewOf(page, address)
	body, err := page.Render(func(link markdown.Link) (string, error) {
		return b.rewrite(page, address, link)
	})
	if err != nil {
		return err
	}
	view.Body = template.HTML(body) // The pages are our own.
	var out bytes.Buffer
	if err := b.page.Execute(&out, view); err != nil {
		return err
	}
	b.files[address] = out.Bytes()
	return nil
}

// rewrite returns the address of a link's target in the site. It adds linked pictures to the site.
func (b *Builder) rewrite(page *markdown.Page, address string, link markdown.Link) (string, error) {
	target, err := b.Source.Resolve(page, link)
	switch {
	case err != nil:
		return "", err
	case target.External:
		return link.Destination, nil
	case link.IsImage:
		content, err := b.Source.ReadFile(target.Path)
		if err != nil {
			return "", err
		}
		b.files[addressOf(target.Path)] = content
	case target.IsFolder && b.isPage(path.Join(target.Path, "README.md")):
		target.Path = path.Join(target.Path, "README.md")
	case target.IsFolder:
		return b.SourceURL + "/tree/main/" + target.Path, nil
	case !b.isPage(target.Path):
		return b.SourceURL + "/blob/main/" + target.Path, nil
	}
	to := rootOf(address) + addressOf(target.Path)
	if target.Fragment != "" {
		to += "#" + target.Fragment
	}
	return to, nil
}

func (b *Builder) isPage(name string) bool {
	return slices.Contains(b.pages(), name)
}

// hit is a search result: a section of a page.
type hit struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Page    string `json:"page"`
	Heading string `json:"heading"`
	Body    string `json:"body"`
}

func hitsOf(page *markdown.Page) []hit {
	var hits []hit
	for i, section := range page.Sections() {
		address := addressOf(page.Path)
		// The first section is the page itself. No two hits may have the same id.
		if i > 0 {
			address += "#" + section.ID
		}
		hits = append(hits, hit{
			ID: address, Address: address, Page: page.Title, Heading: section.Text,
			Body: strings.Join(strings.Fields(section.Body), " "),
		})
	}
	return hits
}

// addSearch writes the index as a script because a page that was opened as a file can load nothing
// else.
func (b *Builder) addSearch(hits []hit) error {
	list, err := json.Marshal(hits)
	if err != nil {
		return err
	}
	b.files["assets/"+searchIndex] = slices.Concat([]byte("window.searchIndex = "), list, []byte(";\n"))
	return nil
}

func (b *Builder) addAssets() error {
	var failed []error
	for name, from := range map[string]string{
		"site.css": "site.css", "site.js": "site.js", "theme.js": "theme.js",
		"minisearch.js": "minisearch/minisearch.js", "minisearch.LICENSE.txt": "minisearch/LICENSE.txt",
	} {
		content, err := assets.ReadFile("assets/" + from)
		failed = append(failed, err)
		b.files["assets/"+name] = content
	}
	light, dark, err := markdown.CodeStyles()
	b.files["assets/code.css"] = []byte(light + ":root[data-theme=\"dark\"] {\n" + dark + "}\n")
	return errors.Join(append(failed, err)...)
}

// Write replaces the content of a folder by the files. It returns an error if the folder contains
// anything other than a site.
func Write(files map[string][]byte, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, "assets", searchIndex)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%q holds something else than a site; name a folder that is empty or not there", folder)
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("emptying %q: %w", folder, err)
	}
	for name, content := range files {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
