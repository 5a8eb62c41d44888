// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// newLayer makes one layer of the entries. It reads them again each time it is read, so that only
// the compressed content is in memory.
func newLayer(entries []entry, media types.MediaType) (v1.Layer, error) {
	opener := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(archive(entries, w)) }()
		return r, nil
	}
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(media), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compress files: %w", err)
	}
	return layer, nil
}

func archive(entries []entry, out io.Writer) error {
	w := tar.NewWriter(out)
	for i := range entries {
		if err := add(w, &entries[i]); err != nil {
			return fmt.Errorf("%s: %w", entries[i].path, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("finish archive: %w", err)
	}
	return nil
}

func add(w *tar.Writer, e *entry) error {
	header := &tar.Header{
		Typeflag: e.kind, Name: strings.TrimPrefix(e.path, "/"), Linkname: e.link, Mode: e.mode,
		ModTime: epoch(), Format: tar.FormatPAX,
	}
	switch e.kind {
	case tar.TypeDir:
		header.Name += "/"
	case tar.TypeReg:
		return addFile(w, header, e)
	}
	return w.WriteHeader(header)
}

func addFile(w *tar.Writer, header *tar.Header, e *entry) error {
	if e.source == "" {
		return addContent(w, header, strings.NewReader(e.text), int64(len(e.text)))
	}
	file, err := os.Open(e.source)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		err = addContent(w, header, file, info.Size())
	}
	return errors.Join(err, file.Close())
}

func addContent(w *tar.Writer, header *tar.Header, content io.Reader, size int64) error {
	header.Size = size
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}
