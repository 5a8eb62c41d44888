// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// overlayMagic is the type that statfs reports for an overlay file system.
const overlayMagic = 0x794c7630

// below returns the mount points under a folder, deepest first.
func below(mounts []Mount, dir string) []string {
	var found []string
	for _, m := range mounts {
		if strings.HasPrefix(m.Path, dir+"/") {
			found = append(found, m.Path)
		}
	}
	slices.Reverse(found)
	return found
}

// Unmount unmounts everything under a folder.
func Unmount(dir string) error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	for _, path := range below(mounts, dir) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}

// RemoveTree deletes a folder, unless a file system is still mounted below it, whose content could
// be deleted too.
func RemoveTree(dir string) error {
	if err := Unmount(dir); err != nil {
		return err
	}
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	if left := below(mounts, dir); len(left) > 0 {
		return fmt.Errorf("%s is still mounted below %s, which therefore stays", strings.Join(left, ", "), dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// Snapshotter returns containerd's method of stacking image layers in a folder. Overlay file
// systems cannot be stacked on each other, so layers are copied there.
func Snapshotter(dir string) (string, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	if stat.Type == overlayMagic {
		return "native", nil
	}
	return "overlayfs", nil
}
