// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command site builds the documentation as a site of static files and checks its links.
package main

import (
	"flag"
	"fmt"
	"os"

	"opendilab.org/di-orchestrator/hack/site/internal/repository"
	"opendilab.org/di-orchestrator/hack/site/internal/site"
)

func main() {
	root := flag.String("root", "../..", "the repository")
	out := flag.String("out", "../../out/site", "folder to build the site in; what it holds is removed")
	source := flag.String("source", "https://github.com/opendilab/DI-orchestrator", "where the repository is shown")
	flag.Parse()
	if err := build(*root, *out, *source); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func build(root, out, source string) error {
	read, err := repository.Read(os.DirFS(root))
	if err != nil {
		return err
	}
	if err := read.Check(); err != nil {
		return fmt.Errorf("links of the Markdown lead nowhere:\n%w", err)
	}
	builder := site.Builder{Source: read, SourceURL: source}
	files, err := builder.Build()
	if err != nil {
		return err
	}
	if err := site.Check(files); err != nil {
		return fmt.Errorf("the site is broken:\n%w", err)
	}
	return site.Write(files, out)
}
