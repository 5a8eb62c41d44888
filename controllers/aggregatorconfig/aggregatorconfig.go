// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregatorconfig creates the cluster's default AggregatorConfig.
package aggregatorconfig

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
	// TemplateKey is the key of the pod template in the ConfigMap.
	TemplateKey = "template.yaml"
	// minRetry and maxRetry are the shortest and the longest time between attempts, which doubles. The first
	// attempt fails if the API server does not reach the webhooks yet.
	minRetry = time.Second
	maxRetry = time.Minute
)

// Default creates the cluster's AggregatorConfig once, if there is none. An installer cannot create it,
// because the kind may not exist yet when it applies its manifests. Users may edit it afterwards.
type Default struct {
	// Client writes to the API server, Reader reads from it.
	Client client.Client
	Reader client.Reader
	// Template names the ConfigMap with the pod template of aggregators.
	Template types.NamespacedName
	// Config names the AggregatorConfig.
	Config types.NamespacedName
	// MayAct is closed when no other operator acts; nil if there is no other.
	MayAct <-chan struct{}
	// Log logs errors that are retried.
	Log logr.Logger
}

// NeedLeaderElection restricts it to the leader.
func (*Default) NeedLeaderElection() bool { return true }

// Start creates the AggregatorConfig and retries until it exists. It also returns nil if the context ends
// first.
func (d *Default) Start(ctx context.Context) error {
	if d.MayAct != nil {
		select {
		case <-d.MayAct:
		case <-ctx.Done():
			return nil
		}
	}
	backoff := wait.Backoff{Duration: minRetry, Factor: 2, Steps: 64, Cap: maxRetry}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
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

func (d *Default) ensure(ctx context.Context) error {
	existing, err := controllers.Find(ctx, d.Reader, d.Config, &v2alpha1.AggregatorConfig{})
	if err != nil || existing != nil {
		return err
	}
	var template corev1.ConfigMap
	if err := d.Reader.Get(ctx, d.Template, &template); err != nil {
		return fmt.Errorf("getting ConfigMap %s: %w", d.Template, err)
	}
	raw, err := yaml.YAMLToJSON([]byte(template.Data[TemplateKey]))
	if err != nil {
		return fmt.Errorf("reading key %s of ConfigMap %s: %w", TemplateKey, d.Template, err)
	}
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: d.Config.Namespace, Name: d.Config.Name}}
	config.Spec.Aggregator.Template = v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: raw}}
	if err := d.Client.Create(ctx, config); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating AggregatorConfig %s: %w", d.Config, err)
	}
	d.Log.Info("Created default AggregatorConfig", "config", d.Config)
	return nil
}
