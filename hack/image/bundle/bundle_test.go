// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func writeProgram(t *testing.T, changed time.Time) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("binary"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(program, changed, changed); err != nil {
		t.Fatal(err)
	}
	return program
}

func specFor(program string) Spec {
	return Spec{
		Name: "example:dev", Platform: "linux/amd64", Entrypoint: []string{"/bin/program"},
		Files: []File{{Source: program, Path: "/bin/program"}},
	}
}

func TestTheSameInputGivesTheSameBytesWheneverItWasBuilt(t *testing.T) {
	t.Parallel()
	var contents [][]byte
	for _, changed := range []time.Time{time.Unix(1, 0), time.Unix(1_000_000, 0)} {
		out := filepath.Join(t.TempDir(), "image.tar")
		if _, err := WriteFile(specFor(writeProgram(t, changed)), out); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		contents = append(contents, content)
	}
	if !bytes.Equal(contents[0], contents[1]) {
		t.Error("tarballs of the same input differ")
	}
}

func TestTheTarballHoldsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "folder", "image.tar")
	if _, err := WriteFile(specFor(writeProgram(t, time.Unix(1, 0))), out); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != nonRoot || config.OS != "linux" || config.Architecture != "amd64" {
		t.Errorf("user %q on %s/%s, want %q on linux/amd64", config.Config.User, config.OS, config.Architecture, nonRoot)
	}
	if !slices.Equal(config.Config.Entrypoint, []string{"/bin/program"}) {
		t.Errorf("entrypoint %q, want /bin/program", config.Config.Entrypoint)
	}
	expectModes(t, img, map[string]int64{"bin/program": 0o755, "tmp/": 0o1777, "etc/passwd": 0o644})
}

func TestAFolderIsPackedWithItsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "lib"), 0o700),
		os.WriteFile(filepath.Join(dir, "lib", "a.so.1"), []byte("library"), 0o600),
		os.Symlink("a.so.1", filepath.Join(dir, "lib", "a.so")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	spec := specFor(writeProgram(t, time.Unix(1, 0)))
	spec.Folders, spec.Env = []File{{Source: dir, Path: "/usr"}}, []string{"A=b"}
	img, err := Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(config.Config.Env, "A=b") {
		t.Errorf("variables are %q, want A=b among them", config.Config.Env)
	}
	expectModes(t, img, map[string]int64{"usr/lib/": 0o755, "usr/lib/a.so.1": 0o644, "usr/lib/a.so": 0o777, "bin/program": 0o755})
}

func expectModes(t *testing.T, img v1.Image, want map[string]int64) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	modes := readModes(t, content)
	for name, mode := range want {
		if modes[name] != mode {
			t.Errorf("mode of %s is %o, want %o", name, modes[name], mode)
		}
	}
}

func readModes(t *testing.T, content io.Reader) map[string]int64 {
	t.Helper()
	modes := map[string]int64{}
	reader := tar.NewReader(content)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return modes
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[header.Name] = header.Mode
	}
}

func TestWrongInputIsRefused(t *testing.T) {
	t.Parallel()
	good := specFor("program")
	for name, change := range map[string]func(*Spec){
		"no entrypoint":     func(s *Spec) { s.Entrypoint = nil },
		"no files":          func(s *Spec) { s.Files = nil },
		"unknown platform":  func(s *Spec) { s.Platform = "a/b/c/d" },
		"a missing file":    func(s *Spec) { s.Files = []File{{Source: "/does/not/exist", Path: "/a"}} },
		"a folder as file":  func(s *Spec) { s.Files = []File{{Source: "/", Path: "/a"}} },
		"the same path two": func(s *Spec) { s.Files = []File{{Source: "bundle.go", Path: "/a"}, {Source: "layer.go", Path: "/a"}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := good
			change(&spec)
			if _, err := Build(spec); err == nil {
				t.Error("built, want an error")
			}
		})
	}
}

func TestFilePairsAreParsed(t *testing.T) {
	t.Parallel()
	files, err := ParseFiles([]string{"bin/a=/usr/../bin/a"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []File{{Source: "bin/a", Path: "/bin/a"}}; !slices.Equal(files, want) {
		t.Errorf("got %v, want %v", files, want)
	}
	for _, pair := range []string{"a", "a=b", "=/a"} {
		if _, err := ParseFiles([]string{pair}); err == nil {
			t.Errorf("%q was accepted, want an error", pair)
		}
	}
}
