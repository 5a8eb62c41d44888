// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shares divides capacity among tenants by weighted max-min fairness: the capacity rises for all tenants at a
// pace of their weights, and what one has no use for goes to the others (Bertsekas and Gallager, Data Networks, section
// 6.5.2; of several resources Ghodsi et al., Dominant Resource Fairness, NSDI 2011).
package shares

import (
	"cmp"
	"math"
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

// Claim is what a tenant may use of a capacity, and what it has elsewhere, which counts for its share.
type Claim struct {
	Weight, Has, Wants int
}

// part returns what a claim gets at a level, which is the same for all claims by their weights.
func (c *Claim) part(level float64) float64 {
	return min(max(level*float64(c.Weight)-float64(c.Has), 0), float64(c.Wants))
}

// bisections is how often the interval of levels is halved; the result is exact to less than a unit.
const bisections = 60

// Divide returns the part of each claim. No claim gets more than it wants. One that gets less has as much by its weight
// as any other that gets some, up to what is indivisible. Of equal claims the first one gets that.
func Divide(capacity int, claims []Claim) []int {
	parts, fractions, order := make([]int, len(claims)), make([]float64, len(claims)), make([]int, len(claims))
	level, rest := levelOf(capacity, claims), max(capacity, 0)
	for i := range claims {
		exact := claims[i].part(level)
		// What is a whole number but for the error of the level counts as one.
		parts[i], order[i] = int(exact+1e-6), i
		fractions[i] = exact - float64(parts[i])
		rest -= parts[i]
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(math.Round(fractions[b]*1e6), math.Round(fractions[a]*1e6)), cmp.Compare(a, b))
	})
	for _, i := range order {
		if rest > 0 && parts[i] < claims[i].Wants && fractions[i] > 1e-6 {
			parts[i]++
			rest--
		}
	}
	return parts
}

// levelOf returns the highest level at which all claims together get at most the capacity.
func levelOf(capacity int, claims []Claim) float64 {
	low, high := 0.0, 0.0
	for i := range claims {
		high = max(high, float64(claims[i].Has+claims[i].Wants)/float64(claims[i].Weight))
	}
	sum := func(level float64) float64 {
		taken := 0.0
		for i := range claims {
			taken += claims[i].part(level)
		}
		return taken
	}
	if sum(high) <= float64(capacity) {
		return high
	}
	for range bisections {
		if middle := (low + high) / 2; sum(middle) <= float64(capacity) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}
