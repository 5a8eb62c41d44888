// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package code

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// folder writes files, which are executable if their names end with .sh.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path, mode := filepath.Join(root, name), os.FileMode(0o600)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o700
		}
		expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		expect.NoError(t, os.WriteFile(path, []byte(content), mode))
	}
	return root
}

func TestAFolderIsPackedWithoutWhatPythonAndGitWrote(t *testing.T) {
	t.Parallel()
	root := folder(t, map[string]string{
		"train.py": "print()", "model/net.py": "x = 1", "run.sh": "#!/bin/sh", "weights.bin": "\xff\xfe",
		".git/config": "secret", ".env": "TOKEN=1", "__pycache__/train.pyc": "x", "model/.cache/a": "b",
	})
	expect.NoError(t, os.Symlink("/etc/hostname", filepath.Join(root, "link")))
	packed, keys, err := Pack("pong", root)
	expect.NoError(t, err)
	expect.Equal(t, "keys", []corev1.KeyToPath{
		{Key: "f000", Path: "model/net.py"}, {Key: "f001", Path: "run.sh", Mode: ptr.To[int32](0o555)}, {Key: "f002", Path: "train.py"},
		{Key: "f003", Path: "weights.bin"},
	}, keys)
	expect.Equal(t, "text", map[string]string{"f000": "x = 1", "f001": "#!/bin/sh", "f002": "print()"}, packed.Data)
	expect.Equal(t, "bytes", map[string][]byte{"f003": {0xff, 0xfe}}, packed.BinaryData)

	same, _, err := Pack("pong", root)
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(filepath.Join(root, "train.py"), []byte("print(1)"), 0o600))
	other, _, err := Pack("pong", root)
	expect.NoError(t, err)
	if !strings.HasPrefix(packed.Name, "pong-code-") || same.Name != packed.Name || other.Name == packed.Name {
		t.Errorf("the names are %s, %s and %s", packed.Name, same.Name, other.Name)
	}
}

func TestAFolderThatIsTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range MostFiles + 1 {
		many[fmt.Sprintf("%d.py", i)] = ""
	}
	sparse := folder(t, map[string]string{"train.py": "x"})
	huge, err := os.Create(filepath.Join(sparse, "data.npz"))
	expect.NoError(t, err)
	expect.NoError(t, huge.Truncate(1<<40))
	expect.NoError(t, huge.Close())
	for path, want := range map[string]string{
		folder(t, many):                   "has 501 files, and 500 at most are sent: put the program into the image",
		folder(t, nil):                    "has no files",
		sparse:                            "has 1.0 TiB, and 900 KiB at most are sent: put the program into the image, or data into a volume; the largest file is data.npz with 1.0 TiB",
		filepath.Join(sparse, "no"):       "no such file or directory",
		filepath.Join(sparse, "train.py"): "train.py is no folder: name the one that has the program",
	} {
		if _, _, err := Pack("pong", path); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}
