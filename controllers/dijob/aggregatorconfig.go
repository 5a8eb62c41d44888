// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
)

const (
	// AggregatorTemplateKey is the key of the ConfigMap under which the pod
	// template stands.
	AggregatorTemplateKey = "template.yaml"
	// defaultConfigRetry is when the making of the default AggregatorConfig is
	// tried again.
	defaultConfigRetry = 10 * time.Second
)

// DefaultAggregatorConfig makes the cluster's AggregatorConfig where there is
// none, once. An installer cannot, as the kind may not exist yet when it
// applies its manifests; what people make of it afterwards stays.
type DefaultAggregatorConfig struct {
	// Client writes to the API server, Reader reads from it.
	Client client.Client
	Reader client.Reader
	// Template names the ConfigMap that holds the pod template of aggregators.
	Template types.NamespacedName
	// Config names the AggregatorConfig to make.
	Config types.NamespacedName
	// MayAct is closed when no other operator acts any more; nil where there is none.
	MayAct <-chan struct{}
	// Log receives what goes wrong and is tried again.
	Log logr.Logger
}

// NeedLeaderElection lets only the operator that acts make it.
func (*DefaultAggregatorConfig) NeedLeaderElection() bool { return true }

// Start makes the AggregatorConfig, trying until it is there. It returns nil
// also when the context ends before.
func (d *DefaultAggregatorConfig) Start(ctx context.Context) error {
	if d.MayAct != nil {
		select {
		case <-d.MayAct:
		case <-ctx.Done():
			return nil
		}
	}
	err := wait.PollUntilContextCancel(ctx, defaultConfigRetry, true, func(ctx context.Context) (bool, error) {
		err := d.ensure(ctx)
		if err != nil {
			d.Log.Error(err, "Cannot create default AggregatorConfig; retrying", "config", d.Config, "template", d.Template)
		}
		return err == nil, nil
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (d *DefaultAggregatorConfig) ensure(ctx context.Context) error {
	existing, err := controllers.Find(ctx, d.Reader, d.Config, &v2alpha1.AggregatorConfig{})
	if err != nil || existing != nil {
		return err
	}
	var template corev1.ConfigMap
	if err := d.Reader.Get(ctx, d.Template, &template); err != nil {
		return fmt.Errorf("getting ConfigMap %s: %w", d.Template, err)
	}
	raw, err := yaml.YAMLToJSON([]byte(template.Data[AggregatorTemplateKey]))
	if err != nil {
		return fmt.Errorf("reading key %s of ConfigMap %s: %w", AggregatorTemplateKey, d.Template, err)
	}
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: d.Config.Namespace, Name: d.Config.Name}}
	config.Spec.Aggregator.Template = v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: raw}}
	if err := d.Client.Create(ctx, config); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating AggregatorConfig %s: %w", d.Config, err)
	}
	d.Log.Info("Created default AggregatorConfig", "config", d.Config)
	return nil
}
