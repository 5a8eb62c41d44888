// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
)

const (
	// jobPause is the least time between two states of a job.
	jobPause = 250 * time.Millisecond
	// pastPatience is the longest wait for the watch of all jobs, which may be broken.
	pastPatience = 2 * time.Second
	// patience is how long an answer without a stream may take.
	patience = 30 * time.Second
)

// errShown ends the watches of an answer.
var errShown = errors.New("shown")

// readJob reads the job that a path names.
func (s *Server) readJob(r *http.Request) (*cluster.Cluster, *v2alpha1.DIJob, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil, gate.BadRequest(errors.New("the path names no job: want namespaces/NAMESPACE/jobs/NAME"))
	}
	if s.Namespace != "" && namespace != s.Namespace {
		return nil, nil, gate.Refuse(http.StatusForbidden, "Forbidden", "only the jobs of namespace "+s.Namespace+" are shown")
	}
	found := s.Cluster.In(namespace)
	job, err := found.Job(r.Context(), name)
	return found, job, err
}

// getJob returns the page of a job.
func (s *Server) getJob(r *http.Request) (any, error) {
	ctx, stop := context.WithTimeout(r.Context(), patience)
	defer stop()
	found, job, err := s.readJob(r)
	if err != nil {
		return nil, err
	}
	w := s.newJobWorld(ctx, found, job)
	var detail *api.JobDetail
	err = s.follow(ctx, w.watched(), w, 0, func() error {
		detail = w.detail(ctx)
		return errShown
	}, silent)
	switch {
	case w.failed != nil:
		return nil, w.failed
	case !errors.Is(err, errShown):
		return nil, gate.Refuse(http.StatusGatewayTimeout, "Timeout", "the API server does not answer in time")
	}
	return detail, nil
}

// streamJob sends the page of a job now and after each change.
func (s *Server) streamJob(ctx context.Context, r *http.Request, to *sender) error {
	found, job, err := s.readJob(r)
	if err != nil {
		return err
	}
	w := s.newJobWorld(ctx, found, job)
	err = s.follow(ctx, w.watched(), w, jobPause, func() error {
		switch {
		case w.failed != nil:
			return w.failed
		case w.isGone:
			return errors.Join(to.send("gone", struct{}{}), errShown)
		case w.broken != nil:
			return to.fail(w.broken)
		}
		return to.send("job", w.detail(ctx))
	}, to.beat)
	if errors.Is(err, errShown) {
		return nil
	}
	return err
}

// silent is the heartbeat of an answer.
func silent() error { return nil }

// jobWorld is what the watches of a job deliver.
type jobWorld struct {
	server     *Server
	job        *v2alpha1.DIJob
	isGone     bool
	membership *v2alpha1.Membership
	// lacksMembers is set if the Membership cannot be read.
	lacksMembers bool
	pods         map[types.UID]*corev1.Pod
	events       map[types.UID]*corev1.Event
	plans        map[types.UID]*v2alpha1.ScalePlan
	rights       map[string]bool
	grants       map[string][]string
	notes        []string
	// given are the commands that give the rights whose lack the notes name.
	given  []string
	broken error
	failed error
}

func (s *Server) newJobWorld(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob) *jobWorld {
	w := &jobWorld{
		server: s, job: job, pods: map[types.UID]*corev1.Pod{}, events: map[types.UID]*corev1.Event{}, plans: map[types.UID]*v2alpha1.ScalePlan{},
	}
	w.rights, w.grants = s.rights(ctx, found.Namespace, job)
	return w
}

// rights reports which actions the user may take, by the API server, and the commands that allow the others.
func (s *Server) rights(ctx context.Context, namespace string, job *v2alpha1.DIJob) (rights map[string]bool, grants map[string][]string) {
	named := func(verb, subresource string) authorizationv1.ResourceAttributes {
		attributes := jobsAttributes(verb, namespace)
		attributes.Name, attributes.Subresource = job.Name, subresource
		return attributes
	}
	plan := authorizationv1.ResourceAttributes{Group: v2alpha1.GroupName, Resource: "scaleplans", Verb: "create", Namespace: namespace}
	wanted := map[string]authorizationv1.ResourceAttributes{
		"suspend": named("patch", ""), "resume": named("patch", ""), "resize": named("update", "scale"), "delete": named("delete", ""),
		"restart": {Resource: "pods", Verb: "delete", Namespace: namespace},
	}
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		wanted["resize"], wanted["restart"] = plan, plan
	}
	rights, grants = s.permissions(ctx, wanted), map[string][]string{}
	user := ""
	for action, what := range wanted {
		if rights[action] {
			continue
		}
		if user == "" {
			user, _ = s.Cluster.User(ctx)
		}
		right := cluster.Right{User: user, Verb: what.Verb, Resource: what.Resource, Group: what.Group, Namespace: namespace}
		if what.Subresource != "" {
			right.Resource += "/" + what.Subresource
		}
		grants[action] = right.Grant()
	}
	return rights, grants
}

// watchOfMembers is the index of the watch of the Membership.
const watchOfMembers = 4

// watched returns the watches of the job. Only the first is required.
func (w *jobWorld) watched() []cluster.Watched {
	all := []cluster.Watched{
		cluster.WatchJob(w.job.Namespace, w.job.Name), cluster.WatchPods(w.job), cluster.WatchEvents(w.job.Namespace).Reduced(w.reduceEvent),
		cluster.WatchPlans(w.job.Namespace).Reduced(w.reducePlan),
	}
	if w.job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		all = append(all, cluster.WatchMembership(w.job))
	}
	return all
}

// reduceEvent drops the content of Events about other objects: a namespace may have many.
func (w *jobWorld) reduceEvent(object client.Object) client.Object {
	event, is := object.(*corev1.Event)
	if !is {
		return object
	}
	event.ManagedFields = nil
	if about := event.InvolvedObject.Name; about != w.job.Name && !strings.HasPrefix(about, w.job.Name+"-") {
		return &corev1.Event{ObjectMeta: identity(event)}
	}
	return event
}

func (w *jobWorld) reducePlan(object client.Object) client.Object {
	plan, is := object.(*v2alpha1.ScalePlan)
	if !is {
		return object
	}
	plan.ManagedFields = nil
	if plan.Spec.Job != w.job.Name {
		return &v2alpha1.ScalePlan{ObjectMeta: identity(plan)}
	}
	return plan
}

// identity returns what an informer needs of an object.
func identity(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
}

// change implements watching. Another job of the same name is not this one.
func (w *jobWorld) change(_ int, change cluster.Change) {
	switch object := change.Object.(type) {
	case *v2alpha1.DIJob:
		if w.isGone = change.Gone || object.UID != w.job.UID; !w.isGone {
			w.job = object
		}
	case *v2alpha1.Membership:
		if w.membership = object; change.Gone {
			w.membership = nil
		}
	case *corev1.Pod:
		keep(w.pods, object.UID, object, change.Gone)
	case *corev1.Event:
		keep(w.events, object.UID, object, change.Gone || object.InvolvedObject.Name == "")
	case *v2alpha1.ScalePlan:
		keep(w.plans, object.UID, object, change.Gone || object.Spec.Job == "")
	}
	switch {
	case change.Broken != nil:
		w.broken = change.Broken
	case change.Restored:
		w.broken = nil
	}
}

func keep[T any](all map[types.UID]T, uid types.UID, object T, gone bool) {
	if all[uid] = object; gone {
		delete(all, uid)
	}
}

// stopped implements watching.
func (w *jobWorld) stopped(watch int, err error) {
	if watch == 0 {
		w.failed = err
		return
	}
	w.lacksMembers = w.lacksMembers || watch == watchOfMembers
	what := [...]string{"", "pods", "events", "ScalePlans", "the Membership"}[watch]
	if cluster.IsDenied(err) {
		w.given = append(w.given, grantOf(err)...)
		w.notes = append(w.notes, fmt.Sprintf("You may not read %s of namespace %s, so they are left out.", what, w.job.Namespace))
		return
	}
	w.notes = append(w.notes, fmt.Sprintf("The cluster has no %s: %v", what, err))
}

// awaitPast waits until the watch of all jobs, which records curves, has delivered this state of the job, too.
func (w *jobWorld) awaitPast(ctx context.Context) {
	late := w.server.Clock.After(pastPatience)
	for {
		changed := w.server.jobs.Changed()
		if w.server.jobs.Has(w.job) {
			return
		}
		select {
		case <-changed:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *jobWorld) detail(ctx context.Context) *api.JobDetail {
	w.awaitPast(ctx)
	past := w.server.jobs.Past(client.ObjectKeyFromObject(w.job))
	plans := slices.SortedFunc(maps.Values(w.plans), func(a, b *v2alpha1.ScalePlan) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	observed := jobview.Observed{
		Job: w.job, Members: jobview.Members{List: w.membership, IsRead: !w.lacksMembers}, Pods: slices.Collect(maps.Values(w.pods)),
		Events: slices.Collect(maps.Values(w.events)), Now: w.server.Clock.Now(),
	}
	return pages.Detail(&pages.Observed{
		Observed: observed, Plans: plans, Version: past.Version, Moments: past.Moments, Curves: past.Curves, Best: past.Best, Report: past.Report,
		Rights: w.rights, Grants: w.grants, Notes: w.notes, Given: w.given, Others: w.server.known(),
	})
}
