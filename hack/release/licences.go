// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
	"golang.org/x/mod/module"
)

// licences recognises the licences of modules by their texts in the module cache.
type licences struct {
	classifier *classifier.Classifier
	// cache is the folder of the module cache.
	cache string
	// known has what was recognised, by module and version.
	known map[module.Version][]string
}

func newLicences(ctx context.Context) (*licences, error) {
	made, err := assets.DefaultClassifier()
	if err != nil {
		return nil, fmt.Errorf("reading the texts of licences: %w", err)
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the module cache: %w", err)
	}
	return &licences{classifier: made, cache: strings.TrimSpace(string(cache)), known: map[module.Version][]string{}}, nil
}

// licenceFile matches the names of files in the root of a module that may have its licence.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)

// of returns the SPDX identifiers of a module's licences, sorted. A module without any that is recognised is an error:
// a maintainer has to read it before it is released.
func (l *licences) of(path, version string) ([]string, error) {
	key := module.Version{Path: path, Version: version}
	if found := l.known[key]; found != nil {
		return found, nil
	}
	folder, err := l.folder(key)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("files of module %s: %w", key, err)
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() || !licenceFile.MatchString(entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("licence of module %s: %w", key, err)
		}
		for _, match := range l.classifier.Match(content).Matches {
			if match.MatchType == "License" {
				found = append(found, match.Name)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("module %s has no licence that is recognised in %s", key, folder)
	}
	slices.Sort(found)
	l.known[key] = slices.Compact(found)
	return l.known[key], nil
}

// folder returns the folder of a module in the cache.
func (l *licences) folder(of module.Version) (string, error) {
	path, err := module.EscapePath(of.Path)
	if err != nil {
		return "", fmt.Errorf("folder of module %s: %w", of, err)
	}
	version, err := module.EscapeVersion(of.Version)
	if err != nil {
		return "", fmt.Errorf("folder of module %s: %w", of, err)
	}
	return filepath.Join(l.cache, filepath.FromSlash(path)+"@"+version), nil
}
