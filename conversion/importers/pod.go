// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// The names of the main container and of its port.
const (
	mainContainer = "di-container"
	mainPort      = "di-port"
)

// renaming contains the names that another operator gives to the main container and its port.
type renaming struct {
	container, port string
	// toPort is the new name of the port.
	toPort string
}

// apply gives the main container and its port the names that the operator expects, unless the
// template has a container with that name already.
func (r renaming) apply(m *manifest, template map[string]any, at Path) {
	found := containers(template)
	main := slices.IndexFunc(found, func(c map[string]any) bool { return c["name"] == r.container })
	known := slices.ContainsFunc(found, func(c map[string]any) bool { return c["name"] == mainContainer })
	if main < 0 || known {
		return
	}
	where := at.Child("spec", "containers", strconv.Itoa(main))
	found[main]["name"] = mainContainer
	m.noteAgain(where.Child("name"), r.container,
		fmt.Sprintf("became %s, the name by which the operator finds the container that trains", mainContainer),
		"name it so wherever else it is named, such as in kubectl logs -c")
	r.references(m, template, at)
	for i, port := range ports(found[main]) {
		if port["name"] == r.port {
			port["name"] = r.toPort
			m.noteAgain(where.Child("ports", strconv.Itoa(i), "name"), r.port,
				fmt.Sprintf("became %s, the name by which the operator finds the port", r.toPort),
				"name it so in Services and NetworkPolicies of your own")
		}
	}
}

// references renames the references to the main container in the environment of containers.
func (r renaming) references(m *manifest, template map[string]any, at Path) {
	eachObject(at, template, func(where Path, object map[string]any) {
		if _, isResource := object["resource"]; isResource && object["containerName"] == r.container {
			object["containerName"] = mainContainer
			m.note(where.Child("containerName"), r.container, "became "+mainContainer+" with the container", "")
		}
	})
}

// eachObject calls the function for each object, the outermost first.
func eachObject(at Path, value any, do func(Path, map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		do(at, value)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			eachObject(at.Child(key), value[key], do)
		}
	case []any:
		for i, item := range value {
			eachObject(at.Child(strconv.Itoa(i)), item, do)
		}
	}
}
