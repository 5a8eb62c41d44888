// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/docs"
	"opendilab.org/di-orchestrator/test/testkit"
)

var _ = Describe("The docs, followed step by step", func() {
	It("lead a new user from the installation to a job that has trained, and leave nothing", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) {
			kubectlUntilDone(ctx, "delete", "dijob", "cartpole-workers", "quick", "quick-led", "--ignore-not-found", "--cascade=foreground", waiting())
		})
		Expect(follow(ctx, walk{page: "docs/quickstart.md", name: "quickstart", here: checkout()})).To(BeNumerically(">", 5))
	}, SpecTimeout(6*patience))

	It("lead an administrator from nothing to other settings, another image, back, and to nothing", Serial, Label("chart"), func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { Expect(run.Install(ctx)).To(Succeed()) })
		helmOutput(ctx, "uninstall", demo.Release, "--wait", helmWaiting())
		// The page ends with the uninstallation.
		Expect(follow(ctx, walk{page: "docs/install.md", name: "install", here: checkout()})).To(BeNumerically(">", 4))
		Expect(run.Install(ctx)).To(Succeed())
		Expect(follow(ctx, walk{page: "docs/upgrade.md", name: "upgrade", here: checkout()})).To(BeNumerically(">", 1))
	}, SpecTimeout(6*patience))
})

// checkout replaces what a page takes from a registry or a release by what this checkout built:
// there is no registry, so the images were loaded into the nodes.
func checkout() *strings.Replacer {
	return strings.NewReplacer(
		"oci://ghcr.io/opendilab/charts/di-orchestrator --version 2.0.0", "charts/di-orchestrator --set image.repository=di-orchestrator --set image.tag=dev",
		"https://github.com/opendilab/DI-orchestrator/releases/download/v2.0.0/cartpole.yaml", "examples/cartpole/v2alpha1.yaml",
		"ghcr.io/opendilab/", "", "registry.example.com/", "", "v2.0.0", "dev", "v2.0.1", "dev",
	)
}

// walk is a walk through the steps of a page that are marked for it.
type walk struct {
	page, name string
	// here replaces what the page takes from elsewhere.
	here *strings.Replacer
	// plugin is the folder of the plugin; one is built if it is empty.
	plugin string
	// skip is the number of first steps to leave out. most limits the steps; 0 is no limit.
	skip, most int
	// kubeconfig is the user's; that of the suite if it is empty.
	kubeconfig string
}

// follow executes the steps of a walk and returns their number.
func follow(ctx context.Context, w walk) int {
	GinkgoHelper()
	blocks, err := docs.Blocks(testkit.Root(), w.page)
	Expect(err).NotTo(HaveOccurred())
	// The steps write files and use paths of the checkout.
	folder := GinkgoT().TempDir()
	for _, path := range []string{"charts", "examples"} {
		Expect(os.Symlink(filepath.Join(testkit.Root(), path), filepath.Join(folder, path))).To(Succeed())
	}
	plugin := w.plugin
	if plugin == "" {
		plugin = buildPlugin(ctx)
	}
	steps, left := 0, w.skip
	for _, block := range blocks {
		if block.Run != w.name || w.most > 0 && steps == w.most {
			continue
		}
		if left > 0 {
			left--
			continue
		}
		steps++
		script := w.here.Replace(block.Text)
		By(script)
		step := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
		var output bytes.Buffer
		said := io.MultiWriter(GinkgoWriter, &output)
		step.Dir, step.Stdout, step.Stderr = folder, said, said
		step.Env = append(os.Environ(), "PATH="+plugin+string(os.PathListSeparator)+os.Getenv("PATH"))
		if w.kubeconfig != "" {
			step.Env = append(step.Env, "KUBECONFIG="+w.kubeconfig)
		}
		if err := step.Run(); err != nil {
			Fail(fmt.Sprintf("%s:%d: %v, after:\n%s\nit printed:\n%s", block.Page, block.Line, err, script, end(output.String())))
		}
	}
	return steps
}

// end returns the last lines of an output.
func end(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
