// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/installation"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/store"
)

// session returns who the user is and what the page can do. What the API server does not tell is
// left out.
func (s *Server) session(r *http.Request) (any, error) {
	session := api.Session{
		Cluster: s.ClusterName, Context: s.Context, Server: s.Cluster.Config().Host, Version: s.Version, Language: cmp.Or(s.Language, languageOf(r.Header.Get("Accept-Language"))),
		Namespace: s.Cluster.Namespace, AllNamespaces: s.Namespace == "", Notes: append([]string{}, s.Notes...), CanSignOut: s.CanSignOut, Prices: s.Prices, Usage: s.Metering != nil,
		Limits: map[string]int{"pageSize": store.MostRows, "streams": mostStreams, "lineLength": longestLine},
	}
	var asking sync.WaitGroup
	asking.Go(func() { session.User, _ = s.Cluster.User(r.Context()) })
	asking.Go(func() { session.ClusterVersion, _ = s.Cluster.Version() })
	asking.Go(func() { session.Operator, _ = installation.Operator(r.Context(), s.Cluster, s.Installation) })
	asking.Go(func() { session.History = s.historyState(r.Context()) })
	session.Permissions = s.permissions(r.Context(), map[string]authorizationv1.ResourceAttributes{
		"listJobs":    jobsAttributes("list", s.Namespace),
		"createJobs":  jobsAttributes("create", s.Cluster.Namespace),
		"changeJobs":  jobsAttributes("patch", s.Cluster.Namespace),
		"deleteJobs":  jobsAttributes("delete", s.Cluster.Namespace),
		"createPlans": {Group: v2alpha1.GroupName, Resource: "scaleplans", Verb: "create", Namespace: s.Cluster.Namespace},
		"readPods":    {Resource: "pods", Verb: "list", Namespace: s.Cluster.Namespace},
		"readLogs":    {Resource: "pods", Subresource: "log", Verb: "get", Namespace: s.Cluster.Namespace},
		"readEvents":  {Resource: "events", Verb: "list", Namespace: s.Cluster.Namespace},
		"listNodes":   {Resource: "nodes", Verb: "list"},
	})
	asking.Wait()
	return session, nil
}

// permissions reports what of this the user may do. What cannot be asked counts as no.
func (s *Server) permissions(ctx context.Context, wanted map[string]authorizationv1.ResourceAttributes) map[string]bool {
	var asking sync.WaitGroup
	var mutex sync.Mutex
	granted := map[string]bool{}
	for name, what := range wanted {
		asking.Go(func() {
			allowed, err := s.Cluster.May(ctx, what)
			mutex.Lock()
			defer mutex.Unlock()
			granted[name] = allowed && err == nil
		})
	}
	asking.Wait()
	return granted
}

func jobsAttributes(verb, namespace string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Group: v2alpha1.GroupName, Resource: "dijobs", Verb: verb, Namespace: namespace}
}
