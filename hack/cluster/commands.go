// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/hack/cluster/internal/cluster"
	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
)

// usageError is a wrong command line.
type usageError struct{ error }

// errForeign says that images are somebody else's matter.
var errForeign = errors.New("a kubeconfig names another cluster, and images get into it in its own way: kind load image-archive FILE, or a registry")

// errForeignNode says that nodes are somebody else's matter.
var errForeignNode = errors.New("a kubeconfig names another cluster, whose nodes are stopped in its own way")

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Run a real Kubernetes on a bare Linux machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	opts := newOptions()
	opts.addGlobal(root.PersistentFlags())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		newUp(opts), newDown(opts), newStatus(opts), newLoadImage(opts), newAssets(opts), newProgram(opts), newKubeconfig(opts), newEnv(opts), newNode(opts),
	)
	return root
}

func newUp(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing, start what does not run, and print how to use it",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := opts.open(cmd)
			if err != nil {
				return err
			}
			if s.external != nil {
				if err := s.external.Check(cmd.Context()); err != nil {
					return err
				}
				return show(cmd, s.external.Environment())
			}
			if err := s.local.Up(cmd.Context()); err != nil {
				return err
			}
			return show(cmd, s.local.Environment())
		},
	}
	opts.addUp(cmd.Flags())
	return cmd
}

func newDown(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the cluster and remove everything it made but the cache",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The checkout that brought the cluster up may be gone.
			s, err := opts.parse()
			if err != nil {
				return usageError{err}
			}
			return cluster.New(s, nil, cmd.ErrOrStderr()).Down(cmd.Context())
		},
	}
}

func newStatus(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what runs and how to use it; fails if the cluster is not complete",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := opts.open(cmd)
			if err != nil {
				return err
			}
			if s.external != nil {
				return s.external.Check(cmd.Context())
			}
			return s.local.Status(cmd.Context())
		},
	}
}

func newNode(opts *options) *cobra.Command {
	node := &cobra.Command{
		Use:   "node",
		Short: "Stop a node as if its machine lost power, or start it again",
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("node: want stop NAME or start NAME")}
		},
	}
	node.AddCommand(
		newNodeCommand(opts, "stop", "End all that runs on a node, without a word to anybody", (*cluster.Cluster).StopNode),
		newNodeCommand(opts, "start", "Bring a node back that was stopped", (*cluster.Cluster).StartNode),
	)
	return node
}

func newNodeCommand(opts *options, name, short string, do func(*cluster.Cluster, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " NAME",
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := opts.open(cmd)
			if err != nil {
				return err
			}
			if s.external != nil {
				return errForeignNode
			}
			return do(s.local, cmd.Context(), args[0])
		},
	}
}

func newLoadImage(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "load-image FILE.tar...",
		Short: "Import image tarballs, so that pods can use them without a registry",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.MinimumNArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := opts.open(cmd)
			if err != nil {
				return err
			}
			if s.external != nil {
				return errForeign
			}
			for _, tarball := range args {
				if err := s.local.LoadImage(cmd.Context(), tarball); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newAssets(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Build etcd, kube-apiserver and kubectl, and print their folder for KUBEBUILDER_ASSETS",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := opts.open(cmd)
			if err != nil {
				return err
			}
			report := func(format string, args ...any) { cmd.PrintErrf(format, args...) }
			dir, err := cluster.BuildAssets(cmd.Context(), s.cache, report, progress.NewRunner(cmd.ErrOrStderr(), 20*time.Second))
			if err != nil {
				return err
			}
			return show(cmd, dir+"\n")
		},
	}
}

func newProgram(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "program NAME",
		Short: "Build one of the programs, such as kube-scheduler, and print its path",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := opts.open(cmd)
			if err != nil {
				return err
			}
			if !slices.Contains(s.cache.All(true), args[0]) {
				return usageError{fmt.Errorf("there is no program %q: there are %s", args[0], strings.Join(s.cache.All(true), ", "))}
			}
			report := func(format string, args ...any) { cmd.PrintErrf(format, args...) }
			path, err := cluster.BuildProgram(cmd.Context(), s.cache, args[0], report, progress.NewRunner(cmd.ErrOrStderr(), 20*time.Second))
			if err != nil {
				return err
			}
			return show(cmd, path+"\n")
		},
	}
}

func newKubeconfig(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the kubeconfig",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := opts.open(cmd)
			if err != nil {
				return err
			}
			if s.external != nil {
				return show(cmd, opts.kubeconfig+"\n")
			}
			return show(cmd, s.local.Kubeconfig()+"\n")
		},
	}
}

func newEnv(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print shell commands that make kubectl use the cluster",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := opts.open(cmd)
			if err != nil {
				return err
			}
			if s.external != nil {
				return show(cmd, s.external.Environment())
			}
			return show(cmd, s.local.Environment())
		},
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

// show prints what other programs read, to where they read it.
func show(cmd *cobra.Command, text string) error {
	_, err := fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}
