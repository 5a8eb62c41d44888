// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// check builds the commit again in a clone at another path. It returns an error unless each
// artifact has the same bytes as in the folder.
func (r *release) check(ctx context.Context, fresh bool) (err error) {
	if err := r.source.checkRepeatable(); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "release-check-")
	if err != nil {
		return fmt.Errorf("folder to check in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	again := *r
	again.root, again.out = filepath.Join(folder, "checkout"), filepath.Join(folder, "release")
	if fresh {
		again.env = append(again.env, "GOCACHE="+filepath.Join(folder, "cache"))
	}
	if _, err := git(ctx, r.root, "clone", "--quiet", r.root, again.root); err != nil {
		return err
	}
	if _, err := git(ctx, again.root, "checkout", "--quiet", "--detach", r.source.revision); err != nil {
		return err
	}
	if err := again.build(ctx); err != nil {
		return fmt.Errorf("second build: %w", err)
	}
	return r.compare(again.out)
}

func (r *release) compare(other string) error {
	first, err := checksums(r.out)
	if err != nil {
		return err
	}
	second, err := checksums(other)
	if err != nil {
		return err
	}
	if differ := differences(first, second); len(differ) > 0 {
		return fmt.Errorf("two builds of commit %s differ in: %s", r.source.revision, strings.Join(differ, ", "))
	}
	r.say("two builds of commit %s gave the same %d files", r.source.revision, len(first))
	return nil
}

// differences returns the files that only one map contains, or whose checksums differ.
func differences(a, b map[string]string) []string {
	names := map[string]bool{}
	for name := range maps.Keys(a) {
		names[name] = true
	}
	for name := range maps.Keys(b) {
		names[name] = true
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(name string) bool { return a[name] == b[name] })
}
