// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release builds the artifacts of a release of DI Orchestrator from one commit, without a
// registry or a container engine. The same commit gives the same bytes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// options are the flags of all commands.
type options struct {
	version  string
	registry string
	root     string
	out      string
	helm     string
	ldflags  string
	snapshot bool
	// only contains the platforms to build for; all if it is empty.
	only []string
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "release",
		Short:         "Build what a release consists of",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var twice, fresh bool
	preflight := command("preflight", "Refuse what build would refuse, and build nothing",
		func(_ context.Context, r *release) error { return r.preflight(twice) })
	preflight.Flags().BoolVar(&twice, "twice", false, "refuse what check would refuse, too")
	build := command("build", "Build a release into a folder, in place of its content",
		func(ctx context.Context, r *release) error { return r.build(ctx) })
	check := command("check", "Build the commit again in a clone, and compare with the folder, byte by byte",
		func(ctx context.Context, r *release) error { return r.check(ctx, fresh) })
	check.Flags().BoolVar(&fresh, "fresh", false, "compile everything again, with an empty build cache")
	root.AddCommand(preflight, build, check, launcherCommand())
	return root
}

func command(name, short string, do func(context.Context, *release) error) *cobra.Command {
	opts := &options{}
	cmd := &cobra.Command{
		Use:   name + " --version VERSION --helm FILE",
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			release, err := opts.release(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return do(cmd.Context(), release)
		},
	}
	opts.bind(cmd)
	return cmd
}

func (o *options) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.version, "version", "", "version to release, such as v2.0.0 (required)")
	f.StringVar(&o.registry, "registry", defaultRegistry, "registry and folder that the images are to be pushed to")
	f.StringVar(&o.root, "root", "../..", "checkout to build")
	f.StringVar(&o.out, "out", "../../out/release", "folder for the artifacts; emptied first")
	f.StringVar(&o.helm, "helm", "", "Helm that packages the chart (required)")
	f.StringVar(&o.ldflags, "ldflags", "", "flags of the linker, which stamp the version")
	f.StringSliceVar(&o.only, "platform", nil, "build a snapshot for these only, such as linux/amd64 (repeatable)")
	f.BoolVar(&o.snapshot, "snapshot", false, "build also what is not committed, or has no section of its own in the changelog")
}

// release validates the flags against the checkout.
func (o *options) release(ctx context.Context, progress io.Writer) (*release, error) {
	if err := checkVersion(o.version); err != nil {
		return nil, fmt.Errorf("--version: %w", err)
	}
	if o.helm == "" {
		return nil, errors.New("--helm is empty: want the path of a Helm, such as the one that make helm builds")
	}
	chosen, err := choose(platforms(), o.only)
	if err != nil {
		return nil, fmt.Errorf("--platform: %w", err)
	}
	if len(o.only) > 0 && !o.snapshot {
		return nil, fmt.Errorf("--platform %s: only a snapshot may be of some platforms: want SNAPSHOT=1 (--snapshot) too", strings.Join(o.only, ","))
	}
	for _, path := range []*string{&o.root, &o.out, &o.helm} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("name of %q: %w", *path, err)
		}
		*path = abs
	}
	source, err := inspect(ctx, o.root, o.version)
	if err != nil {
		return nil, err
	}
	if err := source.check(o.snapshot); err != nil {
		return nil, err
	}
	return &release{
		options: *o, source: source, programs: programs(), platforms: chosen, progress: progress,
	}, nil
}
