// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// recorders is the only file whose functions write the status that a reconcile plans.
const recorders = "job/lifecycle/state/record.go"

func TestOnlyRecordersWriteThePlannedStatus(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, folder := range []string{"job/lifecycle", "job/scaling"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if relative, _ := filepath.Rel(root, path); relative != recorders {
				reportStatusWrites(t, path)
			}
			return nil
		})
		expect.NoError(t, err)
	}
}

// reportStatusWrites fails the test for each assignment to what a call of Status returned, under whichever name.
func reportStatusWrites(t *testing.T, path string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	expect.NoError(t, err)
	for _, declared := range file.Decls {
		function, isFunction := declared.(*ast.FuncDecl)
		if !isFunction || function.Body == nil {
			continue
		}
		planned := map[string]bool{}
		ast.Inspect(function.Body, func(node ast.Node) bool {
			for _, target := range targets(node) {
				if isOfStatus(target, planned) {
					t.Errorf("%s: %s writes the planned status; only %s may", files.Position(node.Pos()), function.Name.Name, recorders)
				}
			}
			if assigned, isAssignment := node.(*ast.AssignStmt); isAssignment && len(assigned.Lhs) == len(assigned.Rhs) {
				for i, name := range assigned.Lhs {
					if alias, isName := name.(*ast.Ident); isName && isOfStatus(assigned.Rhs[i], planned) {
						planned[alias.Name] = true
					}
				}
			}
			return true
		})
	}
}

// targets returns the expressions below which a node writes.
func targets(node ast.Node) []ast.Expr {
	var written []ast.Expr
	switch node := node.(type) {
	case *ast.AssignStmt:
		written = node.Lhs
	case *ast.IncDecStmt:
		written = []ast.Expr{node.X}
	}
	var below []ast.Expr
	for _, expression := range written {
		if _, isName := expression.(*ast.Ident); !isName {
			below = append(below, expression)
		}
	}
	return below
}

// isOfStatus reports whether an expression is the planned status, or a part of it.
func isOfStatus(expression ast.Expr, planned map[string]bool) bool {
	switch expression := expression.(type) {
	case *ast.Ident:
		return planned[expression.Name]
	case *ast.SelectorExpr:
		return isOfStatus(expression.X, planned)
	case *ast.IndexExpr:
		return isOfStatus(expression.X, planned)
	case *ast.StarExpr:
		return isOfStatus(expression.X, planned)
	case *ast.CallExpr:
		method, isMethod := expression.Fun.(*ast.SelectorExpr)
		return isMethod && method.Sel.Name == "Status"
	}
	return false
}
