// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// accounts is the prefix of the user names of the system namespace's service accounts.
const accounts = "system:serviceaccount:" + system + ":"

// auditPolicy logs the requests of the programs: user, verb and object.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts:` + system + `"]
- level: None
`

// auditEvent is the decoded part of an audit log line.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	RequestURI string `json:"requestURI"`
	ObjectRef  *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// readUses returns the distinct requests of the service accounts. Requests without an object, such
// as discovery, are included only if they were refused.
func readUses(path string) ([]use, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	seen := map[use]bool{}
	var uses []use
	for line := range bytes.Lines(content) {
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w: %s", err, line)
		}
		asked := event.use()
		if (event.ObjectRef != nil || asked.refused) && !seen[asked] {
			seen[asked] = true
			uses = append(uses, asked)
		}
	}
	return uses, nil
}

func (e *auditEvent) use() use {
	asked := use{
		holder: strings.TrimPrefix(e.User.Username, accounts), verb: e.Verb,
		refused: e.ResponseStatus.Code == http.StatusForbidden,
	}
	if e.ObjectRef == nil {
		asked.resource = e.RequestURI
		return asked
	}
	asked.namespace, asked.group, asked.name = e.ObjectRef.Namespace, e.ObjectRef.APIGroup, e.ObjectRef.Name
	asked.resource = e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		asked.resource += "/" + e.ObjectRef.Subresource
	}
	return asked
}
