// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
)

// declarations stand for the switch file, whose imports the package may not have.
const declarations = "var activeMutant, reachedMutants = 0, \"\"\nfunc reachMutant(int) {}"

// viable returns the mutants of the package that compile, and the number of those that do not. It checks all at
// once: an error lies within the copy of one mutant. The compiler reports some errors only once others are gone.
func (s *source) viable() (mutants []*mutant, notViable int, err error) {
	for _, name := range s.GoFiles {
		if s.isGenerated(name) {
			continue
		}
		for _, m := range mutantsOf(s.fset, s.info, name, s.files[name], s.texts[name]) {
			if m.parses(s.texts[name]) {
				mutants = append(mutants, m)
			} else {
				notViable++
			}
		}
	}
	number(mutants)
	for {
		wrong, err := s.wrong(mutants)
		if err != nil || len(wrong) == 0 {
			return mutants, notViable, err
		}
		notViable += len(wrong)
		mutants = slices.DeleteFunc(mutants, func(m *mutant) bool { return wrong[m] })
	}
}

// parses reports whether the file has the syntax of Go with the change.
func (m *mutant) parses(source []byte) bool {
	_, err := parser.ParseFile(token.NewFileSet(), m.file, m.apply(source), parser.SkipObjectResolution)
	return err == nil
}

// wrong returns mutants whose copies have type errors.
func (s *source) wrong(mutants []*mutant) (map[*mutant]bool, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	copies := map[string][]span{}
	for _, name := range s.GoFiles {
		text, spans := instrument(s.fset, name, s.texts[name], mutants)
		copies[name] = spans
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing %s with its mutants: %w", name, err)
		}
		files = append(files, file)
	}
	file, err := parser.ParseFile(fset, switchName, "package "+s.files[s.GoFiles[0]].Name.Name+"\n"+declarations, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	_, faults := s.check(fset, append(files, file))
	wrong := map[*mutant]bool{}
	for _, fault := range faults {
		found := new(types.Error)
		if !errors.As(fault, found) {
			return nil, fault
		}
		at := fset.Position(found.Pos)
		i := slices.IndexFunc(copies[at.Filename], func(one span) bool { return one.start <= at.Offset && at.Offset < one.end })
		if i < 0 {
			return nil, fmt.Errorf("checking %s with its mutants: %w", s.ImportPath, fault)
		}
		wrong[copies[at.Filename][i].mutant] = true
	}
	return wrong, nil
}
