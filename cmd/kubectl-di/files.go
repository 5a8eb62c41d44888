// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// output is a file that is to be written.
type output struct {
	input   *input
	content []byte
}

// readInputs reads all files that are named, once each.
func readInputs(files []string, recursive bool, stdin io.Reader) ([]input, error) {
	var inputs []input
	for _, file := range files {
		found, err := findInputs(file, recursive)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, found...)
	}
	seen := map[string]bool{}
	inputs = slices.DeleteFunc(inputs, func(of input) bool {
		again := seen[of.path]
		seen[of.path] = true
		return again
	})
	for i := range inputs {
		content, err := inputs[i].read(stdin)
		if err != nil {
			return nil, err
		}
		inputs[i].content = content
	}
	return inputs, nil
}

func (of *input) read(stdin io.Reader) ([]byte, error) {
	if of.path == "" {
		content, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("reading stdin: %w", err)
		}
		return content, nil
	}
	return os.ReadFile(of.path)
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
	var found []input
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != name && !recursive:
			return fs.SkipDir
		case entry.IsDir() || !isManifest(path):
			return nil
		}
		relative, err := filepath.Rel(name, path)
		found = append(found, input{name: path, path: path, relative: relative})
		return err
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: holds no .yaml, .yml or .json file", name)
	}
	return found, err
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
		return replaceFiles(changedFiles(outputs))
	case o.outputDir != "":
		files, err := o.filesInDir(outputs)
		if err != nil {
			return err
		}
		return replaceFiles(files)
	}
	_, err := io.WriteString(stdout, joined(outputs))
	return err
}

// joined returns all results as one stream of documents.
func joined(outputs []output) string {
	var all strings.Builder
	for _, out := range outputs {
		text := string(out.content)
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

// file is a file to be written.
type file struct {
	path    string
	content []byte
}

// newFileMode is the mode of files that are not there yet, less the umask.
const newFileMode = 0o644

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
			return nil, fmt.Errorf("%s and %s would both be written to %s: nothing was written", other, out.input.name, path)
		}
		taken[path] = out.input.name
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		files = append(files, file{path: path, content: out.content})
	}
	return files, nil
}

// replaceFiles writes all files beside their places, and only then moves them
// there. What was moved when a move fails is named in the error.
func replaceFiles(files []file) (err error) {
	staged := make([]string, 0, len(files))
	defer func() {
		for _, path := range staged {
			if remove := os.Remove(path); remove != nil && !errors.Is(remove, fs.ErrNotExist) {
				err = errors.Join(err, remove)
			}
		}
	}()
	for i := range files {
		temporary, err := files[i].stage()
		if err != nil {
			return fmt.Errorf("%w\nnothing was written", err)
		}
		staged = append(staged, temporary)
	}
	for i := range files {
		if err := os.Rename(staged[i], files[i].path); err != nil {
			return fmt.Errorf("%w; written before that: %d of %d files", err, i, len(files))
		}
	}
	return nil
}

// stage writes the content to a file beside its place, and returns its path.
func (f *file) stage() (string, error) {
	mode := fs.FileMode(newFileMode)
	// Where a link leads is what is replaced, and not the link.
	if real, err := filepath.EvalSymlinks(f.path); err == nil {
		f.path = real
		about, err := os.Stat(real)
		if err != nil {
			return "", err
		}
		mode = about.Mode().Perm()
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+"-*")
	if err != nil {
		return "", err
	}
	_, err = temporary.Write(f.content)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close())
	return temporary.Name(), err
}
