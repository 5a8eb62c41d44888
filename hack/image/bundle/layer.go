// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// accounts is the user database, which some libraries require.
const accounts = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"

const groups = "root:x:0:\nnonroot:x:65532:\n"

func newLayer(files []File, media types.MediaType) (v1.Layer, error) {
	content, err := archive(files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(media))
	if err != nil {
		return nil, fmt.Errorf("compress files: %w", err)
	}
	return layer, nil
}

func archive(files []File) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, dir := range folders(files) {
		if err := w.WriteHeader(folderHeader(dir)); err != nil {
			return nil, fmt.Errorf("folder %s: %w", dir, err)
		}
	}
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	for i, file := range sorted {
		if i > 0 && sorted[i-1].Path == file.Path {
			return nil, fmt.Errorf("path %q is given twice: want every path once", file.Path)
		}
		if err := addFile(w, file); err != nil {
			return nil, err
		}
	}
	for _, account := range []struct{ path, text string }{{"/etc/group", groups}, {"/etc/passwd", accounts}} {
		if err := addContent(w, account.path, 0o644, []byte(account.text)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("finish archive: %w", err)
	}
	return buffer.Bytes(), nil
}

func addFile(w *tar.Writer, file File) error {
	info, err := os.Stat(file.Source)
	if err != nil {
		return fmt.Errorf("file for %s: %w", file.Path, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("file %q for %s is not a regular file", file.Source, file.Path)
	}
	content, err := os.ReadFile(file.Source)
	if err != nil {
		return fmt.Errorf("file for %s: %w", file.Path, err)
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return addContent(w, file.Path, mode, content)
}

func addContent(w *tar.Writer, file string, mode int64, content []byte) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(file, "/"), Mode: mode, Size: int64(len(content)),
		ModTime: epoch(), Format: tar.FormatPAX,
	}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("header of %s: %w", file, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("content of %s: %w", file, err)
	}
	return nil
}

func folderHeader(dir string) *tar.Header {
	mode := int64(0o755)
	if dir == "/tmp" {
		mode = 0o1777
	}
	return &tar.Header{
		Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: mode, ModTime: epoch(), Format: tar.FormatPAX,
	}
}

// folders returns all parents of the files and the folders of every image, parents first.
func folders(files []File) []string {
	set := map[string]bool{"/tmp": true, "/etc": true}
	for _, file := range files {
		for dir := path.Dir(file.Path); dir != "/"; dir = path.Dir(dir) {
			set[dir] = true
		}
	}
	all := make([]string, 0, len(set))
	for dir := range set {
		all = append(all, dir)
	}
	sort.Strings(all)
	return all
}
