// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/crds"
)

// States of a takeover.
const (
	stateDone    = "Done"
	stateNeeded  = "Needed"
	stateRunning = "Running"
	stateStalled = "Stalled"
	stateUnknown = "Unknown"
)

// Takeover is the state of the takeover of an earlier release, as far as the user may read it.
type Takeover struct {
	// Namespace is the namespace of the operator and of the earlier release.
	Namespace string
	// IsKnown reports whether the definition of DIJobs, which records the progress, was read.
	IsKnown bool
	// Progress is what the operator recorded. It begins with the step, and is empty before the first
	// one.
	Progress string
	// Stalled is the operator's last report that the step makes no progress; empty without one.
	Stalled string
	// Deployments are those of the earlier release that have replicas or pods.
	Deployments []EarlierDeployment
	// JobVersion is the version by which adopted objects name their jobs.
	JobVersion string
	// Unread is what could not be read, and why.
	Unread []Unread
}

// EarlierDeployment is a Deployment of an earlier release.
type EarlierDeployment struct {
	Name           string
	Replicas, Pods int32
}

// Unread are objects that could not be read.
type Unread struct {
	What, Namespace string
	Err             error
}

// HasBegun reports whether the operator recorded a step.
func (t *Takeover) HasBegun() bool { return t.Progress != "" }

// IsDone reports whether the operator recorded that nothing is left.
func (t *Takeover) IsDone() bool { return strings.HasPrefix(t.Progress, crds.TakenOver) }

// Step is the recorded step.
func (t *Takeover) Step() string {
	step, _, _ := strings.Cut(t.Progress, ":")
	return step
}

// Shown is what a person reads of a takeover.
type Shown struct {
	// State is Done, Running, Needed, Stalled or Unknown.
	State string `json:"state"`
	Text  string `json:"text"`
	// Waits says what is left, and what is not known.
	Waits []string `json:"waits,omitempty"`
}

// Show returns what a person reads. Adopted says how many jobs are adopted, if the caller counts them, and hasLeft whether some
// are not.
func (t *Takeover) Show(adopted []string, hasLeft bool) Shown {
	var shown Shown
	shown.State, shown.Text = t.progress(hasLeft)
	shown.Waits = slices.Concat(t.deployments(), adopted, t.unread())
	return shown
}

// isRunning reports whether the operator has begun the takeover and not finished it.
func (s *Shown) isRunning() bool { return s.State == stateRunning || s.State == stateStalled }

// print writes what a person reads, unless nothing is left.
func (s *Shown) print(text *strings.Builder) {
	if s.State == stateDone {
		return
	}
	fmt.Fprintf(text, "takeover of an earlier release: %s: %s\n", s.State, s.Text)
	for _, wait := range s.Waits {
		fmt.Fprintf(text, "  %s\n", wait)
	}
}

// IsOpen reports whether something of an earlier release is left, as far as is known without jobs.
func (t *Takeover) IsOpen() bool {
	return t.HasBegun() && !t.IsDone() || len(t.Deployments) > 0
}

// progress returns the state and the text of a takeover. The report of a stall says what the record of the step does.
func (t *Takeover) progress(hasLeft bool) (state, text string) {
	runs := len(t.Deployments) > 0
	switch {
	case !t.IsKnown:
		return stateUnknown, "You may not read the definition of DIJobs, which records the takeover."
	case t.Stalled != "":
		return stateStalled, t.Stalled
	case t.HasBegun() && !t.IsDone():
		return stateRunning, t.Progress
	case runs && t.IsDone():
		return stateNeeded, "The earlier release runs again after its takeover: two operators may act on the same jobs."
	case runs:
		return stateNeeded, "An earlier release runs, and its takeover has not begun."
	case t.IsDone() && hasLeft:
		return stateRunning, "The earlier release is stopped, and the operator adopts its jobs."
	case !t.HasBegun() && len(t.Unread) > 0:
		return stateUnknown, "No takeover is recorded."
	}
	return stateDone, "There is nothing left to take over."
}

// deployments describes what still runs of the earlier release.
func (t *Takeover) deployments() []string {
	var texts []string
	for _, one := range t.Deployments {
		text := fmt.Sprintf("Deployment %s of the earlier release still has replicas: %d, pods: %d.", one.Name, one.Replicas, one.Pods)
		if t.IsDone() {
			text = fmt.Sprintf("Scale Deployment %s of namespace %s to zero: no takeover stops it.", one.Name, t.Namespace)
		}
		texts = append(texts, text)
	}
	return texts
}

// unread says what of the takeover the user may not read.
func (t *Takeover) unread() []string {
	var texts []string
	for _, one := range t.Unread {
		text := fmt.Sprintf("The %s of namespace %s cannot be read: %v", one.What, one.Namespace, one.Err)
		if cluster.IsDenied(one.Err) {
			text = fmt.Sprintf("You may not read %s of namespace %s, so they are left out.", one.What, one.Namespace)
		}
		texts = append(texts, text)
	}
	return texts
}

// lookTakeover reads the state of the takeover. Without the definition of DIJobs, what the user may
// read of the earlier release is all that is known.
func lookTakeover(ctx context.Context, found *cluster.Cluster, jobs *apiextensionsv1.CustomResourceDefinition) *Takeover {
	state := &Takeover{Namespace: names.SystemNamespace, JobVersion: v2alpha1.Version}
	if jobs != nil {
		state.Namespace, state.IsKnown, state.Progress = namespaceOf(jobs), true, jobs.Annotations[crds.AnnotationTakeover]
		state.JobVersion = cmp.Or(jobs.Annotations[crds.AnnotationStorageVersion], v2alpha1.Version)
	}
	if err := state.lookDeployments(ctx, found); err != nil {
		state.Unread = append(state.Unread, Unread{What: "Deployments", Namespace: state.Namespace, Err: err})
	}
	if !state.HasBegun() || state.IsDone() {
		return state
	}
	if err := state.lookStall(ctx, found); err != nil {
		state.Unread = append(state.Unread, Unread{What: "events", Namespace: metav1.NamespaceDefault, Err: err})
	}
	return state
}

// lookDeployments reads the Deployments of the earlier release. The takeover, too, knows them by
// their names.
func (t *Takeover) lookDeployments(ctx context.Context, found *cluster.Cluster) error {
	for _, name := range []string{names.EarlierOperator, names.EarlierWebhook, names.EarlierServer} {
		deployment := &appsv1.Deployment{}
		err := found.Get(ctx, t.Namespace, name, deployment)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		one := EarlierDeployment{Name: name, Replicas: ptr.Deref(deployment.Spec.Replicas, 1), Pods: deployment.Status.Replicas}
		if one.Replicas > 0 || one.Pods > 0 {
			t.Deployments = append(t.Deployments, one)
		}
	}
	return nil
}

// lookStall reads the last Event that reports a stall of the current step. The API server keeps
// Events about definitions, which have no namespace, in namespace default.
func (t *Takeover) lookStall(ctx context.Context, found *cluster.Cluster) error {
	var events corev1.EventList
	err := found.List(ctx, metav1.NamespaceDefault, &events, client.MatchingFields{
		"involvedObject.name": names.DIJobDefinition, "reason": v2alpha1.ReasonTakeoverStalled,
	})
	if err != nil {
		return fmt.Errorf("looking for a stall of the takeover: %w", err)
	}
	ofStep := slices.DeleteFunc(events.Items, func(event corev1.Event) bool { return !strings.HasPrefix(event.Message, t.Step()+":") })
	if len(ofStep) > 0 {
		t.Stalled = slices.MaxFunc(ofStep, compareSeen).Message
	}
	return nil
}

func compareSeen(a, b corev1.Event) int {
	first, _ := replicas.LastSeen(&a)
	second, _ := replicas.LastSeen(&b)
	return first.Compare(second)
}
