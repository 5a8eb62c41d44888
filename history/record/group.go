// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// PathGroups is the path of requests for what the allocator has learned of groups.
	PathGroups = "/v1/groups"
	// MaxGroups bounds the groups of one request.
	MaxGroups = 200
	// MaxGroupName bounds the length of a name, in bytes.
	MaxGroupName = 2048
	// MaxGroup bounds what is learned of a group, in bytes.
	MaxGroup = 64 << 10
)

// Group is what the allocator has learned of a group of jobs.
type Group struct {
	Name   string    `json:"name"`
	UsedAt time.Time `json:"usedAt"`
	// Learned is all of it as the allocator stores it, which only the allocator reads.
	Learned json.RawMessage `json:"-"`
}

// ReadGroup reads what the allocator stores of a group. Only the name and the time matter here.
func ReadGroup(stored string) (Group, error) {
	group := Group{Learned: json.RawMessage(stored)}
	if len(stored) > MaxGroup {
		return group, fmt.Errorf("%d bytes: must be at most %d", len(stored), MaxGroup)
	}
	if err := json.Unmarshal(group.Learned, &group); err != nil {
		return group, fmt.Errorf("does not decode: %w", err)
	}
	if group.Name == "" || len(group.Name) > MaxGroupName {
		return group, fmt.Errorf("name has %d bytes: must be from 1 to %d", len(group.Name), MaxGroupName)
	}
	return group, nil
}

// NamespaceOfGroup returns the namespace of the jobs of a group: namespace/group, or namespace#digest for jobs that
// name none.
func NamespaceOfGroup(name string) (string, error) {
	end := strings.IndexAny(name, "/#")
	if end <= 0 || len(name) > MaxGroupName {
		return "", errors.New("must be namespace/group or namespace#digest")
	}
	return name[:end], nil
}

// GroupsRequest asks for groups by their names.
type GroupsRequest struct {
	Names []string `json:"names"`
}

// GroupsAnswer has those that are known, by name, as the allocator has stored them.
type GroupsAnswer struct {
	Groups map[string]json.RawMessage `json:"groups"`
}
