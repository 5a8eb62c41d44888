// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestCapacityIsDividedByWeight(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		capacity int
		claims   []shares.Claim
		want     []int
	}{
		"three to one":                        {16, []shares.Claim{{Weight: 3, Wants: 100}, {Weight: 1, Wants: 100}}, []int{12, 4}},
		"a tenant that wants nothing":         {16, []shares.Claim{{Weight: 3, Wants: 0}, {Weight: 1, Wants: 100}}, []int{0, 16}},
		"a tenant that lends":                 {16, []shares.Claim{{Weight: 3, Wants: 5}, {Weight: 1, Wants: 100}}, []int{5, 11}},
		"several lend, and two share that":    {30, []shares.Claim{{Weight: 1, Wants: 4}, {Weight: 1, Wants: 6}, {Weight: 1, Wants: 50}, {Weight: 1, Wants: 50}}, []int{4, 6, 10, 10}},
		"all have what they want":             {16, []shares.Claim{{Weight: 3, Wants: 5}, {Weight: 1, Wants: 6}}, []int{5, 6}},
		"what is indivisible is of the first": {7, []shares.Claim{{Weight: 1, Wants: 9}, {Weight: 1, Wants: 9}}, []int{4, 3}},
		"the larger rest is first":            {10, []shares.Claim{{Weight: 1, Wants: 99}, {Weight: 2, Wants: 99}, {Weight: 4, Wants: 99}}, []int{1, 3, 6}},
		"what one has elsewhere counts":       {8, []shares.Claim{{Weight: 1, Wants: 20}, {Weight: 1, Has: 4, Wants: 20}}, []int{6, 2}},
		"one has its share elsewhere":         {8, []shares.Claim{{Weight: 1, Wants: 20}, {Weight: 1, Has: 8, Wants: 20}}, []int{8, 0}},
		"no capacity":                         {0, []shares.Claim{{Weight: 3, Wants: 5}, {Weight: 1, Wants: 6}}, []int{0, 0}},
		"overcommitted nodes":                 {-4, []shares.Claim{{Weight: 3, Wants: 5}}, []int{0}},
		"no claims":                           {4, nil, []int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, "parts", tc.want, shares.Divide(tc.capacity, tc.claims))
		})
	}
}

// TestPartsFollowARisingLevel compares with the level, by weight, at which all claims are served until nothing is left.
func TestPartsFollowARisingLevel(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		claims, wanted := make([]shares.Claim, 1+random.IntN(6)), 0
		for i := range claims {
			claims[i] = shares.Claim{Weight: 1 + random.IntN(5), Has: random.IntN(2) * random.IntN(20), Wants: random.IntN(40)}
			wanted += claims[i].Wants
		}
		capacity, sum := random.IntN(100), 0
		got, level := shares.Divide(capacity, claims), levelOf(capacity, claims)
		for i, claim := range claims {
			sum += got[i]
			if exact := partOf(claim, level); math.Abs(float64(got[i])-exact) > 0.999 {
				t.Fatalf("%d among %v: got %v, but claim %d is %.3f", capacity, claims, got, i, exact)
			}
		}
		if sum != min(capacity, wanted) {
			t.Fatalf("%d among %v: got %v, which is not all", capacity, claims, got)
		}
	}
}

// partOf returns what a claim gets once the level has risen: nothing before the level has reached what it has, and nothing
// beyond what it wants.
func partOf(claim shares.Claim, level float64) float64 {
	switch share := level * float64(claim.Weight); {
	case share < float64(claim.Has):
		return 0
	case share > float64(claim.Has+claim.Wants):
		return float64(claim.Wants)
	default:
		return share - float64(claim.Has)
	}
}

// levelOf raises the level in small steps.
func levelOf(capacity int, claims []shares.Claim) float64 {
	level, step := 0.0, 0.001
	for ; level < 100; level += step {
		taken := 0.0
		for _, claim := range claims {
			taken += partOf(claim, level+step)
		}
		if taken > float64(capacity) {
			break
		}
	}
	return level
}

func TestANamespaceThatNoTenantHasIsATenant(t *testing.T) {
	t.Parallel()
	tenants := shares.New([]shares.Tenant{{Name: "vision", Namespaces: []string{"images", "video"}, Weight: 3}, {Name: "robots"}})
	for namespace, want := range map[string]string{"images": "vision", "video": "vision", "vision": "vision", "robots": "robots", "other": "other"} {
		expect.Equal(t, "tenant of "+namespace, want, tenants.Of(namespace))
	}
	for name, want := range map[string]int{"vision": 3, "robots": 1, "other": 1} {
		expect.Equal(t, "weight of "+name, want, tenants.Weight(name))
	}
	if !tenants.IsNamed("robots") || tenants.IsNamed("other") || shares.New(nil) != nil {
		t.Error("robots is a tenant of the configuration, other is none, and no tenants are none")
	}
}
