// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/takeover"
	"opendilab.org/di-orchestrator/webhook"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// probeInterval is the interval between admission probes.
const probeInterval = time.Second

// installOptions are the options that all installation commands share.
type installOptions struct {
	namespace string
	timeout   time.Duration
}

func newInstallCommand() *cobra.Command {
	certificates, settle, takesOver := certificatesOwn, takeover.DefaultSettle, true
	command := installCommand("install-crds", "Install the CustomResourceDefinitions, or bring them up to date",
		`Creates the CustomResourceDefinitions that are missing and brings the others up to
date, and returns when the API server serves them. Of those that v0.2.2 or v1.1 has
made it only takes away what has cert-manager write certificates into them; the
webhooks take them over when they serve. Pods of an earlier di-server are
made known to nodes under the port names that Service di-server is about to have.
It can be repeated, and changes nothing where all is up to date. The chart runs it
before it installs or upgrades anything else.`,
		func(ctx context.Context, api client.Client, options *installOptions, out io.Writer) error {
			if err := checkCertificates(certificates); err != nil {
				return err
			}
			installer := &crds.Installer{
				API: api, Namespace: options.namespace, OwnCertificates: certificates == certificatesOwn, NoTakeover: !takesOver, Out: out,
			}
			if err := installer.Install(ctx); err != nil || !takesOver {
				return err
			}
			return newBridge(api, options, settle, out).Ahead(ctx)
		})
	bindSettle(command.Flags(), &settle)
	command.Flags().BoolVar(&takesOver, "takeover", true, "as common.takeover of the programs' configuration")
	command.Flags().StringVar(&certificates, "webhook-certificates", certificatesOwn,
		"source of the webhooks' certificates: own, and no other tool may write CA bundles into the CRDs, or secret (common.certificateSecret of "+
			"the configuration), and only an earlier release may not")
	return command
}

// The sources of the webhooks' certificates.
const (
	certificatesOwn    = "own"
	certificatesSecret = "secret"
)

func checkCertificates(source string) error {
	if source != certificatesOwn && source != certificatesSecret {
		return fmt.Errorf("--webhook-certificates %s: must be %s or %s", source, certificatesOwn, certificatesSecret)
	}
	return nil
}

func newRetireCommand() *cobra.Command {
	settle := takeover.DefaultSettle
	command := installCommand("retire-crds", "Prepare for a cluster without the operator",
		`Deletes the webhook configurations and lets the API server serve DIJobs only in
the version that they are stored in, so that nothing waits for an operator that is
gone. No job and no pod is touched. Where a di-server of an earlier release runs,
nodes are made to know it also under the port name that its own Service has.
install-crds undoes it. The chart runs it before it is uninstalled.`,
		func(ctx context.Context, api client.Client, options *installOptions, out io.Writer) error {
			if err := bridgeBack(ctx, api, newBridge(api, options, settle, out)); err != nil {
				return err
			}
			installer := &crds.Installer{API: api, Namespace: options.namespace, Out: out}
			return installer.Retire(ctx, webhook.MutatingConfiguration, webhook.ValidatingConfiguration, webhook.CRD)
		})
	bindSettle(command.Flags(), &settle)
	return command
}

func newBridge(api client.Client, options *installOptions, settle time.Duration, out io.Writer) *takeover.Bridge {
	return &takeover.Bridge{API: api, Namespace: options.namespace, Settle: settle, Clock: clock.RealClock{}, Out: out}
}

// bridgeBack prepares for the Service of the release whose version is the storage version.
func bridgeBack(ctx context.Context, api client.Client, bridge *takeover.Bridge) error {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := api.Get(ctx, client.ObjectKey{Name: webhook.CRD}, definition)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting customresourcedefinition %s: %w", webhook.CRD, err)
	}
	port := names.ServerPortV2
	if crds.StorageOf(definition) == v1alpha1.Version {
		port = names.ServerPortV1
	}
	return bridge.Back(ctx, port)
}

func newProbeCommand() *cobra.Command {
	return installCommand("probe", "Wait until jobs are admitted",
		`Creates a job of v1alpha1 without storing it, again and again, until the API
server reaches the webhooks, which default, validate and convert it.`,
		func(ctx context.Context, api client.Client, options *installOptions, out io.Writer) error {
			var last error
			err := wait.PollUntilContextCancel(ctx, probeInterval, true, func(ctx context.Context) (bool, error) {
				last = admissionprobe.Probe(ctx, api, options.namespace)
				return last == nil, nil
			})
			if err != nil {
				return errors.Join(err, last)
			}
			_, err = fmt.Fprintln(out, "jobs are admitted")
			return err
		})
}

// installCommand returns a command that runs a function with a timeout.
func installCommand(use, short, long string, run func(context.Context, client.Client, *installOptions, io.Writer) error) *cobra.Command {
	options := &installOptions{}
	command := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := installClient()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), options.timeout)
			defer cancel()
			return run(ctx, api, options, cmd.OutOrStdout())
		},
	}
	bindInstallOptions(command, options)
	return command
}

func bindInstallOptions(command *cobra.Command, options *installOptions) {
	command.Flags().StringVar(&options.namespace, "namespace", ownNamespace(), "namespace of the operator's installation")
	command.Flags().DurationVar(&options.timeout, "timeout", 2*time.Minute, "timeout of the command")
}

func bindSettle(flags *pflag.FlagSet, settle *time.Duration) {
	flags.DurationVar(settle, "takeover-settle", *settle, "how long endpoint changes take to reach all nodes")
}

func installClient() (client.Client, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering CustomResourceDefinitions: %w", err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return api, nil
}
