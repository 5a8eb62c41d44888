// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/names"
)

const versionLong = `Print the version of this plugin, and those of the operator, the webhooks and
di-server in the cluster, from the images of their Deployments.

If the cluster does not answer, the command prints the plugin's own version and ends
with 1. If versions differ, stderr says so. --client makes no call.`

// versions is the output of kubectl di version -o.
type versions struct {
	Client struct {
		Version   string `json:"version"`
		GoVersion string `json:"goVersion"`
		Platform  string `json:"platform"`
	} `json:"client"`
	Operator *component `json:"operator,omitempty"`
	Webhook  *component `json:"webhook,omitempty"`
	Server   *component `json:"server,omitempty"`
}

// component describes a Deployment.
type component struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Version is the tag of the image, or its digest if it has no tag.
	Version  string `json:"version"`
	Image    string `json:"image"`
	Replicas int32  `json:"replicas"`
	Ready    int32  `json:"ready"`
}

// NewVersionCommand returns kubectl di version; version is the plugin's own.
func NewVersionCommand(env *cli.Env, version string) *cobra.Command {
	var isClient bool
	var namespace string
	var output cli.Data
	command := cli.NewCommand(cli.Help{
		Use: "version", Short: "Print the versions of this plugin, the operator, the webhooks and di-server", Long: versionLong,
		Example: `  # What runs here, and what runs in the cluster
  kubectl di version

  # The plugin's version alone, without a cluster
  kubectl di version --client

  # The image of the operator
  kubectl di version -o json | jq -r .operator.image`,
	}, func(ctx context.Context) (unknown error) {
		report := &versions{}
		report.Client.Version, report.Client.GoVersion, report.Client.Platform = version, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
		if !isClient {
			unknown = report.ask(ctx, env, namespace)
		}
		if !output.IsText() {
			return errors.Join(output.Print(env.Out, report), unknown)
		}
		return errors.Join(report.print(env.Out, env.ErrOut), unknown)
	})
	flags := command.Flags()
	flags.BoolVar(&isClient, "client", false, "print the version of this plugin only, and make no call")
	flags.StringVar(&namespace, "server-namespace", names.SystemNamespace, "namespace of DI Orchestrator")
	output.Bind(command, "print them")
	return command
}

// ask reads the Deployments.
func (v *versions) ask(ctx context.Context, env *cli.Env, namespace string) error {
	found, err := env.Connect()
	if err != nil {
		return err
	}
	all, err := components(ctx, found, namespace)
	if err != nil {
		return err
	}
	v.Operator, v.Webhook, v.Server = all["operator"], all["webhook"], all["server"]
	if v.Operator == nil && v.Webhook == nil && v.Server == nil {
		return fmt.Errorf("namespace %s has no deployment of DI Orchestrator: is it installed elsewhere (--server-namespace)?", namespace)
	}
	return nil
}

// components reads the Deployments of an installation, by the names of components.
func components(ctx context.Context, found *cluster.Cluster, namespace string) (map[string]*component, error) {
	var list appsv1.DeploymentList
	// The labels of the Deployments are the same in all releases.
	if err := found.List(ctx, namespace, &list, client.MatchingLabels{"app.kubernetes.io/name": "di-orchestrator"}); err != nil {
		return nil, err
	}
	all := map[string]*component{}
	for i := range list.Items {
		all[list.Items[i].Labels["app.kubernetes.io/component"]] = componentOf(&list.Items[i])
	}
	return all, nil
}

// Operator returns the version of the operator; empty if there is none, or if its image has no tag.
func Operator(ctx context.Context, found *cluster.Cluster, namespace string) (string, error) {
	all, err := components(ctx, found, namespace)
	if err != nil || all["operator"] == nil || all["operator"].isDigest() {
		return "", err
	}
	return all["operator"].Version, nil
}

// isDigest reports whether the image tells its content, and no version.
func (c *component) isDigest() bool { return strings.Contains(c.Version, ":") }

func componentOf(deployment *appsv1.Deployment) *component {
	found := &component{
		Namespace: deployment.Namespace, Name: deployment.Name,
		Replicas: ptr.Deref(deployment.Spec.Replicas, 1), Ready: deployment.Status.ReadyReplicas,
	}
	if containers := deployment.Spec.Template.Spec.Containers; len(containers) > 0 {
		found.Image = containers[0].Image
		name, digest, _ := strings.Cut(found.Image, "@")
		_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
		found.Version = cmp.Or(tag, digest, "latest")
	}
	return found
}

// print writes the report as text, and warns if versions differ.
func (v *versions) print(out, warnings io.Writer) error {
	aligned := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(aligned, "Client:\t%s\n", v.Client.Version)
	var others []string
	for _, one := range []struct {
		title, name string
		*component
	}{{"Operator:", "the operator", v.Operator}, {"Webhooks:", "the webhooks program", v.Webhook}, {"di-server:", "di-server", v.Server}} {
		if one.component == nil {
			continue
		}
		fmt.Fprintf(aligned, "%s\t%s\t%d of %d ready, deployment %s/%s, image %s\n",
			one.title, one.Version, one.Ready, one.Replicas, one.Namespace, one.Name, one.Image)
		if !one.isDigest() && strings.TrimPrefix(one.Version, "v") != strings.TrimPrefix(v.Client.Version, "v") {
			others = append(others, one.name+" is "+one.Version)
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(warnings, "kubectl-di: this plugin is %s, but %s: of one release they know the same fields and flags\n", v.Client.Version,
			strings.Join(others, " and "))
	}
	return aligned.Flush()
}
