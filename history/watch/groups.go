// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/allocator/histories"
	"opendilab.org/di-orchestrator/history/record"
)

// GroupStore is the database of groups.
type GroupStore interface {
	KeepGroups(ctx context.Context, groups []record.Group) error
}

// Groups keeps what the allocator has learned of groups of jobs, which has room for fewer of them.
type Groups struct {
	Cache cache.Cache
	// ConfigMap is that of the allocator.
	ConfigMap types.NamespacedName
	Store     GroupStore
	Metrics   *Metrics
	Clock     clock.Clock
	Log       logr.Logger
}

// NeedLeaderElection restricts it to the leader.
func (*Groups) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It runs until the context ends.
func (g *Groups) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	note := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	informer, err := g.Cache.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, after any) { note(after) }})
	}
	if err != nil {
		return fmt.Errorf("watching the groups of the allocator: %w", err)
	}
	retry, kept := &Retry{g.Metrics, g.Clock, g.Log}, map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		retry.Do(ctx, StepGroups, "Cannot keep the groups of the allocator; retrying", func(ctx context.Context) error {
			now, err := g.keep(ctx, kept)
			if err == nil {
				kept = now
			}
			return err
		})
	}
}

// keep records the groups that differ from what is kept, and returns what is kept then.
func (g *Groups) keep(ctx context.Context, kept map[string]string) (map[string]string, error) {
	found, err := controllers.Find(ctx, g.Cache, g.ConfigMap, &corev1.ConfigMap{})
	if err != nil || found == nil {
		return kept, err
	}
	var changed []record.Group
	for key, stored := range found.Data {
		if !strings.HasPrefix(key, histories.GroupPrefix) || kept[key] == stored {
			continue
		}
		group, err := record.ReadGroup(stored)
		if err != nil {
			g.Log.Info("Ignores an unreadable group of the allocator", "key", key, "reason", err.Error())
			continue
		}
		changed = append(changed, group)
	}
	if len(changed) > 0 {
		limited, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		if err := g.Store.KeepGroups(limited, changed); err != nil {
			return kept, err
		}
	}
	return maps.Clone(found.Data), nil
}
