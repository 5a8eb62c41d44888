// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/names"
)

// configName is a flag whose value names an object by namespace/name.
type configName struct{ types.NamespacedName }

func defaultAggregatorConfig() configName {
	return configName{types.NamespacedName{Namespace: names.SystemNamespace, Name: names.AggregatorConfig}}
}

// Set implements pflag.Value.
func (c *configName) Set(value string) error {
	namespace, name, found := strings.Cut(value, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q: want namespace/name, such as %s", value, defaultAggregatorConfig().String())
	}
	c.NamespacedName = types.NamespacedName{Namespace: namespace, Name: name}
	return nil
}

// Type implements pflag.Value.
func (*configName) Type() string { return "namespace/name" }
