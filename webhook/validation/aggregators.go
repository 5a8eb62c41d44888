// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

const kindAggregatorConfig = "AggregatorConfig"

// Aggregator is the template of an AggregatorConfig, which must follow the same rules
// as the templates of tasks. It has the same shape in both versions.
type Aggregator struct {
	template, old []byte
	create        bool
	at            *field.Path
}

// ReadAggregator reads an AggregatorConfig and, for an update, the one that it replaces. A stored
// one that does not decode is not an error, because an update may repair it.
func ReadAggregator(raw, oldRaw []byte, create bool) (*Aggregator, error) {
	template, err := aggregatorTemplate(raw)
	if err != nil {
		return nil, err
	}
	a := &Aggregator{template: template, create: create, at: field.NewPath("spec", "aggregator", "template")}
	if !create {
		a.old, _ = aggregatorTemplate(oldRaw)
	}
	return a, nil
}

// Validate returns the errors that an update does not inherit from the stored object.
func (a *Aggregator) Validate() field.ErrorList {
	errs := validateTemplate(a.template, a.at)
	if a.create {
		return errs
	}
	return less(errs, validateTemplate(a.old, a.at))
}

// Warnings returns the warnings that an update does not inherit from the stored object.
func (a *Aggregator) Warnings() []string {
	found := warnAggregators(a.template, a.at)
	if a.create {
		return found
	}
	return fewer(found, warnAggregators(a.old, a.at))
}

// UnknownFields returns the fields that the update adds and that pods do not have.
func (a *Aggregator) UnknownFields(fields PodFields) field.ErrorList {
	p := podFields{fields}
	return less(p.inTemplate(a.template, a.at), p.inTemplate(a.old, a.at))
}

// aggregatorTemplate returns the template of an AggregatorConfig of either version.
func aggregatorTemplate(raw []byte) ([]byte, error) {
	config := &v2alpha1.AggregatorConfig{}
	if err := json.Unmarshal(raw, config); err != nil {
		return nil, fmt.Errorf("decoding the AggregatorConfig: %w", err)
	}
	if config.Kind != kindAggregatorConfig {
		return nil, fmt.Errorf("kind %q, want %s", config.Kind, kindAggregatorConfig)
	}
	return config.Spec.Aggregator.Template.Raw, nil
}

// warnAggregators returns warnings about fields of the template that aggregators will not have.
func warnAggregators(raw []byte, at *field.Path) []string {
	template, found := jsontype.Read[corev1.PodTemplateSpec](raw, at)
	var w notes
	if len(found.Mistyped) == 0 {
		w.overridden(template, replicaOverrides(names.ReplicaTypeAggregator), at)
		w.ignoredPorts(names.ReplicaTypeAggregator, &template.Spec, at.Child("spec"))
	}
	return w
}
