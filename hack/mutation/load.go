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
)

// listed is the decoded output of go list for a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

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

// load reads a package.
func load(ctx context.Context, pattern string) (*source, error) {
	packages, err := list(ctx, pattern)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, dependency := range packages {
		exports[dependency.ImportPath] = dependency.Export
	}
	// go list prints dependencies first, so the package is last.
	s := &source{listed: packages[len(packages)-1], fset: token.NewFileSet(), files: map[string]*ast.File{}, texts: map[string][]byte{}}
	s.importer = importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, name := range s.GoFiles {
		path := filepath.Join(s.Dir, name)
		if s.texts[name], err = os.ReadFile(path); err != nil {
			return nil, err
		}
		if s.files[name], err = parser.ParseFile(s.fset, path, s.texts[name], 0); err != nil {
			return nil, err
		}
	}
	s.info, err = s.check(s.fset, "", nil)
	return s, err
}

// list returns a package after all its dependencies, compiled.
func list(ctx context.Context, pattern string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", pattern)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
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
	if len(packages) == 0 {
		return nil, fmt.Errorf("no package %s", pattern)
	}
	return packages, nil
}

// check type-checks the package with one file replaced.
func (s *source) check(fset *token.FileSet, name string, other *ast.File) (*types.Info, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	var files []*ast.File
	for _, own := range s.GoFiles {
		file := s.files[own]
		if own == name {
			file = other
		}
		files = append(files, file)
	}
	config := types.Config{Importer: s.importer}
	_, err := config.Check(s.ImportPath, fset, files, info)
	return info, err
}

// mutants returns the mutants of a file that compile, and the number of those that do not.
func (s *source) mutants(name string) (viable []mutant, notViable int, err error) {
	if s.files[name] == nil {
		return nil, 0, fmt.Errorf("%s has no file %s", s.ImportPath, name)
	}
	for _, m := range mutantsOf(s.fset, s.info, name, s.files[name], s.texts[name]) {
		mutated, err := parser.ParseFile(s.fset, name, m.apply(s.texts[name]), 0)
		if err == nil {
			_, err = s.check(s.fset, name, mutated)
		}
		if err != nil {
			notViable++
			continue
		}
		viable = append(viable, m)
	}
	return viable, notViable, nil
}
