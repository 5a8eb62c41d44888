// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package readme follows a page of a repository as somebody does who has just
// cloned it.
package readme

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/test/docs"
)

// Walk is the way of a newcomer through a page: a fresh clone, a home with
// nothing in it, and the commands of the page in their order.
type Walk struct {
	// Repository is the checkout that is cloned, as it is committed.
	Repository string
	// Page is the page in it, and Name the walk that its blocks are marked with:
	// <!-- run: NAME -->.
	Page, Name string
	// Folder is an empty one, for the clone and the home.
	Folder string
	// Output takes what the commands print.
	Output io.Writer
}

// Do does the steps, and ends at the first that fails. Nothing of what they do
// may show in git.
func (w *Walk) Do(ctx context.Context) error {
	clone, home := filepath.Join(w.Folder, "clone"), filepath.Join(w.Folder, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return fmt.Errorf("making a home: %w", err)
	}
	environment := newcomers(os.Environ(), home)
	if err := w.run(ctx, environment, w.Folder, "git", "clone", "--quiet", w.Repository, clone); err != nil {
		return fmt.Errorf("cloning %s: %w", w.Repository, err)
	}
	steps, err := w.steps(clone)
	if err != nil {
		return err
	}
	for _, step := range steps {
		fmt.Fprintf(w.Output, "\n%s:%d:\n%s", step.Page, step.Line, step.Text)
		if err := w.run(ctx, environment, clone, "bash", "-euo", "pipefail", "-c", step.Text); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", step.Page, step.Line, strings.TrimSpace(step.Text), err)
		}
	}
	return w.unchanged(ctx, environment, clone)
}

// steps are the blocks of the page in the clone that are marked.
func (w *Walk) steps(clone string) ([]*docs.Block, error) {
	blocks, err := docs.Blocks(clone, w.Page)
	if err != nil {
		return nil, err
	}
	steps := slices.DeleteFunc(blocks, func(block *docs.Block) bool { return block.Run != w.Name })
	if len(steps) == 0 {
		return nil, fmt.Errorf("%s has no block after <!-- run: %s -->", w.Page, w.Name)
	}
	return steps, nil
}

func (w *Walk) run(ctx context.Context, environment []string, folder, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir, command.Env, command.Stdout, command.Stderr = folder, environment, w.Output, w.Output
	return command.Run()
}

// unchanged fails where the clone has files that were changed, or that git
// neither knows nor ignores.
func (w *Walk) unchanged(ctx context.Context, environment []string, clone string) error {
	status := exec.CommandContext(ctx, "git", "status", "--porcelain")
	status.Dir, status.Env, status.Stderr = clone, environment, w.Output
	changes, err := status.Output()
	if err != nil {
		return fmt.Errorf("asking git what was changed: %w", err)
	}
	if len(changes) > 0 {
		return errors.New("the commands left in the clone, where git is to see nothing new:\n" + string(changes))
	}
	return nil
}

// newcomers returns an environment in which nothing was set up: of the given one
// only what says how to reach the network, and how the machine is used.
func newcomers(environment []string, home string) []string {
	kept := []string{
		"PATH", "LANG", "TERM", "TMPDIR", "USER", "LOGNAME", "CI", "SUDO_UID", "SUDO_GID",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOTOOLCHAIN",
	}
	// The module cache is to be removed with the home.
	found := []string{"HOME=" + home, "GOFLAGS=-modcacherw"}
	for _, variable := range environment {
		if name, _, _ := strings.Cut(variable, "="); slices.Contains(kept, name) {
			found = append(found, variable)
		}
	}
	return found
}
