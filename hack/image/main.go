// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds a container image tarball from static binaries without a container engine or
// a registry. containerd (ctr images import), Docker (docker load) and kind (kind load
// image-archive) can load the tarball.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/hack/image/bundle"
)

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var (
		spec  = bundle.Spec{Platform: bundle.HostPlatform()}
		files []string
		out   string
	)
	cmd := &cobra.Command{
		Use:           "image --name NAME:TAG --out FILE --entrypoint PATH --file SOURCE=PATH...",
		Short:         "Pack static binaries into an image tarball",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parsed, err := bundle.ParseFiles(files)
			if err != nil {
				return err
			}
			spec.Files = parsed
			digest, err := bundle.WriteFile(spec, out)
			if err != nil {
				return err
			}
			abs, err := filepath.Abs(out)
			if err != nil {
				return fmt.Errorf("name of %q: %w", out, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", spec.Name, digest, abs)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&spec.Name, "name", "", "name and tag of the image, such as di-orchestrator:dev (required)")
	f.StringVar(&out, "out", "", "tarball to write; relative to the working directory (required)")
	f.StringArrayVar(&files, "file", nil, "SOURCE=PATH: put the file SOURCE at the absolute PATH in the image (repeatable, required)")
	f.StringArrayVar(&spec.Entrypoint, "entrypoint", nil, "program and fixed arguments, one per flag (required)")
	for _, name := range []string{"name", "out", "file", "entrypoint"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // The flag is defined a few lines above.
		}
	}
	return cmd
}
