// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repository reads the Markdown of the repository and finds broken links.
package repository

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/hack/site/internal/markdown"
)

// Repository is the Markdown of a repository.
type Repository struct {
	// Pages are the pages by path.
	Pages map[string]*markdown.Page

	files fs.FS
}

// ReadFile returns a file of the repository.
func (r *Repository) ReadFile(name string) ([]byte, error) {
	return fs.ReadFile(r.files, name)
}

// Read reads all Markdown of a repository, except in hidden folders and folders of build output.
func Read(files fs.FS) (*Repository, error) {
	read := &Repository{Pages: map[string]*markdown.Page{}, files: files}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isLeftOut(name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		source, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		read.Pages[name] = markdown.Parse(name, source)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the Markdown of the repository: %w", err)
	}
	return read, nil
}

func isLeftOut(folder string) bool {
	base := path.Base(folder)
	return folder == "out" || folder == "bin" || base == "testdata" || base == "node_modules" ||
		strings.HasPrefix(base, ".") && base != "." && base != ".github"
}

// Target is the target of a link.
type Target struct {
	// External is set for targets outside the repository.
	External bool
	// Path is the file or folder in the repository.
	Path string
	// Fragment is the anchor there; empty for none.
	Fragment string
	// IsFolder is set for folders.
	IsFolder bool
}

// Resolve returns the target of a page's link, or an error if the link is broken. It checks only
// the syntax of external addresses.
func (r *Repository) Resolve(page *markdown.Page, link markdown.Link) (Target, error) {
	address, err := url.Parse(link.Destination)
	if err != nil {
		return Target{}, fmt.Errorf("%q is no address: %w", link.Destination, err)
	}
	if address.Scheme != "" || address.Host != "" {
		return Target{External: true}, checkExternal(address)
	}
	if strings.HasPrefix(address.Path, "/") {
		return Target{}, fmt.Errorf("%q leads to the root of the site that shows it; write it relative to the page", link.Destination)
	}
	target := Target{Path: page.Path, Fragment: address.Fragment}
	if address.Path != "" {
		target.Path = path.Join(path.Dir(page.Path), address.Path)
	}
	info, err := fs.Stat(r.files, target.Path)
	if err != nil {
		return Target{}, fmt.Errorf("%q leads to %s, which is not there", link.Destination, target.Path)
	}
	target.IsFolder = info.IsDir()
	return target, r.checkAnchor(target, link)
}

func (r *Repository) checkAnchor(target Target, link markdown.Link) error {
	page, isPage := r.Pages[target.Path]
	switch {
	case target.Fragment == "":
		return nil
	case !isPage:
		return fmt.Errorf("%q names an anchor in %s, which is no Markdown", link.Destination, target.Path)
	case !page.Anchors[target.Fragment]:
		return fmt.Errorf("%q names an anchor that %s has not", link.Destination, target.Path)
	}
	return nil
}

func checkExternal(address *url.URL) error {
	switch address.Scheme {
	case "https", "http":
		if address.Hostname() == "" {
			return fmt.Errorf("%q names no host", address)
		}
	case "mailto":
		if !strings.Contains(address.Opaque, "@") {
			return fmt.Errorf("%q names no mailbox", address)
		}
	default:
		return fmt.Errorf("%q has scheme %q; write https, http or mailto", address, address.Scheme)
	}
	return nil
}

// Check returns an error that lists all broken links with their positions.
func (r *Repository) Check() error {
	var broken []error
	for _, name := range slices.Sorted(maps.Keys(r.Pages)) {
		page := r.Pages[name]
		for _, link := range page.Links {
			if _, err := r.Resolve(page, link); err != nil {
				broken = append(broken, fmt.Errorf("%s:%d: %w", name, link.Line, err))
			}
		}
	}
	return errors.Join(broken...)
}
