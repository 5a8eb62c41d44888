// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/test/soak/check"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pace"
)

// The tasks of jobs.
const (
	learner   = "learner"
	collector = "collector"
	stateTask = "ps"
)

// statefulPrefix begins the names of jobs whose tasks hold state.
const statefulPrefix = "stateful-"

// jobKind is one kind of job.
type jobKind struct {
	prefix string
	make   func(name string) client.Object
	// led reports whether a coordinator requests the replicas, and served whether di-server alone resizes the job.
	led, served bool
}

// jobKinds are the kinds of jobs, in turn.
func jobKinds() []jobKind {
	return []jobKind{
		{prefix: "elastic-", make: elasticJob},
		{prefix: "led-old-", make: oldJob, led: true},
		{prefix: "counted-", make: elasticJob, served: true},
		{prefix: statefulPrefix, make: statefulJob},
		{prefix: "led-", make: ledJob, led: true},
	}
}

func (w *world) jobName(index int) string {
	return fmt.Sprintf("%s%d", w.kind(index).prefix, index)
}

func (*world) kind(index int) *jobKind {
	kinds := jobKinds()
	return &kinds[index%len(kinds)]
}

func elasticJob(name string) client.Object {
	return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v2alpha1.DIJobSpec{
		BackoffLimit: ptr.To[int32](-1),
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Name: learner, Replicas: ptr.To[int32](1), Template: jobs.Template()},
			{Type: v2alpha1.TaskTypeCollector, Name: collector, Replicas: ptr.To[int32](4), Template: jobs.Template()},
		},
	}}
}

// statefulJob returns a job whose failed replicas are restarted alone.
func statefulJob(name string) client.Object {
	return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v2alpha1.DIJobSpec{
		BackoffLimit:  ptr.To[int32](-1),
		Elastic:       &v2alpha1.Elastic{Task: stateTask},
		FailurePolicy: &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{Action: v2alpha1.FailurePolicyRestartReplica}}},
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeNone, Name: "worker", Replicas: ptr.To[int32](2), Template: jobs.Template()},
			{Type: v2alpha1.TaskTypeNone, Name: stateTask, Replicas: ptr.To[int32](3), Drain: &v2alpha1.Drain{}, Template: jobs.Template()},
		},
	}}
}

func ledJob(name string) client.Object {
	return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: jobs.CoordinatorLed(jobs.Serving())}
}

// oldJob returns a job of v1alpha1 as users of that version write it.
func oldJob(name string) client.Object {
	raw, err := jobs.Of(namespace, name, 2_000)
	job := &unstructured.Unstructured{}
	if err == nil {
		err = job.UnmarshalJSON(raw)
	}
	if err != nil {
		job.SetName(name) // the API server refuses it
	}
	unstructured.RemoveNestedField(job.Object, "status")
	return job
}

// submit creates a job.
func (w *world) submit(ctx context.Context, index int) error {
	name := w.jobName(index)
	return w.record(history.Call{Operation: "submit"}, func(*history.Call) error {
		return client.IgnoreAlreadyExists(w.API.Create(ctx, w.kind(index).make(name)))
	})
}

// user edits jobs.
type user struct {
	world  *world
	random *rand.Rand
}

// edit is one thing that users do.
type edit struct {
	// share is how many of all edits are of this kind.
	share int
	// suits reports whether it is for jobs of a kind.
	suits func(*jobKind) bool
	do    func(u *user, ctx context.Context, index int) error
}

func edits() []edit {
	all := func(*jobKind) bool { return true }
	sized := func(kind *jobKind) bool { return !kind.led && !kind.served }
	elastic := func(kind *jobKind) bool { return kind.prefix == "elastic-" }
	var bag []edit
	for _, each := range []edit{
		{8, sized, (*user).scale},
		{4, elastic, (*user).patch},
		{4, func(kind *jobKind) bool { return kind.led }, (*user).patchOld},
		{4, elastic, (*user).plan},
		{1, all, (*user).suspend},
		{3, all, (*user).resume},
		{1, all, (*user).recreate},
		{1, all, (*user).label},
		{4, all, (*user).compare},
	} {
		for range each.share {
			bag = append(bag, each)
		}
	}
	return bag
}

// run edits jobs until the context ends.
func (u *user) run(ctx context.Context) {
	bag := edits()
	for pace.Pause(ctx, time.Duration(100+u.random.IntN(700))*time.Millisecond) == nil {
		chosen, index := bag[u.random.IntN(len(bag))], u.random.IntN(u.world.options.jobs)
		if !chosen.suits(u.world.kind(index)) {
			continue
		}
		_ = chosen.do(u, context.WithoutCancel(ctx), index)
	}
}

func (w *world) job(index int) *v2alpha1.DIJob {
	return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.jobName(index)}}
}

// apply patches a job.
func (u *user) apply(ctx context.Context, index int, operation, patch string) error {
	return u.world.record(history.Call{Operation: operation}, func(*history.Call) error {
		return u.world.API.Patch(ctx, u.world.job(index), client.RawPatch(types.MergePatchType, []byte(patch)))
	})
}

func (u *user) scale(ctx context.Context, index int) error {
	return u.world.record(history.Call{Operation: "scale"}, func(*history.Call) error {
		job, scale := u.world.job(index), &autoscalingv1.Scale{}
		if err := u.world.API.SubResource("scale").Get(ctx, job, scale); err != nil {
			return err
		}
		scale.Spec.Replicas = int32(1 + u.random.IntN(5))
		return u.world.API.SubResource("scale").Update(ctx, job, client.WithSubResourceBody(scale))
	})
}

func (u *user) patch(ctx context.Context, index int) error {
	return u.apply(ctx, index, "edit v2alpha1", fmt.Sprintf(`{"spec":{"elastic":{"replicas":%d}}}`, 1+u.random.IntN(5)))
}

func (u *user) patchOld(ctx context.Context, index int) error {
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DIJob"))
	job.SetNamespace(namespace)
	job.SetName(u.world.jobName(index))
	policy := []string{"Running", "ALL", "None"}[u.random.IntN(3)]
	return u.world.record(history.Call{Operation: "edit v1alpha1"}, func(*history.Call) error {
		return u.world.API.Patch(ctx, job, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"cleanPodPolicy":%q}}`, policy)))
	})
}

func (u *user) plan(ctx context.Context, index int) error {
	plan := &v2alpha1.ScalePlan{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "plan-"}}
	plan.Spec.Job = u.world.jobName(index)
	plan.Spec.Tasks = []v2alpha1.TaskScale{{Name: collector, Replicas: ptr.To(int32(1 + u.random.IntN(5)))}}
	return u.world.record(history.Call{Operation: "plan"}, func(*history.Call) error { return u.world.API.Create(ctx, plan) })
}

func (u *user) suspend(ctx context.Context, index int) error {
	return u.apply(ctx, index, "suspend", `{"spec":{"suspend":true}}`)
}

func (u *user) resume(ctx context.Context, index int) error {
	return u.apply(ctx, index, "resume", `{"spec":{"suspend":false}}`)
}

func (u *user) label(ctx context.Context, index int) error {
	return u.apply(ctx, index, "label", fmt.Sprintf(`{"metadata":{"labels":{"team":"team-%d"}}}`, u.random.IntN(5)))
}

// recreate deletes a job and submits another one of its name.
func (u *user) recreate(ctx context.Context, index int) error {
	err := u.world.record(history.Call{Operation: "delete"}, func(*history.Call) error { return client.IgnoreNotFound(u.world.API.Delete(ctx, u.world.job(index))) })
	if err != nil {
		return err
	}
	return u.world.submit(ctx, index)
}

// compare reads a job at both versions.
func (u *user) compare(ctx context.Context, index int) error {
	u.world.compare(ctx, index)
	return nil
}

func (w *world) compare(ctx context.Context, index int) {
	old, hub := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	old.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DIJob"))
	hub.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	key := client.ObjectKey{Namespace: namespace, Name: w.jobName(index)}
	err := w.record(history.Call{Operation: check.OldRead}, func(*history.Call) error { return client.IgnoreNotFound(w.API.Get(ctx, key, old)) })
	if err == nil {
		err = w.API.Get(ctx, key, hub)
	}
	if err != nil || old.GetResourceVersion() != hub.GetResourceVersion() {
		return
	}
	difference, err := differ(hub, old)
	if err != nil {
		difference = err.Error()
	}
	w.log.Add(history.Entry{Versions: &history.Versions{Job: string(hub.GetUID()), Difference: difference}})
}

// differ converts a job and compares it with the one that the API server served at the other version.
func differ(hub, old *unstructured.Unstructured) (string, error) {
	raw, err := hub.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("encoding a job: %w", err)
	}
	if raw, err = conversion.Convert(raw, v1alpha1.GroupVersion.String()); err != nil {
		return "", err
	}
	served, err := old.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("encoding a job: %w", err)
	}
	var want, got map[string]any
	for content, into := range map[string]*map[string]any{string(raw): &want, string(served): &got} {
		if err := json.NewDecoder(strings.NewReader(content)).Decode(into); err != nil {
			return "", fmt.Errorf("decoding a job: %w", err)
		}
	}
	return cmp.Diff(want, got), nil
}

// resumeAll lets all jobs exist and run, so that a quiet window has something to check.
func (w *world) resumeAll(ctx context.Context, random *rand.Rand) error {
	for index := range w.options.jobs {
		err := w.eventually(ctx, "job "+w.jobName(index)+" exists", func(ctx context.Context) error {
			if err := w.API.Get(ctx, client.ObjectKeyFromObject(w.job(index)), &v2alpha1.DIJob{}); !apierrors.IsNotFound(err) {
				return err
			}
			return w.submit(ctx, index)
		})
		if err != nil {
			return err
		}
		// A few jobs stay suspended.
		if random.IntN(8) > 0 {
			u := &user{world: w, random: random}
			if err := w.eventually(ctx, "a job resumes", func(ctx context.Context) error { return u.resume(ctx, index) }); err != nil {
				return err
			}
		}
	}
	return nil
}
