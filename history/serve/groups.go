// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/history/record"
)

// maxGroupsBody bounds the body of a request for groups, in bytes.
const maxGroupsBody = 1 << 20

// groups answers what the allocator has learned of groups. The caller needs the right to list jobs in their namespaces.
func (h *handler) groups(r *request) (any, error) {
	var asked record.GroupsRequest
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxGroupsBody)).Decode(&asked); err != nil {
		return nil, apierrors.NewBadRequest("the body does not decode: " + err.Error())
	}
	if len(asked.Names) > record.MaxGroups {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("names: %d groups: must be at most %d", len(asked.Names), record.MaxGroups))
	}
	readable := map[string]bool{}
	for i, name := range asked.Names {
		namespace, err := record.NamespaceOfGroup(name)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("names[%d] %q: %s", i, record.Text(name, record.MaxName), err))
		}
		if readable[namespace] {
			continue
		}
		if err := h.mayList(r, namespace); err != nil {
			return nil, err
		}
		readable[namespace] = true
	}
	found, err := h.store.Groups(r.Context(), asked.Names)
	return record.GroupsAnswer{Groups: found}, err
}
