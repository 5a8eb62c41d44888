// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive asks the program that remembers jobs what the allocator has learned of groups of jobs.
package archive

import (
	"context"
	"encoding/json"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/service"
)

// Archive asks the history.
type Archive struct{ history *service.Client }

// New returns an archive that asks the history of these settings.
func New(settings service.Settings) (*Archive, error) {
	settings.Name = "history"
	history, err := service.New(settings)
	if err != nil {
		return nil, err
	}
	return &Archive{history}, nil
}

// Groups returns those of at most [record.MaxGroups] groups that the history has.
func (a *Archive) Groups(ctx context.Context, names []string) (map[string]json.RawMessage, error) {
	var answer record.GroupsAnswer
	err := a.history.Post(ctx, record.PathGroups, &record.GroupsRequest{Names: names}, &answer, record.MaxGroups*record.MaxGroup)
	return answer.Groups, err
}
