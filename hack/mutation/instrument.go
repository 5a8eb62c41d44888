// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// environmentKey is the environment variable with the number of the active mutant.
const environmentKey = "MUTANT"

// switchFile returns a file that declares the active mutant in a package.
func switchFile(pkg string) []byte {
	return fmt.Appendf(nil, `package %s

import (
	"os"
	"strconv"
)

var activeMutant, _ = strconv.Atoi(os.Getenv(%q))
`, pkg, environmentKey)
}

// instrument returns a file with all its mutants, numbered from 1 by their index in mutants. Each
// mutant is a copy of its function. The function calls the copy of the active mutant instead of its
// own body. One build therefore serves all mutants.
func instrument(fset *token.FileSet, name string, text []byte, mutants []mutant) []byte {
	var copies bytes.Buffer
	calls := map[*ast.FuncDecl]*bytes.Buffer{}
	var functions []*ast.FuncDecl
	at := func(position token.Pos) int { return fset.Position(position).Offset }
	for i, m := range mutants {
		if m.file != name {
			continue
		}
		copied := fmt.Sprintf("%s_mutant%d", m.function.Name.Name, i+1)
		if calls[m.function] == nil {
			calls[m.function] = &bytes.Buffer{}
			functions = append(functions, m.function)
		}
		fmt.Fprintf(calls[m.function], "case %d: %s; ", i+1, call(m.function, copied))
		fmt.Fprintf(&copies, "\n%s%s%s%s%s\n", text[at(m.function.Pos()):at(m.function.Name.Pos())], copied,
			text[at(m.function.Name.End()):m.start], m.replacement, text[m.end:at(m.function.End())])
	}
	slices.SortFunc(functions, func(a, b *ast.FuncDecl) int { return int(a.Pos() - b.Pos()) })
	var out bytes.Buffer
	from := 0
	for _, function := range functions {
		body := at(function.Body.Lbrace) + 1
		out.Write(text[from:body])
		fmt.Fprintf(&out, "switch activeMutant { %s};", calls[function])
		from = body
	}
	out.Write(text[from:])
	out.Write(copies.Bytes())
	return out.Bytes()
}

// call returns the statement with which a function calls its copy.
func call(function *ast.FuncDecl, name string) string {
	if function.Recv != nil {
		name = function.Recv.List[0].Names[0].Name + "." + name
	}
	if parameters := names(function.Type.TypeParams); len(parameters) > 0 {
		name += "[" + strings.Join(parameters, ", ") + "]"
	}
	called := name + "(" + strings.Join(names(function.Type.Params), ", ") + ")"
	if function.Type.Results == nil {
		return called + "; return"
	}
	return "return " + called
}

// names returns the names of parameters as arguments.
func names(parameters *ast.FieldList) []string {
	var found []string
	if parameters == nil {
		return nil
	}
	for _, parameter := range parameters.List {
		for _, name := range parameter.Names {
			argument := name.Name
			if _, variadic := parameter.Type.(*ast.Ellipsis); variadic {
				argument += "..."
			}
			found = append(found, argument)
		}
	}
	return found
}
