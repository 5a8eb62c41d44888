// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package diserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Membership lists the members of a worker-led job. Members is null if the caller knows the version.
type Membership struct {
	Version int64    `json:"version"`
	Members []Member `json:"members"`
}

// Member is a replica of the job. State is joining, active or leaving.
type Member struct {
	Name    string `json:"name"`
	Task    string `json:"task"`
	Index   int    `json:"index"`
	Address string `json:"address"`
	State   string `json:"state"`
}

// WatchMembership returns as soon as the version is not the given one, or without members.
func (c *Client) WatchMembership(ctx context.Context, version int64) (Membership, error) {
	var list Membership
	path := fmt.Sprintf("/membership?watch=true&version=%d", version)
	data, err := c.call(ctx, http.MethodGet, path, struct{}{})
	if err != nil {
		return list, err
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return list, fmt.Errorf("GET %s: data of the reply: %w", path, err)
	}
	return list, nil
}

// Ack acknowledges or refuses a version.
type Ack struct {
	Version int64  `json:"version"`
	Member  string `json:"member"`
	Refuse  bool   `json:"refuse,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Acknowledge acknowledges a version for the calling pod.
func (c *Client) Acknowledge(ctx context.Context, ack Ack) error {
	ack.Member = c.config.Name
	_, err := c.call(ctx, http.MethodPost, "/membership/ack", ack)
	return err
}
