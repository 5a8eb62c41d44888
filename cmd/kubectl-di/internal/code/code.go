// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package code packs a folder of a program into a ConfigMap that the replicas of a job mount: kubectl di run --code.
package code

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The bounds of what is packed. The API server refuses ConfigMaps of more than 1 MiB, with the paths of the files.
const (
	MostBytes = 900 << 10
	MostFiles = 500
	// mostSeen bounds the search of a folder that is meant by mistake, such as the home folder.
	mostSeen = 20_000
	// mostOfName is how much of the job's name the name of the ConfigMap has.
	mostOfName = 200
)

// file is a file that is packed.
type file struct {
	path string
	size int64
	mode fs.FileMode
}

// Pack returns the ConfigMap of a folder's files for a job, and the paths of its keys. Its name depends on the content.
// What begins with a dot, __pycache__ and what is no regular file are left out.
func Pack(job, folder string) (*corev1.ConfigMap, []corev1.KeyToPath, error) {
	about, err := os.Stat(folder)
	switch {
	case err != nil:
		return nil, nil, err
	case !about.IsDir():
		return nil, nil, fmt.Errorf("%s is no folder: name the one that has the program", folder)
	}
	root := os.DirFS(folder)
	files, err := list(root)
	if err == nil {
		err = check(files)
	}
	if err != nil {
		return nil, nil, err
	}
	packed := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Immutable: ptr.To(true), Data: map[string]string{}, BinaryData: map[string][]byte{},
	}
	sum := sha256.New()
	keys := make([]corev1.KeyToPath, 0, len(files))
	for i, one := range files {
		content, err := read(root, one)
		if err != nil {
			return nil, nil, err
		}
		// A key has no slash.
		key := corev1.KeyToPath{Key: fmt.Sprintf("f%03d", i), Path: one.path}
		if one.mode&0o111 != 0 {
			key.Mode = ptr.To[int32](0o555)
		}
		if keys = append(keys, key); utf8.Valid(content) {
			packed.Data[key.Key] = string(content)
		} else {
			packed.BinaryData[key.Key] = content
		}
		fmt.Fprintf(sum, "%q %t %d\n", one.path, key.Mode != nil, len(content))
		sum.Write(content)
	}
	packed.Name = strings.TrimRight(job[:min(len(job), mostOfName)], "-.") + "-code-" + hex.EncodeToString(sum.Sum(nil))[:10]
	return packed, keys, nil
}

// list returns the files to pack, in the order of their paths.
func list(root fs.FS) ([]file, error) {
	var files []file
	seen := 0
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch seen++; {
		case err != nil:
			return err
		case seen > mostSeen:
			return fmt.Errorf("has more than %d files and folders: name the folder of the program alone", mostSeen)
		case name != "." && (strings.HasPrefix(base, ".") || base == "__pycache__"):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		about, err := entry.Info()
		if err == nil {
			files = append(files, file{name, about.Size(), about.Mode()})
		}
		return err
	})
	return files, err
}

// check returns an error if a ConfigMap cannot have the files. It is asked before any is read.
func check(files []file) error {
	total := int64(0)
	for _, one := range files {
		total += one.size
	}
	switch {
	case len(files) == 0:
		return errors.New("has no files")
	case len(files) > MostFiles:
		return fmt.Errorf("has %d files, and %d at most are sent: put the program into the image", len(files), MostFiles)
	case total > MostBytes:
		largest := slices.MaxFunc(files, func(a, b file) int { return int(a.size - b.size) })
		return fmt.Errorf("has %s, and %s at most are sent: put the program into the image, or data into a volume; the largest file is %s with %s",
			humanize.IBytes(uint64(total)), humanize.IBytes(MostBytes), largest.path, humanize.IBytes(uint64(largest.size)))
	}
	return nil
}

// read reads a file, which may have grown since it was listed.
func read(root fs.FS, one file) ([]byte, error) {
	opened, err := root.Open(one.path)
	if err != nil {
		return nil, err
	}
	defer opened.Close() //nolint:errcheck // It is only read.
	content, err := io.ReadAll(io.LimitReader(opened, one.size+1))
	if err == nil && int64(len(content)) > one.size {
		err = fmt.Errorf("%s grows while it is read", one.path)
	}
	return content, err
}
