// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checksumFile is the name of the file for sha256sum --check.
const checksumFile = "SHA256SUMS"

// writeChecksums writes the checksums of all files in the folder, sorted by name.
func writeChecksums(folder string) error {
	sums, err := checksums(folder)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&lines, "%s  %s\n", sums[name], name)
	}
	return os.WriteFile(filepath.Join(folder, checksumFile), []byte(lines.String()), 0o644)
}

// checksums returns the checksums of all files in the folder, by name.
func checksums(folder string) (map[string]string, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, file := range files {
		if sums[file.Name()], err = checksum(filepath.Join(folder, file.Name())); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

func checksum(path string) (sum string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
