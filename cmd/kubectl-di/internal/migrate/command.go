// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrate is kubectl di migrate.
package migrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
	"opendilab.org/di-orchestrator/internal/upgrade/crds"
	"opendilab.org/di-orchestrator/internal/upgrade/migration"
)

const long = `Say in which version objects are stored, and which versions are served.

The operator does it: it switches the version, writes every stored object once, and
records that no other version is stored. status tells how far it is. Jobs go on
throughout. The way back to an earlier release is refused while jobs exist that it
would not run as they are to be run: they are named.`

const examples = `  # How far it is, until all is done
  kubectl di migrate status --watch

  # The way back to v0.2.2
  kubectl di migrate --to v1alpha1

  # Serve v1alpha1 no more, when nobody uses it
  kubectl di migrate --stop-serving v1alpha1`

const statusLong = `Tell in which version objects are stored, how far a migration is, and what comes next.`

const statusExamples = `  # How far it is
  kubectl di migrate status

  # For a script: whether all objects are stored as they are wanted
  kubectl di migrate status -o json | jq -e .done`

// watchInterval is how often it is looked how far it is.
const watchInterval = 2 * time.Second

type options struct {
	flags     *cluster.Flags
	streams   genericiooptions.IOStreams
	to        string
	release   string
	stop      string
	serve     string
	namespace string
	watch     bool
	output    *printing.Data
}

// NewCommand returns the command.
func NewCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, output: printing.NewData()}
	command := arguments.NewCommand(arguments.Help{
		Use: "migrate", Short: "Say in which version objects are stored, and which are served", Long: long, Example: examples,
	}, o.change)
	own := command.Flags()
	own.StringVar(&o.to, "to", "", "version to store objects in: v1alpha1 or v2alpha1")
	own.StringVar(&o.release, "for-release", "", "earlier release that is to run the jobs afterwards: v0.2.2, which --to v1alpha1 is for, or v1.1.3, which stores v2alpha1")
	own.StringVar(&o.stop, "stop-serving", "", "version to serve no more: v1alpha1")
	own.StringVar(&o.serve, "serve", "", "version to serve again: v1alpha1")
	status := arguments.NewCommand(arguments.Help{
		Use: "status", Short: "Tell how far the storage migration is", Long: statusLong, Example: statusExamples,
	}, o.status)
	status.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on until all is done")
	status.Flags().StringVar(&o.namespace, "operator-namespace", "", "namespace that the operator runs in; by default that of its webhooks")
	o.output.Bind(status, "print it")
	command.AddCommand(status)
	return command
}

// check says what is wrong with the flags.
func (o *options) check() error {
	given := 0
	for _, value := range []string{o.to, o.stop, o.serve} {
		if value != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return exit.Usagef("say one of --to, --stop-serving and --serve; kubectl di migrate status tells how far it is")
	case o.to != "" && o.to != v1alpha1.Version && o.to != v2alpha1.Version:
		return exit.Usagef("--to %q: want %s or %s", o.to, v1alpha1.Version, v2alpha1.Version)
	case cmp.Or(o.stop, o.serve, v1alpha1.Version) != v1alpha1.Version:
		return exit.Usagef("%q can neither cease to be served nor be served again: only %s can", cmp.Or(o.stop, o.serve), v1alpha1.Version)
	case o.release != "" && o.to == "":
		return exit.Usagef("--for-release goes with --to")
	case o.release != "" && o.release != string(migration.ReleaseV0) && o.release != string(migration.ReleaseV1):
		return exit.Usagef("--for-release %q: want %s or %s", o.release, migration.ReleaseV0, migration.ReleaseV1)
	case o.release != "" && migration.StorageOf(migration.Release(o.release)) != o.to:
		return exit.Usagef("release %s stores objects in %s", o.release, migration.StorageOf(migration.Release(o.release)))
	}
	return nil
}

// change writes what is wanted, and says what comes next.
func (o *options) change(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	found, err := o.flags.Connect()
	if err != nil {
		return err
	}
	definition, err := jobsDefinition(ctx, found)
	if err != nil {
		return err
	}
	switch {
	case o.to != "":
		return o.changeStorage(ctx, found, definition)
	case o.stop != "":
		return o.stopServing(ctx, found, definition)
	}
	if err := found.Annotate(ctx, definition, map[string]*string{crds.AnnotationStopServing: nil}); err != nil {
		return err
	}
	fmt.Fprintf(o.streams.Out, "%s is to be served again. To see it:\n\n    kubectl di migrate status --watch\n", o.serve)
	return nil
}

// jobsDefinition reads the definition of jobs, on which is what is wanted of all kinds.
func jobsDefinition(ctx context.Context, found *cluster.Cluster) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition, err := found.Definition(ctx, "dijobs")
	if err == nil && definition == nil {
		err = fmt.Errorf("there is no customresourcedefinition dijobs.%s: DI Orchestrator is not installed", v2alpha1.GroupName)
	}
	return definition, err
}

func (o *options) changeStorage(ctx context.Context, found *cluster.Cluster, definition *apiextensionsv1.CustomResourceDefinition) error {
	if o.to == definition.Annotations[crds.AnnotationStopServing] {
		return fmt.Errorf("nothing was changed: %s is to be served no more: first run kubectl di migrate --serve %s", o.to, o.to)
	}
	if versions := versionsOf(definition); !slices.Contains(versions, o.to) {
		return fmt.Errorf("nothing was changed: customresourcedefinition %s has no version %s yet, only %s: an operator of this release adds it",
			definition.Name, o.to, strings.Join(versions, " and "))
	}
	release := cmp.Or(migration.Release(o.release), migration.ReleaseOf(o.to))
	if release != "" {
		misrun, err := found.Misruns(ctx, release)
		if err != nil {
			return err
		}
		if len(misrun) > 0 {
			return fmt.Errorf("nothing was changed: %s would not run these jobs as they are to be run; delete them, or let them finish:\n  %s",
				release, strings.Join(misrun, "\n  "))
		}
	}
	if err := found.Annotate(ctx, definition, map[string]*string{crds.AnnotationStorageVersion: &o.to}); err != nil {
		return err
	}
	fmt.Fprintf(o.streams.Out, "Objects are to be stored in %s; the operator has them written. To see it:\n\n    kubectl di migrate status --watch\n", o.to)
	if release != "" {
		fmt.Fprintf(o.streams.Out, "\nWhen all is done, and not before:\n\n    helm uninstall di-orchestrator -n %s\n\nand install %s again. Jobs are kept.\n", namespaceOf(definition), release)
	}
	return nil
}

func (o *options) stopServing(ctx context.Context, found *cluster.Cluster, definition *apiextensionsv1.CustomResourceDefinition) error {
	if wanted := definition.Annotations[crds.AnnotationStorageVersion]; wanted == o.stop {
		return fmt.Errorf("nothing was changed: objects are to be stored in %s: first run kubectl di migrate --to %s", o.stop, v2alpha1.Version)
	}
	if slices.Contains(definition.Status.StoredVersions, o.stop) {
		return fmt.Errorf("nothing was changed: objects may still be stored in %s: kubectl di migrate status tells how far it is", o.stop)
	}
	if err := found.Annotate(ctx, definition, map[string]*string{crds.AnnotationStopServing: &o.stop}); err != nil {
		return err
	}
	fmt.Fprintf(o.streams.Out, "%s is to be served no more, as soon as no pod, service or stored object needs it. To see it:\n\n    kubectl di migrate status --watch\n", o.stop)
	return nil
}
