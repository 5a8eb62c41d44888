// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// CompilePython compiles Python's files below a root by the interpreter that is in it. Debian does
// this in scripts of packages; else each start of a program would, which takes seconds.
// What is compiled holds hashes instead of times, so that it is the same for the same input.
func CompilePython(ctx context.Context, root string) error {
	loader, err := only(filepath.Join(root, "lib/*-linux-gnu/ld-linux-*.so.*"))
	if err != nil {
		return err
	}
	python, err := only(filepath.Join(root, "usr/bin/python3.[0-9]*"))
	if err != nil {
		return err
	}
	triplet := filepath.Base(filepath.Dir(loader))
	libraries := filepath.Join(root, "lib", triplet) + ":" + filepath.Join(root, "usr/lib", triplet)
	_, err = tool(ctx, []string{"PYTHONHOME=" + filepath.Join(root, "usr")}, loader, "--library-path", libraries, python, "-S", "-m", "compileall",
		"-qq", "-j0", "--invalidation-mode=unchecked-hash", "-s", root, "-p", "/", filepath.Join(root, "usr/lib"))
	return err
}

func only(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", fmt.Errorf("pattern %q: %w", pattern, err)
	}
	if len(found) != 1 {
		return "", fmt.Errorf("found %q at %s: want one file", strings.Join(found, " "), pattern)
	}
	return found[0], nil
}
