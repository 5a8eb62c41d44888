// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Traces are the files that programs of the cluster create outside the state directory. No setting
// of theirs prevents it.
type Traces struct {
	// Root is / except in tests.
	Root string
	// StateDir is the folder that the cluster's own links point into.
	StateDir string
	// Network is the name of the pod network.
	Network string
}

// dirs returns the folders of the traces, inner ones first.
func (t Traces) dirs() []string {
	dirs := []string{
		"var/lib/cni/results", "var/lib/cni", "var/lib/kubelet/device-plugins", "var/lib/kubelet", "var/log/containers", "run/mount",
	}
	for i, dir := range dirs {
		dirs[i] = filepath.Join(t.Root, dir)
	}
	return dirs
}

// Record records the folders that do not exist yet.
func (t Traces) Record(file string) error {
	return recordOnce(file, func() ([]string, error) {
		return slices.DeleteFunc(t.dirs(), func(dir string) bool {
			_, err := os.Stat(dir)
			return err == nil
		}), nil
	})
}

// Remove removes the traces, and the folders that did not exist before and are empty now. Without a
// record nothing was created.
func (t Traces) Remove(file string) error {
	absent, err := ReadRecord[[]string](file)
	if err != nil || absent == nil {
		return err
	}
	for _, path := range t.files() {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove trace: %w", err)
		}
	}
	for _, dir := range t.dirs() {
		if slices.Contains(absent, dir) {
			// A folder that another program also uses is not empty and remains.
			_ = os.Remove(dir)
		}
	}
	return nil
}

func (t Traces) files() []string {
	kubelet := filepath.Join(t.Root, "var/lib/kubelet/device-plugins")
	files := []string{
		filepath.Join(kubelet, "kubelet.sock"), filepath.Join(kubelet, "DEPRECATION"), filepath.Join(kubelet, "kubelet_internal_checkpoint"),
	}
	return slices.Concat(files, t.networkResults(), t.logLinks())
}

// networkResults returns the network plugins' records for the cluster's pods. The records for the
// loopback device contain only the pod's id. The names of the records for the pod network contain
// it too.
func (t Traces) networkResults() []string {
	dir := filepath.Join(t.Root, "var/lib/cni/results")
	// The pattern is well formed, so Glob cannot fail.
	files, _ := filepath.Glob(filepath.Join(dir, t.Network+"-*-eth0"))
	for _, file := range slices.Clone(files) {
		id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), t.Network+"-"), "-eth0")
		files = append(files, filepath.Join(dir, "cni-loopback-"+id+"-lo"))
	}
	return files
}

// logLinks returns the links that the kubelet creates to the logs of containers.
func (t Traces) logLinks() []string {
	links, _ := filepath.Glob(filepath.Join(t.Root, "var/log/containers/*"))
	return slices.DeleteFunc(links, func(link string) bool {
		target, err := os.Readlink(link)
		return err != nil || !strings.HasPrefix(target, t.StateDir+"/")
	})
}
