// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"

	"opendilab.org/di-orchestrator/hack/site/internal/markdown"
)

// Check returns an error that lists the faults of a built site: links to missing files or ids,
// duplicate ids on a page, and resources that a browser would have to load from other hosts.
func Check(files map[string][]byte) error {
	pages := map[string]markdown.HTML{}
	for name, content := range files {
		if path.Ext(name) == ".html" {
			pages[name] = markdown.ReadHTML(bytes.NewReader(content))
		}
	}
	var broken []error
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, id := range pages[name].Repeated {
			broken = append(broken, fmt.Errorf("%s: id %q stands twice", name, id))
		}
		for _, link := range pages[name].Links {
			if err := checkLink(files, pages, name, link.Destination); err != nil {
				broken = append(broken, fmt.Errorf("%s: %w", name, err))
			}
		}
		for _, address := range pages[name].Loads {
			if parsed, err := url.Parse(address); err == nil && parsed.Host != "" {
				broken = append(broken, fmt.Errorf("%s: %q is fetched from elsewhere; put it into the site", name, address))
			}
		}
	}
	return errors.Join(broken...)
}

func checkLink(files map[string][]byte, pages map[string]markdown.HTML, page, destination string) error {
	address, err := url.Parse(destination)
	if err != nil {
		return fmt.Errorf("%q is no address: %w", destination, err)
	}
	if address.Scheme != "" || address.Host != "" {
		return nil
	}
	target := page
	if address.Path != "" {
		target = path.Join(path.Dir(page), address.Path)
	}
	if _, found := files[target]; !found {
		return fmt.Errorf("%q leads to %s, which the site has not", destination, target)
	}
	if address.Fragment != "" && !pages[target].Anchors[address.Fragment] {
		return fmt.Errorf("%q names an id that %s has not", destination, target)
	}
	return nil
}
