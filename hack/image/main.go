// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds a container image tarball without a container engine or a registry: of files
// and folders, and of packages of Debian. containerd (ctr images import), Docker (docker load) and
// kind (kind load image-archive) can load the tarball.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/hack/image/bundle"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	spec           bundle.Spec
	files, folders []string
	out            string
	packages       packages
}

func newCommand() *cobra.Command {
	o := &options{spec: bundle.Spec{Platform: bundle.HostPlatform()}}
	cmd := &cobra.Command{
		Use:           "image --name NAME:TAG --out FILE --entrypoint PATH [--file SOURCE=PATH...] [--folder SOURCE=PATH...] [--debian PACKAGE...]",
		Short:         "Pack files, folders and packages of Debian into an image tarball",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.spec.Name, "name", "", "name and tag of the image, such as di-orchestrator:dev (required)")
	f.StringVar(&o.out, "out", "", "tarball to write; relative to the working directory (required)")
	f.StringArrayVar(&o.files, "file", nil, "SOURCE=PATH: put the file SOURCE at the absolute PATH in the image (repeatable)")
	f.StringArrayVar(&o.folders, "folder", nil, "SOURCE=PATH: put what is in the folder SOURCE below the absolute PATH in the image (repeatable)")
	f.StringArrayVar(&o.spec.Entrypoint, "entrypoint", nil, "program and fixed arguments, one per flag (required)")
	f.StringArrayVar(&o.spec.Env, "env", nil, "NAME=VALUE: a variable besides PATH (repeatable)")
	f.StringSliceVar(&o.packages.names, "debian", nil, "packages of Debian 12 that are unpacked with all that they depend on")
	f.StringSliceVar(&o.packages.leaveOut, "leave-out", nil, "patterns of paths in packages that are left out, such as usr/share/doc")
	for _, name := range []string{"name", "out", "entrypoint"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // The flag is defined a few lines above.
		}
	}
	return cmd
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	var err error
	if o.spec.Files, err = bundle.ParseFiles(o.files); err != nil {
		return err
	}
	if o.spec.Folders, err = bundle.ParseFiles(o.folders); err != nil {
		return err
	}
	abs, err := filepath.Abs(o.out)
	if err != nil {
		return fmt.Errorf("name of %q: %w", o.out, err)
	}
	if len(o.packages.names) > 0 {
		return o.packages.unpacked(ctx, abs, func(roots ...bundle.File) error {
			o.spec.Folders = append(o.spec.Folders, roots...)
			return o.write(abs, out)
		})
	}
	return o.write(abs, out)
}

func (o *options) write(abs string, out io.Writer) error {
	digest, err := bundle.WriteFile(o.spec, abs)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %s %s\n", o.spec.Name, digest, abs)
	return err
}
