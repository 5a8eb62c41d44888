// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"
	"sync"

	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/allocation/tenancy"
	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// Tenants returns the tenants that a configuration names.
func Tenants(configured []configv1alpha1.Tenant) []shares.Tenant {
	var tenants []shares.Tenant
	for _, tenant := range configured {
		tenants = append(tenants, shares.Tenant(tenant))
	}
	return tenants
}

// maxResources bounds the resources that the metric of tenants names.
const maxResources = 4

// The amounts of a resource that the metric has.
const (
	amountEntitled = "entitled"
	amountHeld     = "held"
	amountWanted   = "wanted"
)

// tenantMetric is the metric of the tenants of a configuration. All other tenants count as one.
type tenantMetric struct {
	tenants   *shares.Tenants
	mutex     sync.Mutex
	standings []tenancy.Standing
}

func (t *tenantMetric) add(set *telemetry.Set, tenants []shares.Tenant) {
	t.tenants = shares.New(tenants)
	var names []string
	for _, tenant := range tenants {
		names = append(names, tenant.Name)
	}
	set.Read(telemetry.Metric{
		Name: "di_orchestrator_allocator_tenant_resources", Unit: "units",
		Help: "What a tenant wanted, held and was entitled to in the last allocation round: accelerators, or cores if no job wants an accelerator.",
		Labels: []telemetry.Label{
			{Name: "tenant", Values: names, About: "the name of the tenant; other for namespaces that no tenant lists"},
			{Name: "resource", About: "the name of the resource, at most 4", Bound: func(resource string) string { return resource }},
			{Name: "amount", Values: []string{amountEntitled, amountHeld, amountWanted}},
		},
	}, t.read)
}

// observe sets the standings of the last round.
func (t *tenantMetric) observe(standings []tenancy.Standing) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.standings = standings
}

func (t *tenantMetric) read(report telemetry.Tell) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	var resources []string
	sums := map[[3]string]float64{}
	for _, s := range t.standings {
		tenant, resource := s.Tenant, string(s.Resource)
		if !t.tenants.IsNamed(tenant) {
			tenant = telemetry.Other
		}
		if !slices.Contains(resources, resource) {
			resources = append(resources, resource)
		}
		if len(resources) > maxResources {
			break
		}
		for amount, value := range map[string]float64{amountEntitled: s.Entitled, amountHeld: s.Holds, amountWanted: s.Wants} {
			sums[[3]string{tenant, resource, amount}] += value
		}
	}
	for labels, sum := range sums {
		report(sum, labels[:]...)
	}
	return nil
}
