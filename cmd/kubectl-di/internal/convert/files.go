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

// input is a file that is read.
type input struct {
	// name is what reports call it.
	name string
	// path is where it is, "" for stdin.
	path string
	// relative is its path below the folder that was named.
	relative string
	content  []byte
}

// output is a file to write.
type output struct {
	input   *input
	content []byte
}

// readInputs reads all files that are named, once each.
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

// place tells the input from others, however it was named.
func (of *input) place() (string, error) {
	if of.path == "" {
		return "", nil
	}
	return filepath.Abs(of.path)
}

// read reads the input. It may be a pipe that blocks: an interrupt ends the wait.
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

// findInputs returns the file, or the manifests in the folder.
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
	// With a separator at its end a link to a folder is followed.
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

// leadsToFolder reports whether a link leads to a folder: such links are not
// followed, as they may lead in a circle.
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

// write writes the results where the flags say.
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
		// The mark of a file's beginning has no place within a stream.
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

// overwrites returns an error if an input is at the path.
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

// file is a file to be written.
type file struct {
	path    string
	content []byte
	// staged is the path of the new content, beside the file.
	staged string
	// old is the content before, nil for a new file.
	old  []byte
	mode fs.FileMode
}

// replaceFiles replaces all files or none: it writes all beside their places, and only
// then moves them. When a move fails, the files before it are restored; one that cannot be
// is named in the error. move is os.Rename.
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
			staged = staged[:len(staged)-1] // By a link and by its name.
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

// stage finds the place that the path leads to, and writes the new content beside it, down
// to the disk.
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

// readOld reads the file that is replaced; it fails where that may not be written.
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
	// A move needs no right to write the file itself.
	probe, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	f.mode = about.Mode().Perm()
	f.old, err = os.ReadFile(f.path)
	return errors.Join(err, probe.Close())
}

// restore undoes the moves before the one that failed.
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
