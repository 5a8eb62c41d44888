// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	markdown "github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// minFragment is the minimum length of a fragment that identifies a message.
const minFragment = 12

// kubernetes are texts of the guide that Kubernetes writes.
func kubernetes() []string {
	return []string{
		"argument list too long", "conversion webhook for", "Kind=DIJob failed", "failed calling webhook", "certificate signed by unknown authority",
		"Insufficient nvidia.com/gpu", "exceeded quota", "must specify limits.cpu for", "maximum cpu usage per Container is", "no PriorityClass with name", "violates PodSecurity", "ValidatingAdmissionPolicy", "denied request",
	}
}

func TestTheTextsOfTroubleshootingAreThoseOfTheProgram(t *testing.T) {
	ours := strings.Join(literals(t), "\n")
	checked := 0
	for _, span := range spans(t, "docs/troubleshooting.md") {
		for _, fragment := range fragments(span) {
			checked++
			if !strings.Contains(ours, fragment) {
				t.Errorf("no program has %q, of `%s`", fragment, span)
			}
		}
	}
	if checked < 25 {
		t.Errorf("%d texts were checked: is the guide read at all?", checked)
	}
}

// spans returns the texts in code font of a page that have several words and are no
// commands.
func spans(t *testing.T, page string) []string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(testkit.Root(), page))
	expect.NoError(t, err)
	var found []string
	err = markdown.Walk(goldmark.DefaultParser().Parse(text.NewReader(source)), func(node markdown.Node, entering bool) (markdown.WalkStatus, error) {
		if !entering || node.Kind() != markdown.KindCodeSpan {
			return markdown.WalkContinue, nil
		}
		var span strings.Builder
		for part := node.FirstChild(); part != nil; part = part.NextSibling() {
			if segment, isText := part.(*markdown.Text); isText {
				span.Write(segment.Segment.Value(source))
			}
		}
		first, _, many := strings.Cut(span.String(), " ")
		if _, isCommand := checks()[first]; many && !isCommand {
			found = append(found, span.String())
		}
		return markdown.WalkSkipChildren, nil
	})
	expect.NoError(t, err)
	return found
}

// fragments returns the constant parts of an example of a message: the texts between
// names, numbers and omissions.
func fragments(span string) []string {
	varying := regexp.MustCompile(`\.\.\.|"[^"]*"|\*v1\.\w+ \S+|\([^)]*\)|\b(exit code )?[0-9]+\+?|\bj-[a-z0-9-]+|\bdi-container\b| x | n1 |: | of container\b|\bdi-server$|create dijobs/replicas|diengine\.opendilab\.org`)
	var found []string
	for _, part := range varying.Split(span, -1) {
		part = strings.Trim(part, " ,;:")
		foreign := slices.ContainsFunc(kubernetes(), func(words string) bool { return strings.Contains(part, words) || strings.Contains(words, part) })
		if len(part) >= minFragment && !foreign {
			found = append(found, part)
		}
	}
	return found
}

// literals returns all strings of the programs.
func literals(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, folder := range []string{"allocation", "cmd", "controllers", "conversion", "internal", "job", "server", "upgrade", "webhook"} {
		err := filepath.WalkDir(filepath.Join(testkit.Root(), folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				literal, isLiteral := node.(*ast.BasicLit)
				if !isLiteral || literal.Kind != token.STRING {
					return true
				}
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Errorf("%s: %v", path, err)
				}
				found = append(found, value)
				return true
			})
			return nil
		})
		expect.NoError(t, err)
	}
	return found
}
