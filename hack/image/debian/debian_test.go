// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build debian

package debian

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repository makes a repository of packages, by name, with what they depend on. It returns the sources.
func repository(t *testing.T, depends map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	var index strings.Builder
	for name, on := range depends {
		control := fmt.Sprintf("Package: %s\nVersion: 1:2.0\nArchitecture: all\nMaintainer: nobody\nDescription: test\n", name)
		if on != "" {
			control += "Depends: " + on + "\n"
		}
		tree := filepath.Join(t.TempDir(), name)
		for file, content := range map[string]string{
			"DEBIAN/control": control, "DEBIAN/postinst": "#!/bin/sh\nexit 1\n", "usr/lib/" + name: name, "usr/share/doc/" + name: name,
		} {
			write(t, filepath.Join(tree, file), content)
		}
		output, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", tree, filepath.Join(dir, name+".deb")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		content, err := os.ReadFile(filepath.Join(dir, name+".deb"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%sFilename: ./%s.deb\nSize: %d\nSHA256: %x\n\n", control, name, len(content), sha256.Sum256(content))
	}
	write(t, filepath.Join(dir, "Packages"), index.String())
	return fmt.Sprintf("deb [trusted=yes] copy:%s ./\n", dir)
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestPackagesAreUnpackedWithWhatTheyDependOnAndNothingIsRun(t *testing.T) {
	t.Parallel()
	sources := repository(t, map[string]string{"trainer": "library", "library": "", "other": ""})
	root := filepath.Join(t.TempDir(), "root")
	request := &Request{Sources: sources, Packages: []string{"trainer"}, Cache: t.TempDir(), LeaveOut: []string{"usr/share"}}
	packages, err := Unpack(t.Context(), request, root)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Package{{"library", "1:2.0", "all"}, {"trainer", "1:2.0", "all"}}; !slices.Equal(packages, want) {
		t.Errorf("packages are %v, want %v", packages, want)
	}
	var found []string
	err = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, root))
		}
		return err
	})
	if want := []string{"/usr/lib/library", "/usr/lib/trainer"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("files are %q (%v), want %q", found, err, want)
	}
}

func TestAPackageThatDoesNotExistIsNamed(t *testing.T) {
	t.Parallel()
	request := &Request{Sources: repository(t, map[string]string{"trainer": ""}), Packages: []string{"trainee"}, Cache: t.TempDir()}
	_, err := Unpack(t.Context(), request, filepath.Join(t.TempDir(), "root"))
	if err == nil || !strings.Contains(err.Error(), "Unable to locate package trainee") {
		t.Errorf("error is %v, want one that names the package", err)
	}
}
