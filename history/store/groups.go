// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"

	"opendilab.org/di-orchestrator/history/record"
)

// maxGroups bounds the groups that are kept: those that were used last.
const maxGroups = 20_000

// KeepGroups replaces what is known of groups of jobs.
func (s *Store) KeepGroups(ctx context.Context, groups []record.Group) error {
	if len(groups) > MaxChanges {
		return fmt.Errorf("%d groups in one write: at most %d are allowed", len(groups), MaxChanges)
	}
	return s.alone(ctx, func(t *transaction) error {
		for _, group := range groups {
			if _, err := t.exec(ctx, `INSERT INTO allocation_groups (name, used, learned) VALUES (?, ?, ?)
				ON CONFLICT (name) DO UPDATE SET used = excluded.used, learned = excluded.learned`,
				record.Text(group.Name, record.MaxGroupName), micros(group.UsedAt), record.Text(string(group.Learned), record.MaxGroup)); err != nil {
				return fmt.Errorf("keeping group %q: %w", group.Name, err)
			}
		}
		_, err := t.exec(ctx, `DELETE FROM allocation_groups WHERE name IN
			(SELECT name FROM allocation_groups ORDER BY used DESC, name DESC LIMIT ? OFFSET ?)`, MaxChanges, maxGroups)
		if err != nil {
			return fmt.Errorf("dropping the groups that were used longest ago: %w", err)
		}
		return nil
	})
}

// Groups returns those of at most [record.MaxGroups] groups that are known, by name.
func (s *Store) Groups(ctx context.Context, names []string) (map[string]json.RawMessage, error) {
	found := map[string]json.RawMessage{}
	if len(names) == 0 {
		return found, nil
	}
	if len(names) > record.MaxGroups {
		return nil, fmt.Errorf("%w: %d groups: must be at most %d", ErrInvalid, len(names), record.MaxGroups)
	}
	err := s.query(ctx, s.read, func(scan scan) error {
		var name, learned string
		if err := scan(&name, &learned); err != nil {
			return err
		}
		found[name] = json.RawMessage(learned)
		return nil
	}, "SELECT name, learned FROM allocation_groups WHERE name IN "+places(len(names)), values(names, record.MaxGroupName)...)
	if err != nil {
		return nil, fmt.Errorf("reading groups: %w", err)
	}
	return found, nil
}
