// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/server/failure"
)

// Filter selects the replicas of a GET of the v1 protocol.
type Filter struct {
	// Namespace is the namespace of the job; empty for all namespaces.
	Namespace string
	// Coordinator is the name of the pod of the job's coordinator.
	Coordinator string
	// Aggregator is the name of the aggregator whose DDP learners the GET requests.
	Aggregator string
	// Name is the name of the pod of one replica.
	Name string
}

// ReadFilter parses the query of a GET. Keys are case-insensitive. Deployed clients also send a body,
// which is ignored.
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

// ReadCoordinator parses the query of a GET about the job of one coordinator.
func ReadCoordinator(rawQuery string) (types.NamespacedName, error) {
	wanted, err := ReadFilter(rawQuery)
	switch {
	case err != nil:
		return types.NamespacedName{}, err
	case wanted.Coordinator == "" || wanted.Aggregator != "" || wanted.Name != "":
		return types.NamespacedName{}, failure.New(failure.Invalid, "query parameters \"namespace\" and \"coordinator\" are required, without others")
	}
	return types.NamespacedName{Namespace: wanted.Namespace, Name: wanted.Coordinator}, nil
}
