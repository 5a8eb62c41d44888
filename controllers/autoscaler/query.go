// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/controllers/autoscaler/promql"
	"opendilab.org/di-orchestrator/internal/promapi"
)

const (
	// queryTime bounds the queries of one decision together.
	queryTime = 5 * time.Second
	// queryPause is the delay of a decision while another job of the namespace queries.
	queryPause = 2 * time.Second
)

// errQuerying is the error of a job that must wait for another one of its namespace.
var errQuerying = errors.New("another job of the namespace queries Prometheus")

// querying are the namespaces whose jobs query Prometheus. The jobs of one namespace query one after the
// other, so that slow queries take one worker of the autoscaler and not all.
type querying struct {
	mutex      sync.Mutex
	namespaces map[string]bool
}

// enter reports whether a job of a namespace may query. It must leave afterwards.
func (q *querying) enter(namespace string) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.namespaces[namespace] {
		return false
	}
	q.namespaces[namespace] = true
	return true
}

func (q *querying) leave(namespace string) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	delete(q.namespaces, namespace)
}

// query returns what Prometheus says about the series of a job's namespace.
func (r *Reconciler) query(ctx context.Context, job *v2alpha1.DIJob, source *v2alpha1.PrometheusSource, pools int) (ratio.Measurement, error) {
	measured := ratio.Measurement{Pools: make([]ratio.PoolSize, pools)}
	if r.prometheus == nil {
		return measured, errors.New("spec.autoscale.ratio.prometheus needs the URL of a Prometheus: set operator.autoscaler.prometheusURL in the configuration of the installation")
	}
	if !r.querying.enter(job.Namespace) {
		return measured, errQuerying
	}
	defer r.querying.leave(job.Namespace)
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	for field, each := range map[string]struct {
		query string
		into  *float64
	}{
		"producerCapacity": {source.ProducerCapacity, &measured.ProducerCapacity},
		"consumerCapacity": {source.ConsumerCapacity, &measured.ConsumerCapacity},
		"queue":            {source.Queue, &measured.Queue},
		"batch":            {source.Batch, &measured.Batch},
	} {
		all.Go(func() (err error) {
			if *each.into, err = r.ask(ctx, job, each.query); err != nil {
				err = fmt.Errorf("spec.autoscale.ratio.prometheus.%s: %w", field, err)
			}
			return err
		})
	}
	return measured, all.Wait()
}

// ask returns the value of one query of a job.
func (r *Reconciler) ask(ctx context.Context, job *v2alpha1.DIJob, query string) (float64, error) {
	query = strings.NewReplacer("$(NAMESPACE)", job.Namespace, "$(JOB)", job.Name).Replace(query)
	confined, err := promql.Confine(query, job.Namespace)
	if err != nil {
		return 0, err
	}
	value, err := r.prometheus.Query(ctx, confined)
	// The condition of the job must not tell what Prometheus says: its texts name series of others.
	if failed := (*promapi.UpstreamError)(nil); errors.As(err, &failed) {
		log.FromContext(ctx).Info("Query failed", "query", confined, "reason", failed.Cause.Error())
	}
	return value, err
}
