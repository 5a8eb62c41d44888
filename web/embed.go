// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package web holds the built page of kubectl di ui. "make web" builds it.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Files returns the files of the page; index.html is at the root.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) //nolint:forbidigo // the name of the folder is a constant
	}
	return files
}
