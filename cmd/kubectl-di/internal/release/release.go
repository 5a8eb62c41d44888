// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release is kubectl di version.
package release

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
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
	"opendilab.org/di-orchestrator/internal/names"
)

const long = `Print the version of this plugin, and those of the operator and di-server in the
cluster, by the images of their Deployments.

Where the cluster cannot be asked the plugin's own is printed, and the command ends
with 1. Where versions differ it is said on stderr. --client asks nobody.`

const examples = `  # What runs here, and what runs in the cluster
  kubectl di version

  # The plugin's version alone, without a cluster
  kubectl di version --client

  # The image of the operator
  kubectl di version -o json | jq -r .operator.image`

// Report is what kubectl di version -o prints.
type Report struct {
	Client   Client     `json:"client"`
	Operator *Component `json:"operator,omitempty"`
	Server   *Component `json:"server,omitempty"`
}

// Client is what is known of the plugin.
type Client struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// Component is what is known of a Deployment.
type Component struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Version is the tag of the image, or its digest where it has none.
	Version  string `json:"version"`
	Image    string `json:"image"`
	Replicas int32  `json:"replicas"`
	Ready    int32  `json:"ready"`
}

// options are the flags of version.
type options struct {
	flags     *cluster.Flags
	streams   genericiooptions.IOStreams
	version   string
	client    bool
	namespace string
	output    *printing.Data
}

// NewCommand returns the command, of a plugin of this version.
func NewCommand(flags *cluster.Flags, streams genericiooptions.IOStreams, version string) *cobra.Command {
	options := &options{flags: flags, streams: streams, version: version, output: printing.NewData()}
	help := arguments.Help{Use: "version", Short: "Print the versions of this plugin, the operator and di-server", Long: long, Example: examples}
	command := arguments.NewCommand(help, options.run)
	own := command.Flags()
	own.BoolVar(&options.client, "client", false, "print the version of this plugin only, and ask nobody")
	own.StringVar(&options.namespace, "server-namespace", names.SystemNamespace, "namespace that DI Orchestrator runs in")
	options.output.Bind(command, "print them")
	return command
}

func (o *options) run(ctx context.Context) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	report := &Report{Client: Client{Version: o.version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}}
	var unknown error
	if !o.client {
		unknown = o.ask(ctx, report)
	}
	if !o.output.IsText() {
		return errors.Join(o.output.Print(o.streams.Out, report), unknown)
	}
	if difference := report.difference(); difference != "" {
		fmt.Fprintln(o.streams.ErrOut, "kubectl-di:", difference)
	}
	return errors.Join(report.print(o.streams.Out), unknown)
}

// ask adds to the report what the cluster tells.
func (o *options) ask(ctx context.Context, report *Report) error {
	found, err := o.flags.Connect()
	if err != nil {
		return err
	}
	deployments, err := found.Deployments(ctx, o.namespace)
	if err != nil {
		return err
	}
	report.Operator, report.Server = componentOf(deployments["operator"]), componentOf(deployments["server"])
	return nil
}

// componentOf says what is known of a Deployment; nothing where there is none.
func componentOf(deployment *appsv1.Deployment) *Component {
	if deployment == nil {
		return nil
	}
	component := &Component{
		Namespace: deployment.Namespace, Name: deployment.Name,
		Replicas: ptr.Deref(deployment.Spec.Replicas, 1), Ready: deployment.Status.ReadyReplicas,
	}
	if containers := deployment.Spec.Template.Spec.Containers; len(containers) > 0 {
		component.Image = containers[0].Image
		component.Version = versionOf(component.Image)
	}
	return component
}

// versionOf returns the tag of an image, or its digest; latest where it has
// neither, as a node takes it.
func versionOf(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	last := name[strings.LastIndex(name, "/")+1:]
	_, tag, _ := strings.Cut(last, ":")
	return cmp.Or(tag, digest, "latest")
}

// difference says where versions differ that are known; nothing where none do.
func (r *Report) difference() string {
	var others []string
	for _, one := range []struct {
		title     string
		component *Component
	}{{"the operator", r.Operator}, {"di-server", r.Server}} {
		if one.component != nil && bare(one.component.Version) != bare(r.Client.Version) && !isDigest(one.component.Version) {
			others = append(others, one.title+" is "+one.component.Version)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("this plugin is %s, but %s: of one release they know the same fields and flags", r.Client.Version, strings.Join(others, " and "))
}

// bare returns a version as it is without its v.
func bare(version string) string { return strings.TrimPrefix(version, "v") }

// isDigest reports whether a version names no release.
func isDigest(version string) bool { return strings.Contains(version, ":") }

// print writes the report for people.
func (r *Report) print(out io.Writer) error {
	aligned := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(aligned, "Client:\t%s\n", r.Client.Version)
	r.Operator.print(aligned, "Operator:")
	r.Server.print(aligned, "di-server:")
	return aligned.Flush()
}

func (c *Component) print(out io.Writer, title string) {
	if c == nil {
		return
	}
	fmt.Fprintf(out, "%s\t%s\t%d of %d ready, deployment %s/%s, image %s\n", title, c.Version, c.Ready, c.Replicas, c.Namespace, c.Name, c.Image)
}
