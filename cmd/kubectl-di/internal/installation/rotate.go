// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/certs/record"
	"opendilab.org/di-orchestrator/internal/names"
)

const rotateLong = `Replace the certificate authority of the webhooks, without a call that
fails, and follow that until all webhooks serve by the new one.

The new authority is published beside the old one; webhooks serve by it ten seconds
later; and the old one is dropped when all of them do, for which --wait waits, too. The
command waits for slow webhooks. If it is stopped, the rotation continues.

If another program, such as cert-manager, keeps the certificates
(common.certificateSecret), the command changes nothing: renew them there.`

// rotateInterval is the interval between checks of the progress.
const rotateInterval = time.Second

// rotation is the state of rotate-ca.
type rotation struct {
	*cli.Env
	namespace string
	wait      bool
	timeout   cli.Timeout
	cluster   *cluster.Cluster
	// old is the certificate of the replaced authority.
	old []byte
}

// NewRotateCommand returns kubectl di rotate-ca.
func NewRotateCommand(env *cli.Env) *cobra.Command {
	o := &rotation{Env: env}
	command := cli.NewCommand(cli.Help{
		Use: "rotate-ca", Short: "Replace the certificate authority of the webhooks", Long: rotateLong,
		Example: `  # Replace the authority, and wait until the old one is no longer trusted
  kubectl di rotate-ca --wait

  # The same where the operator runs in another namespace
  kubectl di rotate-ca --wait --server-namespace rl-system`,
	}, o.run)
	command.Flags().BoolVar(&o.wait, "wait", false, "wait until the old authority is no longer trusted")
	o.timeout.Bind(command, "wait no longer than this; 0 for as long as it takes")
	command.Flags().StringVar(&o.namespace, "server-namespace", names.SystemNamespace, "namespace of DI Orchestrator")
	return command
}

func (o *rotation) run(ctx context.Context) (err error) {
	if o.cluster, err = o.Connect(); err != nil {
		return err
	}
	if err := o.request(ctx); err != nil {
		return err
	}
	ctx, cancel := o.timeout.Context(ctx)
	defer cancel()
	return o.follow(ctx)
}

// request requests a rotation, unless another tool issues the certificates.
func (o *rotation) request(ctx context.Context) error {
	now := time.Now()
	certificate, replicas, err := o.authority(ctx, now)
	if err != nil {
		return err
	}
	if len(replicas) == 0 {
		return fmt.Errorf("no operator of namespace %s serves by an authority of its own.\n"+
			"Where it runs in another namespace, name it by --server-namespace. Where another program, such as cert-manager, keeps its certificate\n"+
			"(common.certificateSecret), have it renewed there, as by cmctl renew -n %s di-orchestrator-webhook: operators follow without a call that fails",
			o.namespace, o.namespace)
	}
	o.old = certificate
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: names.WebhookAuthority}}
	return o.cluster.Patch(ctx, secret, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, record.AnnotationRotate, now.UTC().Format(time.RFC3339Nano))))
}

// authority returns the certificate of the current authority, and the replicas of the webhooks.
func (o *rotation) authority(ctx context.Context, now time.Time) ([]byte, []record.Replica, error) {
	var secret corev1.Secret
	err := o.cluster.Get(ctx, o.namespace, names.WebhookAuthority, &secret)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return secret.Data[corev1.TLSCertKey], record.Replicas(&secret, now), err
}

// trusting counts the client configurations of the webhooks, and those whose bundle has a
// certificate.
func (o *rotation) trusting(ctx context.Context, certificate []byte) (trusting, total int, err error) {
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	for name, kind := range map[string]schema.GroupVersionKind{
		names.DIJobDefinition:    {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		names.MutatingWebhooks:   admission.WithKind("MutatingWebhookConfiguration"),
		names.ValidatingWebhooks: admission.WithKind("ValidatingWebhookConfiguration"),
	} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		if err := o.cluster.Get(ctx, "", name, object); err != nil {
			return 0, 0, err
		}
		for _, bundle := range bundlesOf(object) {
			total++
			if bytes.Contains(bundle, bytes.TrimSpace(certificate)) {
				trusting++
			}
		}
	}
	return trusting, total, nil
}

// bundlesOf returns the CA bundle of each client configuration of an object.
func bundlesOf(object *unstructured.Unstructured) [][]byte {
	var bundles [][]byte
	add := func(of map[string]any, path ...string) {
		encoded, _, _ := unstructured.NestedString(of, append(path, "clientConfig", "caBundle")...)
		// A value that does not decode has no bundle.
		bundle, _ := base64.StdEncoding.DecodeString(encoded)
		bundles = append(bundles, bundle)
	}
	webhooks, listed, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for _, item := range webhooks {
		if config, ok := item.(map[string]any); ok {
			add(config)
		}
	}
	if !listed {
		add(object.Object, "spec", "conversion", "webhook")
	}
	return bundles
}

// state is the progress of a rotation.
type state struct {
	// made reports whether there is a new authority.
	made bool
	// places counts the client configurations; new and old count those that trust the new or the
	// old authority.
	places, new, old int
	// replicas counts the replicas of the webhooks, and followed those that serve with the new
	// authority; slow names the others.
	replicas, followed int
	slow               []string
}

// describe returns the progress, and whether the command can stop waiting.
func (s *state) describe(wait bool) (string, bool) {
	switch {
	case !s.made:
		return "waiting for an operator to make another", false
	case s.new < s.places:
		return fmt.Sprintf("made; published beside the old one for %d of %d webhooks", s.new, s.places), false
	case s.followed < s.replicas || s.replicas == 0:
		text := fmt.Sprintf("published beside the old one; %d of %d webhooks serve by it", s.followed, s.replicas)
		if len(s.slow) > 0 {
			text += "; waiting for " + strings.Join(s.slow, ", ")
		}
		return text, false
	case s.old > 0:
		return s.all() + "; the old one will be dropped", !wait
	}
	return s.all() + "; the old one is dropped", true
}

// all says that every replica of the webhooks serves by the new authority.
func (s *state) all() string {
	return english.PluralWord(s.replicas, "the webhook serves", "all "+english.Plural(s.replicas, "webhook", "")+" serve") + " by it"
}

// follow reports the progress of the rotation until it has finished.
func (o *rotation) follow(ctx context.Context) error {
	report := cli.NewProgress(o.ErrOut)
	defer report.End()
	last := "its state is unknown"
	err := wait.PollUntilContextCancel(ctx, rotateInterval, true, func(ctx context.Context) (done bool, err error) {
		now, err := o.look(ctx)
		if err != nil {
			return false, err
		}
		last, done = now.describe(o.wait)
		report.State("certificate authority", last)
		return done, nil
	})
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("stopped waiting for the certificate authority, whose rotation continues: %s", last)
	}
	return err
}

func (o *rotation) look(ctx context.Context) (*state, error) {
	certificate, replicas, err := o.authority(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	now := &state{made: len(certificate) > 0 && !bytes.Equal(certificate, o.old), replicas: len(replicas)}
	for _, replica := range replicas {
		if replica.Authority == record.Fingerprint(certificate) {
			now.followed++
		} else {
			now.slow = append(now.slow, replica.Name)
		}
	}
	if now.new, now.places, err = o.trusting(ctx, certificate); err != nil {
		return nil, err
	}
	now.old, _, err = o.trusting(ctx, o.old)
	return now, err
}
