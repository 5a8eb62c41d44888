// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/config/v1alpha1"
)

// checkTenants returns the names that two tenants have, and the namespaces that are of two tenants. The namespace of a
// tenant's name is its own.
func checkTenants(tenants []v1alpha1.Tenant) field.ErrorList {
	path := field.NewPath("operator", "allocator", "tenants")
	var found field.ErrorList
	owners := make(map[string]int, len(tenants))
	for i := range tenants {
		if _, isKnown := owners[tenants[i].Name]; isKnown {
			found = append(found, field.Invalid(path.Index(i).Child("name"), tenants[i].Name, "must be the name of one tenant only"))
			continue
		}
		owners[tenants[i].Name] = i
	}
	for i := range tenants {
		for at, namespace := range tenants[i].Namespaces {
			if owner, isKnown := owners[namespace]; isKnown && owner != i {
				found = append(found, field.Invalid(path.Index(i).Child("namespaces").Index(at), namespace,
					fmt.Sprintf("must be a namespace of one tenant only: tenant %s has it", tenants[owner].Name)))
				continue
			}
			owners[namespace] = i
		}
	}
	return found
}
