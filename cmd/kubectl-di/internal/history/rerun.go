// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/fields"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/view"
)

// rerunning are the flags of history rerun.
type rerunning struct {
	reading
	name    string
	sets    []string
	objects *cli.Objects
}

func newRerunCommand(env *cli.Env) *cobra.Command {
	o := &rerunning{reading: reading{Env: env}}
	command := o.jobCommand(cli.Help{
		Use: "rerun JOB", Short: "Create a job of the history again, with changes",
		Long: `Create a job again by its recorded manifest, in the version of the API that it was
written in. What belongs to the old object, such as its UID and its creator, is left out.

--set changes a field. Entries of lists are named by number, or by name or type. A new
field is created; the API server refuses one that it does not know. A value is YAML, but
stays a text where the field is one. null removes the field.`,
		Example: `  # Run job pong again, which is gone
  kubectl di history rerun pong

  # With another seed and more memory, beside it
  kubectl di history rerun pong --name pong-2 \
    --set 'spec.tasks[learner].template.spec.containers[di-container].env[SEED].value=7' \
    --set 'spec.tasks[learner].template.spec.containers[di-container].resources.limits.memory=8Gi'

  # Only print the manifest
  kubectl di history rerun pong --dry-run=client -o yaml`,
	}, o.run)
	flags := command.Flags()
	flags.StringVar(&o.name, "name", "", "name of the new job (default the old one)")
	flags.StringArrayVar(&o.sets, "set", nil, "change a field, such as spec.backoffLimit=5; may be repeated")
	o.objects = cli.BindObjects(command, "submitted")
	cli.Before(command, func() error {
		if o.name != "" && len(validation.IsDNS1123Subdomain(o.name)) > 0 {
			return cli.Usagef("--name %q: want the name of a DIJob", o.name)
		}
		for _, text := range o.sets {
			if _, err := fields.ParseChange(text); err != nil {
				return cli.With(cli.Usage, err)
			}
		}
		return nil
	})
	return command
}

func (o *rerunning) run(ctx context.Context, from *reader.Reader, found job) error {
	manifest, err := renewed(found)
	if err != nil {
		return err
	}
	for _, text := range o.sets {
		change, err := fields.ParseChange(text)
		if err == nil {
			err = change.Apply(manifest.Object)
		}
		if err != nil {
			return err
		}
	}
	if o.name != "" {
		manifest.SetName(o.name)
	}
	if !o.objects.IsLocal() {
		if err := from.Cluster.Submit(ctx, manifest, metav1.FieldValidationStrict, !o.objects.IsReal()); err != nil {
			return err
		}
	}
	return o.objects.PrintObj(manifest, o.Out)
}

// renewed returns the manifest of a job as that of a new one.
func renewed(of job) (*unstructured.Unstructured, error) {
	if len(of.Manifest) == 0 {
		return nil, fmt.Errorf("job %s/%s cannot be created again: %w", of.Namespace, of.Name, view.ErrNoManifest)
	}
	manifest := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(of.Manifest, &manifest.Object); err != nil {
		return nil, fmt.Errorf("job %s/%s cannot be created again: its manifest: %w", of.Namespace, of.Name, err)
	}
	delete(manifest.Object, "status")
	if metadata, isMap := manifest.Object["metadata"].(map[string]any); isMap {
		fields.Clean(metadata)
	}
	manifest.SetNamespace(of.Namespace)
	manifest.SetName(of.Name)
	return manifest, nil
}
