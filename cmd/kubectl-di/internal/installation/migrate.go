// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/migration"
)

const migrateLong = `Set in which version objects are stored, and which versions are served.

The operator does it: it switches the version, writes every stored object once, and
records that no other version is stored. status reports its progress. Jobs continue
throughout. The way back to an earlier release is refused while jobs exist that it
would run differently: they are named.`

const toSeeIt = " To see it:\n\n    kubectl di migrate status --watch\n"

type migrating struct {
	*cli.Env
	to, release, stop, serve string
	namespace                string
	watch                    bool
	output                   cli.Data
}

// NewMigrateCommand returns kubectl di migrate.
func NewMigrateCommand(env *cli.Env) *cobra.Command {
	o := &migrating{Env: env}
	command := cli.NewCommand(cli.Help{
		Use: "migrate", Short: "Set in which version objects are stored, and which are served", Long: migrateLong,
		Example: `  # Its progress, until all is done
  kubectl di migrate status --watch

  # The way back to v0.2.2
  kubectl di migrate --to v1alpha1

  # No longer serve v1alpha1, when no client uses it
  kubectl di migrate --stop-serving v1alpha1`,
	}, o.change)
	cli.Enum(command, &o.to, "to", "", "", "version to store objects in: v1alpha1 or v2alpha1", v1alpha1.Version, v2alpha1.Version)
	cli.Enum(command, &o.release, "for-release", "", "",
		"earlier release that will run the jobs: v0.2.2, which --to v1alpha1 is for, or v1.1.3, which stores v2alpha1",
		string(migration.ReleaseV0), string(migration.ReleaseV1))
	cli.Enum(command, &o.stop, "stop-serving", "", "", "version to serve no longer: v1alpha1", v1alpha1.Version)
	cli.Enum(command, &o.serve, "serve", "", "", "version to serve again: v1alpha1", v1alpha1.Version)
	cli.Before(command, func() error {
		given := slices.DeleteFunc([]string{o.to, o.stop, o.serve}, func(value string) bool { return value == "" })
		switch release := migration.Release(o.release); {
		case len(given) != 1:
			return cli.Usagef("name one of --to, --stop-serving and --serve; kubectl di migrate status reports the progress")
		case release != "" && o.to == "":
			return cli.Usagef("--for-release goes with --to")
		case release != "" && migration.StorageOf(release) != o.to:
			return cli.Usagef("release %s stores objects in %s", release, migration.StorageOf(release))
		}
		return nil
	})
	status := cli.NewCommand(cli.Help{
		Use: "status", Short: "Report the progress of the storage migration and of a takeover",
		Long: `Report in which version objects are stored, the progress of a migration, and what comes next.
While an earlier release is taken over, also report what the takeover waits for.`,
		Example: `  # Its progress
  kubectl di migrate status

  # For a script: whether all objects are stored in the desired version
  kubectl di migrate status -o json | jq -e .done`,
	}, o.status)
	flags := status.Flags()
	flags.BoolVarP(&o.watch, "watch", "w", false, "continue until all is done")
	flags.StringVar(&o.namespace, "operator-namespace", "", "namespace of the operator; by default that of its webhooks")
	o.output.Bind(status, "print it")
	command.AddCommand(status)
	return command
}

// change writes the desired version, and prints the next step.
func (o *migrating) change(ctx context.Context) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	jobs, err := jobsDefinition(ctx, found)
	if err != nil {
		return err
	}
	switch {
	case o.to != "":
		return o.changeStorage(ctx, found, jobs)
	case o.stop != "":
		return o.stopServing(ctx, found, jobs)
	}
	if err := annotate(ctx, found, jobs, crds.AnnotationStopServing, nil); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s will be served again.%s", o.serve, toSeeIt)
	return nil
}

// jobsDefinition reads the definition of dijobs. Its annotations apply to all kinds.
func jobsDefinition(ctx context.Context, found *cluster.Cluster) (*apiextensionsv1.CustomResourceDefinition, error) {
	read := &apiextensionsv1.CustomResourceDefinition{}
	err := found.Get(ctx, "", names.DIJobDefinition, read)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("there is no customresourcedefinition %s: DI Orchestrator is not installed", names.DIJobDefinition)
	}
	return read, err
}

// annotate sets an annotation of a definition, or removes it.
func annotate(ctx context.Context, found *cluster.Cluster, definition *apiextensionsv1.CustomResourceDefinition, key string,
	value *string) error {
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{key: value}}})
	if err != nil {
		return fmt.Errorf("encoding annotations: %w", err)
	}
	return found.Patch(ctx, definition, client.RawPatch(types.MergePatchType, content))
}

func (o *migrating) changeStorage(ctx context.Context, found *cluster.Cluster, jobs *apiextensionsv1.CustomResourceDefinition) error {
	if o.to == jobs.Annotations[crds.AnnotationStopServing] {
		return fmt.Errorf("nothing was changed: %s will no longer be served: first run kubectl di migrate --serve %s", o.to, o.to)
	}
	var versions []string
	for i := range jobs.Spec.Versions {
		versions = append(versions, jobs.Spec.Versions[i].Name)
	}
	if !slices.Contains(versions, o.to) {
		return fmt.Errorf("nothing was changed: customresourcedefinition %s has no version %s yet, only %s: an operator of this release adds it",
			jobs.Name, o.to, strings.Join(versions, " and "))
	}
	release := cmp.Or(migration.Release(o.release), migration.ReleaseOf(o.to))
	if release != "" {
		misrun, err := misruns(ctx, found, release)
		if err != nil {
			return err
		}
		if len(misrun) > 0 {
			return fmt.Errorf("nothing was changed: %s would run these jobs differently; delete them, or let them finish:\n  %s",
				release, strings.Join(misrun, "\n  "))
		}
	}
	if err := annotate(ctx, found, jobs, crds.AnnotationStorageVersion, &o.to); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "The operator will store objects in %s, and writes them all.%s", o.to, toSeeIt)
	if release != "" {
		fmt.Fprintf(o.Out, "\nWhen all is done, and not before:\n\n    helm uninstall di-orchestrator -n %s\n\nand install %s again. Jobs are kept.\n", namespaceOf(jobs), release)
	}
	return nil
}

// misruns returns the jobs that a release would run differently, with the reasons.
func misruns(ctx context.Context, found *cluster.Cluster, release migration.Release) ([]string, error) {
	var misrun []string
	var jobs v2alpha1.DIJobList
	for {
		if err := found.List(ctx, "", &jobs, client.Limit(500), client.Continue(jobs.Continue)); err != nil {
			return nil, err
		}
		for i := range jobs.Items {
			if reasons := migration.Misruns(&jobs.Items[i], release); len(reasons) > 0 {
				misrun = append(misrun, migration.Describe(&jobs.Items[i], reasons))
			}
		}
		if jobs.Continue == "" {
			return misrun, nil
		}
	}
}

func (o *migrating) stopServing(ctx context.Context, found *cluster.Cluster, jobs *apiextensionsv1.CustomResourceDefinition) error {
	if jobs.Annotations[crds.AnnotationStorageVersion] == o.stop {
		return fmt.Errorf("nothing was changed: %s is the desired version of stored objects: first run kubectl di migrate --to %s", o.stop,
			v2alpha1.Version)
	}
	if slices.Contains(jobs.Status.StoredVersions, o.stop) {
		return fmt.Errorf("nothing was changed: objects may still be stored in %s: kubectl di migrate status reports the progress", o.stop)
	}
	if err := annotate(ctx, found, jobs, crds.AnnotationStopServing, &o.stop); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s will no longer be served, as soon as no pod, service or stored object needs it.%s", o.stop, toSeeIt)
	return nil
}
