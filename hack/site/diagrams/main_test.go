// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oss.terrastruct.com/d2/lib/log"
)

func folderOf(t *testing.T, sources map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestAPictureIsDrawnAlikeEachTimeWithWhatItImports(t *testing.T) {
	t.Parallel()
	var pictures [2][]byte
	for i := range pictures {
		folder := folderOf(t, map[string]string{
			"_style.d2": "classes: {odd.style.fill: \"#123456\"}\n",
			"a.d2":      "...@_style\nx: {class: odd}\nx -> y: calls\n",
		})
		if err := drawAll(log.WithDefault(t.Context()), folder); err != nil {
			t.Fatal(err)
		}
		var err error
		if pictures[i], err = os.ReadFile(filepath.Join(folder, "a.svg")); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(folder, "_style.svg")); err == nil {
			t.Error("got a picture of what is only imported")
		}
	}
	if !bytes.Equal(pictures[0], pictures[1]) {
		t.Error("got two different pictures of the same source")
	}
	for _, want := range []string{"#123456", ">calls<", "prefers-color-scheme:dark"} {
		if !strings.Contains(string(pictures[0]), want) {
			t.Errorf("got a picture without %s", want)
		}
	}
}

func TestASourceThatCannotBeDrawnIsNamed(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"x -> ": "a.d2",
		"vars: {d2-config: {layout-engine: neato}}\nx": `layout-engine "neato" is not known; use elk or dagre`,
	} {
		err := drawAll(log.WithDefault(t.Context()), folderOf(t, map[string]string{"a.d2": source}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v of %q, want it to say %s", err, source, want)
		}
	}
	if err := drawAll(log.WithDefault(t.Context()), t.TempDir()); err == nil {
		t.Error("got no error for a folder without sources")
	}
}
