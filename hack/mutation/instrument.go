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

const (
	// activeKey is the environment variable with the number of the active mutant.
	activeKey = "MUTANT"
	// reachedKey is the environment variable with the file that receives the numbers of mutants whose functions are
	// called.
	reachedKey = "MUTANTS_REACHED"
	// switchName is the file that a package gets.
	switchName = "mutant_switch.go"
)

// switchFile returns a file that declares the active mutant in a package.
func switchFile(pkg string) []byte {
	return fmt.Appendf(nil, `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

var (
	activeMutant, _ = strconv.Atoi(os.Getenv(%q))
	reachedMutants  = os.Getenv(%q)
	noticedMutants  sync.Map
)

// reachMutant records once that the function of a mutant is called.
func reachMutant(number int) {
	if _, known := noticedMutants.LoadOrStore(number, true); known {
		return
	}
	file, err := os.OpenFile(reachedMutants, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(file, number)
	file.Close()
}
`, pkg, activeKey, reachedKey)
}

// span is the copy of a function for a mutant, in bytes of an instrumented file.
type span struct {
	start, end int
	mutant     *mutant
}

// edit replaces bytes of a file.
type edit struct {
	start, end int
	text       string
}

// instrument returns a file with all its mutants. Each mutant is a copy of its function. The function calls the
// copy of the active mutant instead of its own body. One build therefore serves all mutants.
func instrument(fset *token.FileSet, name string, text []byte, mutants []*mutant) ([]byte, []span) {
	at := func(position token.Pos) int { return fset.Position(position).Offset }
	byFunction := map[*ast.FuncDecl][]*mutant{}
	var edits []edit
	for _, m := range mutants {
		if m.file != name {
			continue
		}
		if byFunction[m.function] == nil {
			edits = append(edits, nameArguments(m.function, at)...)
		}
		byFunction[m.function] = append(byFunction[m.function], m)
	}
	var copies bytes.Buffer
	var spans []span
	for function, own := range byFunction {
		// The first mutant stands for all of the function.
		var body strings.Builder
		fmt.Fprintf(&body, " if reachedMutants != \"\" { reachMutant(%d) }; switch activeMutant {", own[0].number)
		for _, m := range own {
			copied := fmt.Sprintf("%s_mutant%d", function.Name.Name, m.number)
			fmt.Fprintf(&body, "case %d: %s; ", m.number, call(function, copied))
			start := copies.Len()
			fmt.Fprintf(&copies, "\n%s%s%s%s%s\n", text[at(function.Pos()):at(function.Name.Pos())], copied,
				text[at(function.Name.End()):m.start], m.replacement, text[m.end:at(function.End())])
			spans = append(spans, span{start: start, end: copies.Len(), mutant: m})
		}
		open := at(function.Body.Lbrace) + 1
		edits = append(edits, edit{open, open, body.String() + "};"})
	}
	changed := applyAll(text, edits)
	for i := range spans {
		spans[i].start, spans[i].end = spans[i].start+len(changed), spans[i].end+len(changed)
	}
	return append(changed, copies.Bytes()...), spans
}

// applyAll returns a text with edits that do not overlap.
func applyAll(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return a.start - b.start })
	var out bytes.Buffer
	from := 0
	for _, one := range edits {
		out.Write(text[from:one.start])
		out.WriteString(one.text)
		from = one.end
	}
	out.Write(text[from:])
	return out.Bytes()
}

// nameArguments returns the edits that name the receiver and the parameters of a function that have no names, so
// that it can pass them on.
func nameArguments(function *ast.FuncDecl, at func(token.Pos) int) []edit {
	var edits []edit
	index := 0
	for _, list := range []*ast.FieldList{function.Recv, function.Type.Params} {
		if list == nil {
			continue
		}
		for _, parameter := range list.List {
			if len(parameter.Names) == 0 {
				edits = append(edits, edit{at(parameter.Type.Pos()), at(parameter.Type.Pos()), argument(index) + " "})
				index++
			}
			for _, name := range parameter.Names {
				if name.Name == "_" {
					edits = append(edits, edit{at(name.Pos()), at(name.End()), argument(index)})
				}
				index++
			}
		}
	}
	return edits
}

// argument is the name of a receiver or parameter that has none.
func argument(index int) string { return fmt.Sprintf("mutantArgument%d", index) }

// call returns the statement with which a function calls its copy.
func call(function *ast.FuncDecl, name string) string {
	index := 0
	if receiver := names(function.Recv, &index); len(receiver) > 0 {
		name = receiver[0] + "." + name
	}
	if parameters := names(function.Type.TypeParams, new(int)); len(parameters) > 0 {
		name += "[" + strings.Join(parameters, ", ") + "]"
	}
	called := name + "(" + strings.Join(names(function.Type.Params, &index), ", ") + ")"
	if function.Type.Results == nil {
		return called + "; return"
	}
	return "return " + called
}

// names returns the names of parameters as arguments, and counts them.
func names(parameters *ast.FieldList, index *int) []string {
	var found []string
	if parameters == nil {
		return nil
	}
	for _, parameter := range parameters.List {
		own := []string{argument(*index)}
		if len(parameter.Names) > 0 {
			own = own[:0]
		}
		for i, name := range parameter.Names {
			if name.Name == "_" {
				own = append(own, argument(*index+i))
			} else {
				own = append(own, name.Name)
			}
		}
		*index += len(own)
		if _, variadic := parameter.Type.(*ast.Ellipsis); variadic {
			own[len(own)-1] += "..."
		}
		found = append(found, own...)
	}
	return found
}

// number numbers mutants, those of a function one after the other.
func number(mutants []*mutant) {
	leaders := map[*ast.FuncDecl]int{}
	for i, m := range mutants {
		m.number = i + 1
		if leaders[m.function] == 0 {
			leaders[m.function] = m.number
		}
		m.leader = leaders[m.function]
	}
}
