// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// entry is one file of an archive.
type entry struct {
	name, source string
	mode         int64
}

// packArchives writes the archives that users install.
func (r *release) packArchives(all []binary) error {
	for _, binary := range all {
		if !binary.program.archive {
			continue
		}
		entries := []entry{
			{"LICENSE", filepath.Join(r.root, "LICENSE"), 0o644},
			{binary.file(), r.binaryPath(binary), 0o755},
		}
		if err := packArchive(r.artifact(binary.archive(r.version)), entries, r.source.time); err != nil {
			return err
		}
	}
	return nil
}

// packArchive writes a zip or a tar archive, according to the file name. It ignores the owners and
// times of the files.
func packArchive(out string, entries []entry, changed time.Time) (err error) {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	write := writeTarGz
	if strings.HasSuffix(out, ".zip") {
		write = writeZip
	}
	if err := write(file, entries, changed); err != nil {
		return fmt.Errorf("pack %s: %w", filepath.Base(out), err)
	}
	return nil
}

func writeTarGz(out io.Writer, entries []entry, changed time.Time) error {
	compressed := gzip.NewWriter(out)
	w := tar.NewWriter(compressed)
	for _, entry := range entries {
		content, err := os.ReadFile(entry.source)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: entry.name, Mode: entry.mode, Size: int64(len(content)), ModTime: changed,
			Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

func writeZip(out io.Writer, entries []entry, changed time.Time) error {
	w := zip.NewWriter(out)
	for _, entry := range entries {
		content, err := os.ReadFile(entry.source)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: entry.name, Method: zip.Deflate, Modified: changed}
		header.SetMode(os.FileMode(entry.mode))
		file, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}
