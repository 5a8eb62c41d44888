// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bugreport

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/yaml"
)

// archive is a compressed tar archive with one folder.
type archive struct {
	tar    *tar.Writer
	gzip   *gzip.Writer
	folder string
	now    time.Time
}

func newArchive(out io.Writer, folder string, now time.Time) *archive {
	compressed := gzip.NewWriter(out)
	return &archive{tar.NewWriter(compressed), compressed, folder, now}
}

// text writes a file.
func (a *archive) text(name, content string) error {
	header := &tar.Header{Name: a.folder + "/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: a.now}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if _, err := io.WriteString(a.tar, content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// object writes an object without secrets.
func (a *archive) object(name string, content map[string]any, redact *redactor) error {
	written, err := yaml.Marshal(redact.cleaned(content))
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	return a.text(name, string(written))
}

func (a *archive) close() error { return errors.Join(a.tar.Close(), a.gzip.Close()) }
