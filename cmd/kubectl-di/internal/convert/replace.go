// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// newFileMode is the mode of files that are not there yet.
const newFileMode = 0o644

// file is a file to be written.
type file struct {
	path    string
	content []byte
}

// replacement is a file on its way to its place. Beside the place lie the new
// content and, where there was one, a copy of the old.
type replacement struct {
	path string
	// staged is the path of the new content, kept that of the old, "" for none.
	staged, kept string
}

// replaceFiles replaces all files or none: it writes all beside their places,
// with copies of what is there, and only then moves them. When a move fails,
// the copies are moved back; what cannot be is named in the error. move is
// os.Rename.
func replaceFiles(files []file, move func(from, to string) error) (err error) {
	var replacements []replacement
	defer func() {
		for i := range replacements {
			err = errors.Join(err, replacements[i].clean())
		}
	}()
	taken := map[string]bool{}
	for i := range files {
		path, err := destination(files[i].path)
		if err != nil {
			return fmt.Errorf("%w\nnothing was written", err)
		}
		if taken[path] {
			continue // By a link and by its name.
		}
		taken[path] = true
		replaced, err := stage(path, files[i].content)
		replacements = append(replacements, replaced)
		if err != nil {
			return fmt.Errorf("%w\nnothing was written", err)
		}
	}
	for i := range replacements {
		if err := move(replacements[i].staged, replacements[i].path); err != nil {
			return takeBack(err, replacements[:i], move)
		}
	}
	return nil
}

// destination returns where a path leads: what is there is replaced, and not
// the link to it. It fails where that may not be written.
func destination(path string) (string, error) {
	place, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	about, err := os.Stat(place)
	switch {
	case err != nil:
		return "", err
	case !about.Mode().IsRegular():
		return "", fmt.Errorf("%s: is not a file that can be replaced; use --output-dir", path)
	case about.Mode().Perm()&0o200 == 0:
		return "", fmt.Errorf("%s: is read-only; make it writable, or use --output-dir", path)
	}
	// Moving another file there asks for no right to write this one.
	probe, err := os.OpenFile(place, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	return place, probe.Close()
}

// stage writes the new content, and a copy of the old, beside the place.
func stage(path string, content []byte) (replacement, error) {
	of := replacement{path: path}
	mode := fs.FileMode(newFileMode)
	switch about, err := os.Stat(path); {
	case err == nil:
		mode = about.Mode().Perm()
		old, err := os.ReadFile(path)
		if err != nil {
			return of, err
		}
		if of.kept, err = writeBeside(path, old, mode); err != nil {
			return of, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return of, err
	}
	var err error
	of.staged, err = writeBeside(path, content, mode)
	return of, err
}

// writeBeside writes to a new file in the folder of a path, down to the disk,
// and returns its path.
func writeBeside(path string, content []byte, mode fs.FileMode) (string, error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return "", err
	}
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close())
	return temporary.Name(), err
}

// takeBack undoes the moves that were made when one failed.
func takeBack(cause error, moved []replacement, move func(from, to string) error) error {
	var failures []error
	var written []string
	for i := range moved {
		if err := moved[i].undo(move); err != nil {
			failures = append(failures, err)
			written = append(written, moved[i].path)
		}
	}
	if len(written) == 0 {
		return fmt.Errorf("%w\nnothing was written", cause)
	}
	return fmt.Errorf("%w\nwritten nevertheless: %s", errors.Join(append([]error{cause}, failures...)...), strings.Join(written, ", "))
}

func (r *replacement) undo(move func(from, to string) error) error {
	if r.kept == "" {
		return os.Remove(r.path)
	}
	return move(r.kept, r.path)
}

// clean removes what still lies beside the place.
func (r *replacement) clean() error {
	var failures []error
	for _, path := range []string{r.staged, r.kept} {
		if path == "" {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}
