// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is the decoded output of go list for a package.
type listed struct {
	ImportPath, Dir, Export            string
	GoFiles, TestGoFiles, XTestGoFiles []string
	DepOnly                            bool
}

// hasTests reports whether a package has test files.
func (l *listed) hasTests() bool { return len(l.TestGoFiles)+len(l.XTestGoFiles) > 0 }

// source is a type-checked package without mutants.
type source struct {
	listed
	fset     *token.FileSet
	importer types.Importer
	// files and texts are those of the package, by name.
	files map[string]*ast.File
	texts map[string][]byte
	info  *types.Info
}

// load reads packages.
func load(ctx context.Context, patterns []string) ([]*source, error) {
	packages, err := list(ctx, patterns)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for i := range packages {
		exports[packages[i].ImportPath] = packages[i].Export
	}
	var sources []*source
	for i := range packages {
		if packages[i].DepOnly {
			continue
		}
		s, err := packages[i].read(exports)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// read parses and checks a package, given the export data of those that it imports.
func (l *listed) read(exports map[string]string) (*source, error) {
	s := &source{listed: *l, fset: token.NewFileSet(), files: map[string]*ast.File{}, texts: map[string][]byte{}}
	s.importer = importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, name := range s.GoFiles {
		path := filepath.Join(s.Dir, name)
		var err error
		if s.texts[name], err = os.ReadFile(path); err != nil {
			return nil, err
		}
		if s.files[name], err = parser.ParseFile(s.fset, path, s.texts[name], parser.ParseComments); err != nil {
			return nil, err
		}
	}
	var files []*ast.File
	for _, name := range s.GoFiles {
		files = append(files, s.files[name])
	}
	var faults []error
	s.info, faults = s.check(s.fset, files)
	return s, errors.Join(faults...)
}

// list returns packages and all their dependencies, compiled.
func list(ctx context.Context, patterns []string) ([]listed, error) {
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,TestGoFiles,XTestGoFiles,DepOnly"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
	}
	var packages []listed
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var pkg listed
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, pkg)
	}
	return packages, nil
}

// check type-checks files of the package, and returns all errors.
func (s *source) check(fset *token.FileSet, files []*ast.File) (*types.Info, []error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	var faults []error
	config := types.Config{Importer: s.importer, Error: func(err error) { faults = append(faults, err) }}
	// The function gets each error.
	_, _ = config.Check(s.ImportPath, fset, files, info)
	return info, faults
}

// isGenerated reports whether a file is generated, so that tests are not about it.
func (s *source) isGenerated(name string) bool { return ast.IsGenerated(s.files[name]) }

// of returns the mutants of the package.
func (s *source) of(mutants []*mutant) []*mutant {
	return slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool { return m.source != s })
}
