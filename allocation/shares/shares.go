// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shares divides capacity among tenants by weighted max-min fairness: the capacity rises for all tenants at a
// pace of their weights, and what one has no use for goes to the others (Bertsekas and Gallager, Data Networks, section
// 6.5.2; of several resources Ghodsi et al., Dominant Resource Fairness, NSDI 2011).
package shares

import (
	"cmp"
	"slices"
)

// Tenant is a group of namespaces with a share of the capacity.
type Tenant struct {
	// Name is its name. The namespace of this name is its own, too.
	Name string
	// Namespaces are the namespaces of its jobs.
	Namespaces []string
	// Weight is its part beside the weights of the others; 0 stands for 1.
	Weight int32
}

// Tenants are the tenants of a cluster. A namespace that none of them lists is a tenant of its own, of weight 1.
type Tenants struct {
	named  map[string]int
	owners map[string]string
}

// New returns the tenants of a cluster, nil for none.
func New(tenants []Tenant) *Tenants {
	if len(tenants) == 0 {
		return nil
	}
	t := &Tenants{named: make(map[string]int, len(tenants)), owners: map[string]string{}}
	for _, tenant := range tenants {
		t.named[tenant.Name] = int(cmp.Or(tenant.Weight, 1))
		for _, namespace := range tenant.Namespaces {
			t.owners[namespace] = tenant.Name
		}
	}
	return t
}

// Of returns the name of the tenant of a namespace.
func (t *Tenants) Of(namespace string) string { return cmp.Or(t.owners[namespace], namespace) }

// Weight returns the weight of a tenant.
func (t *Tenants) Weight(name string) int { return cmp.Or(t.named[name], 1) }

// IsNamed reports whether a tenant is not merely a namespace.
func (t *Tenants) IsNamed(name string) bool { return t.named[name] > 0 }

// Claim is what a tenant may use of a capacity.
type Claim struct {
	Weight, Wants int
}

// Divide returns the part of each claim. No claim gets more than it wants. One that gets less has as much by its weight
// as any other, up to what is indivisible. Of equal claims the first one gets that.
func Divide(capacity int, claims []Claim) []int {
	parts, open := make([]int, len(claims)), make([]int, 0, len(claims))
	weights, left := 0, max(capacity, 0)
	for i, claim := range claims {
		if claim.Wants > 0 {
			open, weights = append(open, i), weights+claim.Weight
		}
	}
	slices.SortStableFunc(open, func(a, b int) int {
		return cmp.Compare(claims[a].Wants*claims[b].Weight, claims[b].Wants*claims[a].Weight)
	})
	// Claims that want the least by their weight get all of it, as long as the others have as much.
	for len(open) > 0 && claims[open[0]].Wants*weights <= left*claims[open[0]].Weight {
		first := open[0]
		parts[first], left, weights, open = claims[first].Wants, left-claims[first].Wants, weights-claims[first].Weight, open[1:]
	}
	rest := left
	for _, i := range open {
		parts[i] = left * claims[i].Weight / weights
		rest -= parts[i]
	}
	slices.SortFunc(open, func(a, b int) int {
		return cmp.Or(cmp.Compare(left*claims[b].Weight%weights, left*claims[a].Weight%weights), cmp.Compare(a, b))
	})
	for _, i := range open[:min(rest, len(open))] {
		parts[i]++
	}
	return parts
}
