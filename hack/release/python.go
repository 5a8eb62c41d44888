// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	// interpreter runs the build back end of the Python library.
	interpreter = "python3"
	// buildBackEnd writes the wheel and the source archive of the library into a folder.
	buildBackEnd = "python/build_backend/di_build.py"
)

// buildPython builds the wheel and the source archive of the Python library.
func (r *release) buildPython(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, interpreter, filepath.Join(r.root, buildBackEnd), r.staged)
	cmd.Env = append(os.Environ(), "DI_VERSION="+r.version, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdout, cmd.Stderr = r.progress, r.progress
	return cmd.Run()
}

// checkInterpreter refuses a machine that cannot build the library.
func checkInterpreter() error {
	if _, err := exec.LookPath(interpreter); err != nil {
		return fmt.Errorf("%s is not in PATH: install Python 3.9 or later", interpreter)
	}
	return nil
}
