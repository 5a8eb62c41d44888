// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// unreleased is the heading of changes without a version.
const unreleased = "Unreleased"

// writeNotes writes the section of the changelog, and the image references with digests, which pin
// the content of the images.
func (r *release) writeNotes() error {
	notes, err := r.changes()
	if err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", notes)
	if len(r.digests) > 0 {
		fmt.Fprint(&out, "\n### Images\n\n")
	}
	for _, program := range r.programs {
		if digest, ok := r.digests[program.name]; ok {
			fmt.Fprintf(&out, "- `%s@%s`\n", r.imageName(program), digest)
		}
	}
	fmt.Fprintf(&out, "\nBuilt from commit %s with %s.\n", r.source.revision, r.compiler)
	fmt.Fprintf(&out, "\nHow to install, and to check what was downloaded: %s/blob/%s/docs/release.md\n", sourceURL, r.version)
	return os.WriteFile(r.artifact("release-notes.md"), []byte(out.String()), 0o644)
}

// changes returns the changelog's section for the version. For a snapshot it returns the unreleased
// changes, which may be missing just after a release.
func (r *release) changes() (string, error) {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	notes, err := section(string(changelog), chartVersion(r.version))
	if err == nil {
		return forReleasePage(notes, r.version), nil
	}
	if !r.snapshot {
		return "", fmt.Errorf("CHANGELOG.md: %w", err)
	}
	if notes, err = section(string(changelog), unreleased); err != nil {
		return "The changelog says nothing of this snapshot.", nil //nolint:nilerr // As the text says.
	}
	return forReleasePage(notes, r.version), nil
}

// section returns the text in a changelog under the heading of a version, without the heading.
func section(changelog, version string) (string, error) {
	var lines []string
	found := false
	for line := range strings.Lines(changelog) {
		switch title, isHeading := strings.CutPrefix(line, "## "); {
		case isHeading && found:
			return content(lines, version)
		case isHeading:
			found = headingVersion(title) == version
		case found && isLink(line):
		case found:
			lines = append(lines, line)
		}
	}
	if !found {
		return "", fmt.Errorf("no section \"## [%s] - YYYY-MM-DD\"", version)
	}
	return content(lines, version)
}

// headingVersion returns the version in a heading: 2.0.0 of "[2.0.0] - 2026-01-31".
func headingVersion(title string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(title), " ")
	return strings.Trim(name, "[]")
}

// isLink reports whether the line defines the target of a heading's link.
func isLink(line string) bool {
	return strings.HasPrefix(line, "[") && strings.Contains(line, "]: ")
}

func content(lines []string, version string) (string, error) {
	text := strings.TrimSpace(strings.Join(lines, ""))
	if text == "" {
		return "", errors.New("section " + version + " is empty: want what changed")
	}
	return text, nil
}

// forReleasePage adapts text of the changelog to a release page, where links are relative to
// another folder and a newline breaks the line.
func forReleasePage(notes, version string) string {
	relative := regexp.MustCompile(`\]\(([^():#\s][^():\s]*)\)`)
	return relative.ReplaceAllString(joinLines(notes), "]("+sourceURL+"/blob/"+version+"/$1)")
}

// joinLines joins the lines of each paragraph and each list item. Code remains unchanged.
func joinLines(text string) string {
	var out strings.Builder
	inCode, open := false, false
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		fence := strings.HasPrefix(trimmed, "```")
		switch {
		case out.Len() == 0:
		case open && !inCode && !fence && continues(trimmed):
			line = " " + trimmed
		default:
			out.WriteString("\n")
		}
		out.WriteString(line)
		inCode = inCode != fence
		open = trimmed != "" && !fence && !strings.HasPrefix(trimmed, "#")
	}
	return out.String()
}

// continues reports whether a line continues the previous paragraph or item.
func continues(line string) bool {
	begins := regexp.MustCompile(`^([-*+|>#]|\d+\.)( |$|[|#])`)
	return line != "" && !begins.MatchString(line)
}
