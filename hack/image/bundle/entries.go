// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// accounts is the user database, which some libraries require. An image may have its own.
const accounts = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"

const groups = "root:x:0:\nnonroot:x:65532:\n"

// entry is one file, folder or symbolic link of the layer.
type entry struct {
	path string
	kind byte
	mode int64
	// source is the file that has the content; if empty, the content is text.
	source, text string
	link         string
}

// entries returns what the image contains.
func entries(spec *Spec) ([]entry, error) {
	all := contents{}
	all["/tmp"] = folder("/tmp")
	for _, file := range spec.Files {
		if err := all.addFile(file); err != nil {
			return nil, err
		}
	}
	for _, dir := range spec.Folders {
		if err := all.addFolder(dir); err != nil {
			return nil, err
		}
	}
	for _, account := range []entry{{path: "/etc/group", text: groups}, {path: "/etc/passwd", text: accounts}} {
		if _, isGiven := all[account.path]; !isGiven {
			account.kind, account.mode = tar.TypeReg, 0o644
			all[account.path] = account
		}
	}
	all.addParents()
	return all.sorted(), nil
}

// rank puts folders first.
func rank(e entry) int {
	if e.kind == tar.TypeDir {
		return 0
	}
	return 1
}

// contents are the entries by path.
type contents map[string]entry

// sorted returns folders, then everything else, each by path.
func (c contents) sorted() []entry {
	return slices.SortedFunc(maps.Values(c), func(a, b entry) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.path, b.path))
	})
}

func (c contents) add(e entry) error {
	known, found := c[e.path]
	if found && (known.kind != tar.TypeDir || e.kind != tar.TypeDir) {
		return fmt.Errorf("path %q is given twice: want every path once", e.path)
	}
	if !found {
		c[e.path] = e
	}
	return nil
}

func (c contents) addFile(file File) error {
	info, err := os.Stat(file.Source)
	if err != nil {
		return fmt.Errorf("file for %s: %w", file.Path, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("file %q for %s is not a regular file", file.Source, file.Path)
	}
	return c.add(regular(file, info.Mode()))
}

// addFolder adds what is in a folder of this machine.
func (c contents) addFolder(dir File) error {
	err := filepath.WalkDir(dir.Source, func(source string, found fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir.Source, source)
		if err != nil {
			return err
		}
		return c.addFound(File{Source: source, Path: path.Join(dir.Path, filepath.ToSlash(below))}, found)
	})
	if err != nil {
		return fmt.Errorf("folder for %s: %w", dir.Path, err)
	}
	return nil
}

func (c contents) addFound(file File, found fs.DirEntry) error {
	info, err := found.Info()
	if err != nil {
		return err
	}
	switch {
	case file.Path == "/":
		return nil
	case info.IsDir():
		return c.add(folder(file.Path))
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(file.Source)
		if err != nil {
			return err
		}
		return c.add(entry{path: file.Path, kind: tar.TypeSymlink, mode: 0o777, link: link})
	case info.Mode().IsRegular():
		return c.add(regular(file, info.Mode()))
	}
	return fmt.Errorf("%s is a %s: want files, folders and symbolic links", file.Source, info.Mode().Type())
}

// addParents adds the folders of all entries.
func (c contents) addParents() {
	for _, file := range slices.Collect(maps.Keys(c)) {
		for dir := path.Dir(file); dir != "/"; dir = path.Dir(dir) {
			if _, found := c[dir]; !found {
				c[dir] = folder(dir)
			}
		}
	}
}

func regular(file File, mode fs.FileMode) entry {
	e := entry{path: file.Path, kind: tar.TypeReg, mode: 0o644, source: file.Source}
	if mode&0o111 != 0 {
		e.mode = 0o755
	}
	return e
}

func folder(dir string) entry {
	e := entry{path: dir, kind: tar.TypeDir, mode: 0o755}
	if dir == "/tmp" {
		e.mode = 0o1777
	}
	return e
}
