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

// Traces are the few things programs of the cluster put outside the state
// directory, because no setting of theirs says otherwise.
type Traces struct {
	// Root is / but in tests.
	Root string
	// StateDir is what links into are ours.
	StateDir string
	// Network is the name of the pod network.
	Network string
}

// dirs are the folders the traces are in, inner ones first.
func (t Traces) dirs() []string {
	dirs := []string{
		"var/lib/cni/results", "var/lib/cni", "var/lib/kubelet/device-plugins", "var/lib/kubelet", "var/log/containers", "run/mount",
	}
	for i, dir := range dirs {
		dirs[i] = filepath.Join(t.Root, dir)
	}
	return dirs
}

// Record records which of the folders do not exist yet.
func (t Traces) Record(file string) error {
	return recordOnce(file, func() ([]string, error) {
		return slices.DeleteFunc(t.dirs(), func(dir string) bool {
			_, err := os.Stat(dir)
			return err == nil
		}), nil
	})
}

// Remove removes the traces, and those of the folders that did not exist
// before and are empty now. Without a record nothing was touched.
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
			// A folder that another program uses by now is not empty, and stays.
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

// networkResults are the records of the network plugins for our pods. Those
// for the loopback device have only the pod's id, which is in the names of those for
// our network.
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

// logLinks are the links the kubelet makes to the logs of containers.
func (t Traces) logLinks() []string {
	links, _ := filepath.Glob(filepath.Join(t.Root, "var/log/containers/*"))
	return slices.DeleteFunc(links, func(link string) bool {
		target, err := os.Readlink(link)
		return err != nil || !strings.HasPrefix(target, t.StateDir+"/")
	})
}
