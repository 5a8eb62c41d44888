// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

var (
	// unknownField matches the API server's message about a field that it does not know.
	unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)
	// missingType matches its message about a task without a type.
	missingType = regexp.MustCompile(`^\s*spec\.tasks\[\d+\]\.type: Required value$`)
	// index matches the index of a list in a path.
	index = regexp.MustCompile(`\[\d+\]`)
)

// suggest adds to a line about a job of an API version what its author may have meant.
func suggest(line, version string) string {
	if missingType.MatchString(line) {
		return line + `: one of "coordinator", "learner", "collector", "evaluator", "none"`
	}
	found := unknownField.FindStringSubmatch(line)
	if found == nil {
		return line
	}
	own, other, otherVersion := reflect.TypeFor[v2alpha1.DIJob](), reflect.TypeFor[v1alpha1.DIJob](), v1alpha1.GroupVersion
	if version == v1alpha1.GroupVersion.String() {
		own, other, otherVersion = other, own, v2alpha1.GroupVersion
	}
	path := strings.Split(index.ReplaceAllString(found[1], ""), ".")
	parent, name := path[:len(path)-1], path[len(path)-1]
	if slices.Contains(fieldNames(other, parent), name) {
		return fmt.Sprintf("%s: it is a field of %s; kubectl di convert -f FILE --to %s converts a manifest", line, otherVersion, version[strings.Index(version, "/")+1:])
	}
	if near := Nearest(name, fieldNames(own, parent)); near != "" {
		return fmt.Sprintf("%s: did you mean %s?", line, near)
	}
	return line
}

// fieldNames returns the JSON names of the fields of the object at a path; none if the type does not say.
func fieldNames(goType reflect.Type, path []string) []string {
	for goType.Kind() == reflect.Pointer || goType.Kind() == reflect.Slice {
		goType = goType.Elem()
	}
	if goType.Kind() != reflect.Struct {
		return nil
	}
	var found []string
	for i := range goType.NumField() {
		field := goType.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "":
		case len(path) == 0:
			found = append(found, name)
		case name == path[0]:
			return fieldNames(field.Type, path[1:])
		}
	}
	return found
}

// Nearest returns the most similar of some names, "" if none is similar.
func Nearest(name string, others []string) string {
	best, least := "", 1+len(name)/3
	for _, other := range others {
		if distance := editDistance(strings.ToLower(name), strings.ToLower(other)); distance < least {
			best, least = other, distance
		}
	}
	return best
}

// editDistance returns how many letters must be inserted, removed or replaced to make one word of another.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
