// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// mutant is one change of a file: replacement replaces source[start:end].
type mutant struct {
	// number is unique in a run. The first mutant of a function has the number leader.
	number, leader int
	source         *source
	// folder is that of the package, below the working directory; file is the name.
	folder, file string
	line         int
	kind         string
	text         string
	start, end   int
	// function is the function that contains the change.
	function *ast.FuncDecl
	// replacement is empty for a deletion.
	replacement string
}

// path is the path of the file.
func (m *mutant) path() string { return filepath.ToSlash(filepath.Join(m.folder, m.file)) }

// name identifies a mutant among those of its function with different text, independent of its
// line.
func (m *mutant) name() string {
	name := fmt.Sprintf("%s: %s: %s: %s", m.path(), m.function.Name.Name, m.kind, m.text)
	if m.replacement != "" {
		name += " -> " + shortened(m.replacement)
	}
	return name
}

// apply returns the source with the change.
func (m *mutant) apply(source []byte) []byte {
	changed := append([]byte(nil), source[:m.start]...)
	changed = append(changed, m.replacement...)
	return append(changed, source[m.end:]...)
}

// finder collects the mutants of one file.
type finder struct {
	fset   *token.FileSet
	info   *types.Info
	file   string
	source []byte
	found  []*mutant
	// stack contains the visited node and its ancestors.
	stack []ast.Node
}

// mutantsOf returns all mutants of the functions of a file. Each statement, case, value of a case,
// member of a literal and variadic argument is deleted. Each operand of && and || replaces the
// whole expression. Each returned value becomes zero.
func mutantsOf(fset *token.FileSet, info *types.Info, name string, file *ast.File, source []byte) []*mutant {
	f := &finder{fset: fset, info: info, file: name, source: source}
	ast.Inspect(file, func(node ast.Node) bool {
		if node == nil {
			f.stack = f.stack[:len(f.stack)-1]
			return true
		}
		f.stack = append(f.stack, node)
		f.visit(node)
		return true
	})
	return f.found
}

func (f *finder) visit(node ast.Node) {
	switch node := node.(type) {
	case *ast.BlockStmt:
		f.statements(node.List)
	case *ast.CaseClause:
		f.statements(node.Body)
		if len(node.List) > 1 {
			f.deleteEach("value of a case", node.List)
		}
	case *ast.IfStmt:
		if node.Else != nil {
			f.add("else", node.Body.End(), node.Else.End(), "")
		}
	case *ast.CompositeLit:
		f.deleteEach("member", node.Elts)
	case *ast.CallExpr:
		f.variadic(node)
	case *ast.BinaryExpr:
		if node.Op == token.LAND || node.Op == token.LOR {
			f.add("operand", node.Pos(), node.End(), f.text(node.X))
			f.add("operand", node.Pos(), node.End(), f.text(node.Y))
		}
	case *ast.ReturnStmt:
		f.results(node)
	}
}

// statements deletes each statement of a list. It skips declarations of variables because their
// uses remain.
func (f *finder) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch statement := statement.(type) {
		case *ast.EmptyStmt, *ast.DeclStmt:
			continue
		case *ast.AssignStmt:
			if statement.Tok == token.DEFINE {
				continue
			}
		case *ast.CaseClause:
			f.add("case", statement.Pos(), statement.End(), "")
			continue
		}
		f.add("statement", statement.Pos(), statement.End(), "")
	}
}

// deleteEach deletes each item of a comma-separated list.
func (f *finder) deleteEach(kind string, items []ast.Expr) {
	for i, item := range items {
		start, end := item.Pos(), item.End()
		if i+1 < len(items) {
			end = items[i+1].Pos()
		} else if i > 0 {
			start = items[i-1].End()
		}
		f.addNamed(kind, f.text(item), start, end, "")
	}
}

func (f *finder) variadic(call *ast.CallExpr) {
	signature, ok := f.info.TypeOf(call.Fun).(*types.Signature)
	if !ok || !signature.Variadic() || call.Ellipsis.IsValid() {
		return
	}
	for i := signature.Params().Len() - 1; i < len(call.Args); i++ {
		start, end := call.Args[i].Pos(), call.Args[i].End()
		if i > 0 {
			start = call.Args[i-1].End()
		} else if i+1 < len(call.Args) {
			end = call.Args[i+1].Pos()
		}
		f.addNamed("argument", f.text(call.Args[i])+" of "+f.text(call), start, end, "")
	}
}

func (f *finder) results(statement *ast.ReturnStmt) {
	signature := f.function()
	if signature == nil || signature.Results().Len() != len(statement.Results) {
		return
	}
	for i, result := range statement.Results {
		for _, zero := range zeros(signature.Results().At(i).Type()) {
			if f.text(result) != zero {
				f.addNamed("result", f.text(result)+" of "+f.text(statement), result.Pos(), result.End(), zero)
			}
		}
	}
}

// function returns the signature of the innermost function around the visited node.
func (f *finder) function() *types.Signature {
	for i := len(f.stack) - 1; i >= 0; i-- {
		var found types.Type
		switch node := f.stack[i].(type) {
		case *ast.FuncLit:
			found = f.info.TypeOf(node)
		case *ast.FuncDecl:
			if object := f.info.Defs[node.Name]; object != nil {
				found = object.Type()
			}
		default:
			continue
		}
		signature, _ := found.(*types.Signature)
		return signature
	}
	return nil
}

// zeros returns the replacements of a value of the type; none for a struct.
func zeros(t types.Type) []string {
	switch t := t.Underlying().(type) {
	case *types.Basic:
		switch {
		case t.Info()&types.IsBoolean != 0:
			return []string{"false", "true"}
		case t.Info()&types.IsString != 0:
			return []string{`""`}
		case t.Info()&types.IsNumeric != 0:
			return []string{"0"}
		}
	case *types.Pointer, *types.Slice, *types.Map, *types.Interface, *types.Signature:
		return []string{"nil"}
	}
	return nil
}

func (f *finder) add(kind string, start, end token.Pos, replacement string) {
	f.addNamed(kind, string(f.source[f.offset(start):f.offset(end)]), start, end, replacement)
}

func (f *finder) addNamed(kind, text string, start, end token.Pos, replacement string) {
	if len(f.stack) < 2 {
		return
	}
	function, ok := f.stack[1].(*ast.FuncDecl)
	if !ok {
		return
	}
	f.found = append(f.found, &mutant{
		function: function, file: f.file, line: f.fset.Position(start).Line, kind: kind, text: shortened(text),
		start: f.offset(start), end: f.offset(end), replacement: replacement,
	})
}

func (f *finder) offset(position token.Pos) int {
	return f.fset.Position(position).Offset
}

func (f *finder) text(node ast.Node) string {
	return string(f.source[f.offset(node.Pos()):f.offset(node.End())])
}

// shortened returns the text in one line, truncated to 100 characters.
func shortened(text string) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > 100 {
		line = append(line[:99], '…')
	}
	return string(line)
}
