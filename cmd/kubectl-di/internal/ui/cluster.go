// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/installation"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
	"opendilab.org/di-orchestrator/internal/podmetrics"
)

// clusterPause is the least time between two states of the cluster.
const clusterPause = 2 * time.Second

// getCluster returns the page of the cluster.
func (s *Server) getCluster(r *http.Request) (any, error) {
	ctx, stop := context.WithTimeout(r.Context(), patience)
	defer stop()
	w := s.newClusterWorld(ctx)
	var page *api.Cluster
	err := s.follow(ctx, w.watched(), w, 0, func() error {
		page = w.page()
		return errShown
	}, silent)
	if !errors.Is(err, errShown) {
		return nil, gate.Refuse(http.StatusGatewayTimeout, "Timeout", "the API server does not answer in time")
	}
	return page, nil
}

// streamCluster sends the page of the cluster now and after each change.
func (s *Server) streamCluster(ctx context.Context, _ *http.Request, to *sender) error {
	w := s.newClusterWorld(ctx)
	return s.follow(ctx, w.watched(), w, clusterPause, func() error {
		if w.broken != nil {
			return to.fail(w.broken)
		}
		return to.send("cluster", w.page())
	}, func() error {
		// Jobs change without a change of nodes, pods and plans.
		w.look(ctx)
		return errors.Join(to.beat(), to.send("cluster", w.page()))
	})
}

// clusterWorld is what the watches of the page of the cluster deliver.
type clusterWorld struct {
	server     *Server
	nodes      map[types.UID]*corev1.Node
	pods       map[types.UID]*pages.PodUse
	plans      map[types.UID]*v2alpha1.ScalePlan
	takeover   *installation.Takeover
	migrations []api.Takeover
	// used is what nodes use, by their names; empty if that is unknown. unread is why it is.
	used   map[string]podmetrics.Used
	unread error
	notes  []string
	grants []string
	// hasNoPods reports that the pods are not watched.
	hasNoPods bool
	broken    error
}

func (s *Server) newClusterWorld(ctx context.Context) *clusterWorld {
	w := &clusterWorld{
		server: s, nodes: map[types.UID]*corev1.Node{}, pods: map[types.UID]*pages.PodUse{}, plans: map[types.UID]*v2alpha1.ScalePlan{},
		notes: slices.Clone(s.Notes),
	}
	if s.Namespace != "" {
		w.notes = append(w.notes, fmt.Sprintf("Only pods of namespace %s are counted: others may request more.", s.Namespace))
	}
	w.look(ctx)
	return w
}

// podsOfCluster is the watch of pods.
const podsOfCluster = 1

func (w *clusterWorld) watched() []cluster.Watched {
	return []cluster.Watched{
		cluster.WatchNodes().Reduced(reduceNode), podsOfCluster: cluster.WatchAllPods(w.server.Namespace).Reduced(reducePod),
		cluster.WatchPlans(w.server.Namespace),
	}
}

func reduceNode(object client.Object) client.Object {
	if node, is := object.(*corev1.Node); is {
		product := node.Labels[pages.LabelProduct]
		node.ManagedFields, node.Annotations, node.Labels, node.Status.Images = nil, nil, map[string]string{pages.LabelProduct: product}, nil
	}
	return object
}

func reducePod(object client.Object) client.Object {
	if pod, is := object.(*corev1.Pod); is {
		return pages.UseOf(pod)
	}
	return object
}

// change implements watching.
func (w *clusterWorld) change(_ int, change cluster.Change) {
	switch object := change.Object.(type) {
	case *corev1.Node:
		keep(w.nodes, object.UID, object, change.Gone)
	case *pages.PodUse:
		keep(w.pods, object.UID, object, change.Gone)
	case *v2alpha1.ScalePlan:
		keep(w.plans, object.UID, object, change.Gone)
	}
	switch {
	case change.Broken != nil:
		w.broken = change.Broken
	case change.Restored:
		w.broken = nil
	}
}

// stopped implements watching.
func (w *clusterWorld) stopped(watch int, err error) {
	what := [...]string{"nodes", podsOfCluster: "pods", "ScalePlans"}[watch]
	w.hasNoPods = w.hasNoPods || watch == podsOfCluster
	if !cluster.IsDenied(err) {
		w.notes = append(w.notes, fmt.Sprintf("The cluster has no %s: %v", what, err))
		return
	}
	w.grants = append(w.grants, grantOf(err)...)
	w.notes = append(w.notes, w.lacks(what, watch > 0))
}

// lacks says that the caller may not list some objects, of the namespace that is shown or of none.
func (w *clusterWorld) lacks(what string, isOfNamespace bool) string {
	if isOfNamespace && w.server.Namespace != "" {
		return fmt.Sprintf("You may not list the %s of namespace %s, so they are left out.", what, w.server.Namespace)
	}
	return fmt.Sprintf("You may not list the %s, so they are left out.", what)
}

// grantOf returns the commands that give the right whose lack an error is about.
func grantOf(err error) []string {
	var denied *cluster.DeniedError
	if errors.As(err, &denied) {
		return denied.Right.Grant()
	}
	return nil
}

func (w *clusterWorld) page() *api.Cluster {
	state := &pages.ClusterState{
		Nodes: slices.Collect(maps.Values(w.nodes)), Pods: slices.Collect(maps.Values(w.pods)), Plans: slices.Collect(maps.Values(w.plans)),
		Used: w.used, Takeover: w.takeover, HasNoPods: w.hasNoPods, Migrations: w.migrations, Notes: w.notes, Grants: w.grants,
	}
	if w.unread != nil && !errors.Is(w.unread, podmetrics.ErrAbsent) && !cluster.IsDenied(w.unread) {
		state.Notes = append(slices.Clone(state.Notes), fmt.Sprintf("What nodes use is left out: %v", w.unread))
	}
	state.Jobs = w.server.known()
	if err := w.server.jobs.Broken(); cluster.IsDenied(err) {
		state.Notes = append(slices.Clone(state.Notes), w.lacks("jobs", true))
		state.Grants = append(slices.Clone(w.grants), grantOf(err)...)
	}
	return pages.Cluster(state)
}

// known returns the jobs that the caller sees.
func (s *Server) known() []pages.Job {
	entries := s.jobs.Entries()
	all := make([]pages.Job, 0, len(entries))
	for _, entry := range entries {
		all = append(all, pages.Job{DIJob: entry.Job, Row: &entry.Row})
	}
	return all
}

// usagePatience is how long the page waits for what nodes use, which is not stored but measured.
const usagePatience = 2 * time.Second

// look reads what nodes use, the state of the takeover of an earlier release, and of the storage migration. Not all clusters measure
// what nodes use, and not all users may read it: it is left out then.
func (w *clusterWorld) look(ctx context.Context) {
	measuring, stop := context.WithTimeout(ctx, usagePatience)
	defer stop()
	w.used, w.unread = w.server.Cluster.NodeUsage(measuring)
	report, takeover, err := installation.Look(ctx, w.server.Cluster)
	w.takeover, w.migrations = takeover, migrations(report, takeover, err)
}

// migrations returns the state of the storage migration.
func migrations(report *installation.Report, takeover *installation.Takeover, err error) []api.Takeover {
	if err != nil {
		state := api.Takeover{What: "storage migration", State: "Unknown", Text: err.Error()}
		switch {
		case cluster.IsDenied(err) && takeover.IsKnown:
			state.Text = fmt.Sprintf("You may not read the record of the storage migration in namespace %s.", takeover.Namespace)
		case cluster.IsDenied(err):
			state.Text = "You may not read the definition of DIJobs."
		}
		return []api.Takeover{state}
	}
	all := make([]api.Takeover, 0, len(report.Resources))
	for i := range report.Resources {
		one := &report.Resources[i]
		state := api.Takeover{What: "storage migration of " + one.Resource, State: "Done", Text: one.String()}
		switch {
		case one.Done:
		case one.Record != nil:
			state.State = "Running"
		default:
			state.State = "Needed"
		}
		all = append(all, state)
	}
	return all
}
