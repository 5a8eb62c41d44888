// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/allocation/goodput"
)

// The policies of the operator.
const (
	// PolicyFit is the name of the default policy.
	PolicyFit = "fit"
	// PolicyGoodput is the name of the policy that decides replicas by goodput.
	PolicyGoodput = "goodput"
	// maxPolicyName is the maximum length of a name in the status of jobs.
	maxPolicyName = 63
)

// Fit returns the default policy. It lets a job grow five minutes after it was placed.
func Fit() allocation.Policy { return fit.Fit{GrowAfter: defaultGrowAfter} }

// Policies returns the policies that the operator can run, by name: its own and the linked ones. A linked
// policy may not have the name of another.
func Policies(fairness float64, deviceLabel string, linked map[string]allocation.Policy) (map[string]allocation.Policy, error) {
	settings := goodput.DefaultSettings()
	settings.Fairness, settings.DeviceKey = fairness, deviceLabel
	all := map[string]allocation.Policy{PolicyFit: Fit(), PolicyGoodput: goodput.New(settings)}
	for _, name := range slices.Sorted(maps.Keys(linked)) {
		if all[name] != nil || name == "" || len(name) > maxPolicyName {
			return nil, fmt.Errorf("linked policy %q: must have a name of 1 to %d bytes other than %s", name, maxPolicyName, nameList(all))
		}
		all[name] = linked[name]
	}
	return all, nil
}

// FindPolicy returns the policy of a name. The error names the field of the configuration.
func FindPolicy(field, name string, policies map[string]allocation.Policy) (allocation.Policy, error) {
	if policy := policies[name]; policy != nil {
		return policy, nil
	}
	return nil, fmt.Errorf("%s: %q: must be one of %s", field, name, nameList(policies))
}

func nameList(policies map[string]allocation.Policy) string {
	return strings.Join(slices.Sorted(maps.Keys(policies)), ", ")
}
