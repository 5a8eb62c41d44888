// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/history/observe"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/watch"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podmetrics"
	"opendilab.org/di-orchestrator/internal/scope"
)

const (
	interval = 30 * time.Second
	// roundTime bounds the lists of one round.
	roundTime = 20 * time.Second
)

// Reader reads the usage of pods.
type Reader struct {
	// Live reads usage, and Cached has the pods.
	Live, Cached client.Reader
	Namespaces   scope.Namespaces
	Clock        clock.Clock
	Log          logr.Logger

	mutex sync.Mutex
	// used is what was read and is not taken yet.
	used map[types.NamespacedName]watch.Used
	// complaint is the last failure, which is logged once. Only the loop uses it.
	complaint string
}

// NeedLeaderElection restricts it to the leader.
func (*Reader) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It runs until the context ends.
func (r *Reader) Start(ctx context.Context) error {
	for {
		r.complain(r.round(ctx))
		timer := r.Clock.NewTimer(interval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// complain logs a failure once until another one, or none.
func (r *Reader) complain(err error) {
	text := ""
	switch {
	case errors.Is(err, context.Canceled):
		return
	case err != nil:
		text = err.Error()
	}
	if text != "" && text != r.complaint {
		r.Log.Info("Cannot read what pods use; the history lacks it until this succeeds", "cause", text)
	}
	r.complaint = text
}

// round reads the usage of all pods of jobs.
func (r *Reader) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	namespaces := r.Namespaces.Names()
	if r.Namespaces.IsAll() {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		for _, label := range []string{names.LabelJob, names.LabelDIJobName} {
			pods, err := podmetrics.List(ctx, r.Live, client.InNamespace(namespace), client.HasLabels{label})
			if err != nil {
				return err
			}
			for i := range pods {
				if err := r.note(ctx, &pods[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// note notes the usage of a pod of a job.
func (r *Reader) note(ctx context.Context, used *podmetrics.Pod) error {
	key := types.NamespacedName{Namespace: used.Namespace, Name: used.Name}
	pod, err := controllers.Find(ctx, r.Cached, key, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("reading pod %s: %w", key, err)
	}
	if pod == nil {
		return nil
	}
	most := used.Most()
	for i, uid := range controllers.OwnerUID(pod) {
		job := types.NamespacedName{Namespace: pod.Namespace, Name: controllers.OwnerName(pod)[i]}
		r.add(job, types.UID(uid), observe.TaskOf(pod), record.Peak{CPU: most.CPU, Memory: most.Memory})
	}
	return nil
}

func (r *Reader) add(job types.NamespacedName, uid types.UID, task string, used record.Peak) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.used == nil {
		r.used = map[types.NamespacedName]watch.Used{}
	}
	known := r.used[job]
	if known.Job != uid {
		known = watch.Used{Job: uid, Tasks: map[string]record.Peak{}}
		r.used[job] = known
	}
	if _, isKnown := known.Tasks[task]; isKnown || len(known.Tasks) < record.MaxTasks {
		known.Tasks[task] = observe.Higher(known.Tasks[task], used)
	}
}

// Take returns the highest usages since the last call, by job.
func (r *Reader) Take() map[types.NamespacedName]watch.Used {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	taken := r.used
	r.used = nil
	return taken
}
