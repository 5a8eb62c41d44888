// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/url"
	"strings"

	"opendilab.org/di-orchestrator/server/failure"
)

// Filter selects the replicas that a GET of the v1 protocol asks for.
type Filter struct {
	// Namespace is the namespace of the job; empty for all.
	Namespace string
	// Coordinator names a job by its coordinator's pod.
	Coordinator string
	// Aggregator names the aggregator whose DDP learners are asked for.
	Aggregator string
	// Name names one replica by its pod.
	Name string
}

// ReadFilter parses the query of a GET. Its keys are case-insensitive. Deployed
// clients also send a body, which is ignored.
func ReadFilter(rawQuery string) (Filter, error) {
	var wanted Filter
	fields := map[string]*string{
		"namespace":   &wanted.Namespace,
		"coordinator": &wanted.Coordinator,
		"aggregator":  &wanted.Aggregator,
		"name":        &wanted.Name,
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return Filter{}, failure.New(failure.Invalid, "the query %q is malformed", rawQuery).Because(err)
	}
	for key, values := range query {
		field, known := fields[strings.ToLower(key)]
		if !known {
			return Filter{}, failure.New(failure.Invalid, "query parameter %q is not known: use namespace, coordinator, aggregator or name", key)
		}
		for _, value := range values {
			if *field != "" && *field != value {
				return Filter{}, failure.New(failure.Invalid, "query parameter %q is given twice: %q and %q", key, *field, value)
			}
			*field = value
		}
	}
	if wanted.Namespace == "" && (wanted.Coordinator != "" || wanted.Aggregator != "" || wanted.Name != "") {
		return Filter{}, failure.New(failure.Invalid, "query parameter \"namespace\" is required beside coordinator, aggregator and name")
	}
	return wanted, nil
}
