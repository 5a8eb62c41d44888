// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
)

// input is a file to read.
type input struct {
	// name is its name in reports.
	name string
	// path is its path, "" for stdin.
	path string
	// relative is its path relative to the named directory.
	relative string
	content  []byte
}

// output is a file to write.
type output struct {
	input   *input
	content []byte
}

// readInputs reads all named files, once each.
func readInputs(ctx context.Context, files []string, recursive bool, stdin io.Reader) ([]input, error) {
	var inputs []input
	seen := map[string]bool{}
	for _, file := range files {
		found, err := findInputs(file, recursive)
		if err != nil {
			return nil, err
		}
		for _, of := range found {
			place, err := of.place()
			if err != nil {
				return nil, err
			}
			if !seen[place] {
				seen[place] = true
				inputs = append(inputs, of)
			}
		}
	}
	for i := range inputs {
		content, err := inputs[i].read(ctx, stdin)
		if err != nil {
			return nil, err
		}
		inputs[i].content = content
	}
	return inputs, nil
}

// place returns the absolute path, to detect an input that is named twice.
func (of *input) place() (string, error) {
	if of.path == "" {
		return "", nil
	}
	return filepath.Abs(of.path)
}

// read reads the input. An interrupt stops the read, because a pipe may block.
func (of *input) read(ctx context.Context, stdin io.Reader) ([]byte, error) {
	var (
		content []byte
		err     error
	)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if of.path == "" {
			content, err = io.ReadAll(stdin)
		} else {
			content, err = os.ReadFile(of.path)
		}
	}()
	select {
	case <-ctx.Done():
		return nil, errInterrupted
	case <-done:
	}
	if err != nil && of.path == "" {
		return nil, fmt.Errorf("reading stdin: %w", err)
	}
	return content, err
}

// findInputs returns the file, or the manifests in the directory.
func findInputs(name string, recursive bool) ([]input, error) {
	if name == "-" {
		return []input{{name: "stdin", relative: "stdin.yaml"}}, nil
	}
	about, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !about.IsDir() {
		return []input{{name: name, path: filepath.Clean(name), relative: filepath.Base(name)}}, nil
	}
	// A trailing separator makes the walk follow a link to a directory.
	root := strings.TrimRight(name, string(filepath.Separator)) + string(filepath.Separator)
	var found []input
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && !recursive:
			return fs.SkipDir
		case entry.IsDir() || !isManifest(path) || leadsToFolder(path):
			return nil
		}
		relative, err := filepath.Rel(root, path)
		found = append(found, input{name: path, path: path, relative: relative})
		return err
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: holds no .yaml, .yml or .json file", name)
	}
	return found, err
}

// leadsToFolder reports whether a link points to a directory. Such links are not followed, because
// they may form a cycle.
func leadsToFolder(path string) bool {
	about, err := os.Stat(path)
	return err == nil && about.IsDir()
}

func isManifest(path string) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// write writes the results to the destination of the flags.
func (o *convertOptions) write(outputs []output, stdout io.Writer) error {
	switch {
	case o.inPlace:
		return replaceFiles(changedFiles(outputs), os.Rename)
	case o.outputDir != "":
		files, err := o.filesInDir(outputs)
		if err != nil {
			return fmt.Errorf("--output-dir: %w\nnothing was written", err)
		}
		return replaceFiles(files, os.Rename)
	}
	_, err := io.WriteString(stdout, joined(outputs))
	return err
}

// joined returns all results as one stream of documents.
func joined(outputs []output) string {
	var all strings.Builder
	for _, out := range outputs {
		// A byte order mark is valid only at the start of a file.
		text := strings.TrimPrefix(string(out.content), manifests.ByteOrderMark)
		if all.Len() > 0 && strings.TrimSpace(text) != "" {
			if !strings.HasSuffix(all.String(), "\n") {
				all.WriteByte('\n')
			}
			if !strings.HasPrefix(text, "---") {
				all.WriteString("---\n")
			}
		}
		all.WriteString(text)
	}
	return all.String()
}

func changedFiles(outputs []output) []file {
	var files []file
	for _, out := range outputs {
		if string(out.content) != string(out.input.content) {
			files = append(files, file{path: out.input.path, content: out.content})
		}
	}
	return files
}

func (o *convertOptions) filesInDir(outputs []output) ([]file, error) {
	files := make([]file, 0, len(outputs))
	taken := map[string]string{}
	for _, out := range outputs {
		path := filepath.Join(o.outputDir, out.input.relative)
		if o.output != "" {
			path = strings.TrimSuffix(path, filepath.Ext(path)) + "." + o.output
		}
		if other := taken[path]; other != "" {
			return nil, fmt.Errorf("%s and %s would both be written to %s; convert them one by one, to folders of their own", other,
				out.input.name, path)
		}
		if err := overwrites(path, outputs); err != nil {
			return nil, err
		}
		taken[path] = out.input.name
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		files = append(files, file{path: path, content: out.content})
	}
	return files, nil
}

// overwrites returns an error if the path is an input.
func overwrites(path string, outputs []output) error {
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, out := range outputs {
		if out.input.path == "" {
			continue
		}
		about, err := os.Stat(out.input.path)
		if err != nil {
			return err
		}
		if os.SameFile(there, about) {
			return fmt.Errorf("%s is an input itself; use --in-place, or another folder", path)
		}
	}
	return nil
}

// file is a file to write.
type file struct {
	path    string
	content []byte
	// staged is the path of the new content, in the same directory.
	staged string
	// old is the previous content, nil for a new file.
	old  []byte
	mode fs.FileMode
}

// replaceFiles replaces all files or none. It writes all new contents to temporary files first, and
// then moves them. When a move fails, it restores the files that were moved before. The error names
// each file that could not be restored. move is os.Rename.
func replaceFiles(files []file, move func(from, to string) error) (err error) {
	var staged []file
	defer func() {
		for i := range staged {
			if failed := os.Remove(staged[i].staged); !errors.Is(failed, fs.ErrNotExist) {
				err = errors.Join(err, failed)
			}
		}
	}()
	taken := map[string]bool{}
	for _, one := range files {
		if err := one.stage(); err != nil {
			return fmt.Errorf("%w\nnothing was written", err)
		}
		staged = append(staged, one)
		if taken[one.path] {
			staged = staged[:len(staged)-1] // The same file, once by a link.
			if err := os.Remove(one.staged); err != nil {
				return err
			}
		}
		taken[one.path] = true
	}
	for i := range staged {
		if err := move(staged[i].staged, staged[i].path); err != nil {
			return restore(err, staged[:i])
		}
	}
	return nil
}

// stage resolves the path, writes the new content beside it, and syncs it to disk.
func (f *file) stage() error {
	f.mode = 0o644
	place, err := filepath.EvalSymlinks(f.path)
	if err == nil {
		f.path = place
		err = f.readOld()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+"-*")
	if err != nil {
		return err
	}
	f.staged = temporary.Name()
	_, err = temporary.Write(f.content)
	if err = errors.Join(err, temporary.Chmod(f.mode), temporary.Sync(), temporary.Close()); err != nil {
		return errors.Join(err, os.Remove(f.staged))
	}
	return nil
}

// readOld reads the previous content; it returns an error if the file is not writable.
func (f *file) readOld() error {
	about, err := os.Stat(f.path)
	switch {
	case err != nil:
		return err
	case !about.Mode().IsRegular():
		return fmt.Errorf("%s: is not a file that can be replaced; use --output-dir", f.path)
	case about.Mode().Perm()&0o200 == 0:
		return fmt.Errorf("%s: is read-only; make it writable, or use --output-dir", f.path)
	}
	// A move would succeed without write permission on the file.
	probe, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	f.mode = about.Mode().Perm()
	f.old, err = os.ReadFile(f.path)
	return errors.Join(err, probe.Close())
}

// restore undoes the moves that preceded the failed one.
func restore(cause error, moved []file) error {
	failures, written := []error{cause}, []string(nil)
	for i := range moved {
		undo := func() error { return os.WriteFile(moved[i].path, moved[i].old, moved[i].mode) }
		if moved[i].old == nil {
			undo = func() error { return os.Remove(moved[i].path) }
		}
		if err := undo(); err != nil {
			failures, written = append(failures, err), append(written, moved[i].path)
		}
	}
	if len(written) == 0 {
		return fmt.Errorf("%w\nnothing was written", cause)
	}
	return fmt.Errorf("%w\nwritten nevertheless: %s", errors.Join(failures...), strings.Join(written, ", "))
}
