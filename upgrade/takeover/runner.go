// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
	"opendilab.org/di-orchestrator/upgrade/crds"
)

const (
	// lookInterval is the interval of observations.
	lookInterval = time.Second
	// fieldManager owns the written fields.
	fieldManager = client.FieldOwner("di-orchestrator-takeover")
)

// Options are the dependencies of a Runner; all are required.
type Options struct {
	// API reads from the API server, without a cache, and writes to it. Its scheme knows
	// Deployments and pods.
	API client.Client
	// Namespace is the namespace of the earlier release and of this program.
	Namespace string
	// Definition is the CustomResourceDefinition of jobs, which records the progress.
	Definition string
	// Probe returns nil if jobs are admitted in both versions.
	Probe func(context.Context) error
	// Settle is how long to wait until nodes have learned of Services and endpoints.
	Settle time.Duration
	// Recorder records Events about the definition.
	Recorder events.EventRecorder
	// Metrics report how long the takeover is stalled.
	Metrics *Metrics
	// Clock measures intervals and how long the takeover is stalled.
	Clock clock.WithTicker
	// Log receives each step, and errors that are retried.
	Log logr.Logger
}

// Runner runs the takeover of an earlier release in the leader.
type Runner struct {
	options        Options
	mayAct, done   chan struct{}
	acting, probed bool
	// reported is the last line that was logged, and failed the last error.
	reported, failed string
	progress         progress
	// ports are the ports of Services, and drained is whether they lead to our di-server only.
	ports, drained unchanged
	// portsKnown and drainKnown report whether nodes had enough time to learn of that.
	portsKnown, drainKnown bool
	// waits is the last step, and nil if there is nothing to take over.
	waits *waits
}

// waits is the step at which the takeover waits.
type waits struct {
	definition *metav1.PartialObjectMetadata
	step       Step
	observed   *Observed
	// left is how many steps are left, including this one.
	left int
}

// New returns a Runner that has not started.
func New(options Options) *Runner {
	return &Runner{options: options, mayAct: make(chan struct{}), done: make(chan struct{})}
}

// Finished returns a Runner that has nothing to do: the controllers may act immediately.
func Finished() *Runner {
	r := New(Options{})
	close(r.mayAct)
	close(r.done)
	return r
}

// MayAct is closed when no other operator acts anymore, so that ours may.
func (r *Runner) MayAct() <-chan struct{} { return r.mayAct }

// Done is closed when nothing is left to do.
func (r *Runner) Done() <-chan struct{} { return r.done }

// NeedLeaderElection reports that only the leader runs the takeover.
func (*Runner) NeedLeaderElection() bool { return true }

// Start runs the takeover until nothing is left to do or the context ends.
func (r *Runner) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		again, err := r.advance(ctx)
		select {
		case <-r.done:
			r.options.Metrics.reset()
			return nil
		default:
		}
		if ctx.Err() == nil {
			r.logOnce(err)
			r.reportStall()
		}
		if again && err == nil {
			continue
		}
		timer := r.options.Clock.NewTimer(lookInterval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

// logOnce logs an error unless the previous attempt failed with the same one.
func (r *Runner) logOnce(err error) {
	if err == nil {
		r.failed = ""
		return
	}
	if err.Error() != r.failed {
		r.options.Log.Error(err, "Takeover step failed; retrying")
	}
	r.failed = err.Error()
}

// reportStall reports how long the takeover is stalled, even while nothing can be observed.
func (r *Runner) reportStall() {
	if r.waits == nil {
		return
	}
	at := r.waits
	waiting := r.progress.observe(at.left, r.options.Clock.Now())
	r.options.Metrics.observe(at.step, waiting)
	if !r.progress.overdue(waiting) {
		return
	}
	line := stallMessage(at.step, at.observed, waiting, r.failed)
	r.options.Log.Info("Takeover stalled", "step", at.step, "waiting", waiting.String(), "message", line)
	r.options.Recorder.Eventf(at.definition, nil, corev1.EventTypeWarning, v2alpha1.ReasonTakeoverStalled, "TakeOver", "%s", recorder.Note(line))
}

// advance observes the cluster and takes the next step. It reports whether the step after it can
// follow immediately.
func (r *Runner) advance(ctx context.Context) (again bool, err error) {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := r.options.API.Get(ctx, client.ObjectKey{Name: r.options.Definition}, definition); err != nil {
		return false, fmt.Errorf("getting customresourcedefinition %s: %w", r.options.Definition, err)
	}
	said := definition.Annotations[crds.AnnotationTakeover]
	if IsDone(said) {
		r.act()
		close(r.done)
		return false, nil
	}
	observed, err := r.observe(ctx)
	if err != nil {
		return false, err
	}
	if Next(observed) == StepAct {
		// This step writes nothing, so that it is not reported alone: after a crash it must be
		// repeated.
		r.act()
		observed.Acting = true
	}
	plan := Plan(observed)
	if len(plan) > 0 && (said != "" || findsEarlier(plan)) {
		r.waits = &waits{definition: definition, step: plan[0], observed: observed, left: len(plan)}
	}
	if said != "" || findsEarlier(plan) || len(plan) == 0 {
		if err := r.report(ctx, definition, said, observed); err != nil {
			return false, err
		}
	}
	if len(plan) == 0 {
		close(r.done)
		return false, nil
	}
	return r.do(ctx, plan[0], observed)
}

// act starts the controllers.
func (r *Runner) act() {
	if !r.acting {
		r.acting = true
		close(r.mayAct)
	}
}

func (r *Runner) do(ctx context.Context, step Step, observed *Observed) (again bool, err error) {
	switch step {
	case StepDeleteWebhooks:
		return true, r.deleteConfigurations(ctx)
	case StepStopOperator:
		return true, errors.Join(r.stop(ctx, names.EarlierOperator), r.stop(ctx, names.EarlierWebhook))
	case StepDeleteBridges:
		if !r.portsKnown {
			return false, nil
		}
		return true, r.deleteBridges(ctx, observed)
	case StepDrainServer:
		if !r.portsKnown {
			return false, nil
		}
		return true, r.drain(ctx, observed)
	case StepRestoreServices:
		return true, r.restore(ctx, observed)
	case StepStopServer:
		if !r.drainKnown {
			return false, nil
		}
		return true, r.stop(ctx, names.EarlierServer)
	case StepProbe:
		if err := r.options.Probe(ctx); err != nil {
			return false, fmt.Errorf("probing whether jobs are admitted: %w", err)
		}
		r.probed = true
		return true, nil
	default:
		r.options.Log.V(1).Info("Takeover is waiting", "step", step, "pods", observed.Pods)
		return false, nil
	}
}

func (r *Runner) deleteConfigurations(ctx context.Context) error {
	for _, configuration := range configurations() {
		if err := client.IgnoreNotFound(r.options.API.Delete(ctx, configuration)); err != nil {
			return fmt.Errorf("deleting webhook configuration %s: %w", configuration.Name, err)
		}
	}
	return nil
}

// stop scales a Deployment to zero if it exists.
func (r *Runner) stop(ctx context.Context, name string) error {
	scale, err := r.scaleOf(ctx, name)
	if err != nil || scale == nil || scale.Spec.Replicas == 0 {
		return err
	}
	scale.Spec.Replicas = 0
	err = r.options.API.SubResource("scale").Update(ctx, r.deployment(name), client.WithSubResourceBody(scale), fieldManager)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("scaling Deployment %s/%s to zero: %w", r.options.Namespace, name, err)
	}
	// After a conflict the next observation reads it again.
	return nil
}

// report publishes the next step if it has changed. It writes the definition's annotation first,
// because the annotation outlives this process.
func (r *Runner) report(ctx context.Context, definition *metav1.PartialObjectMetadata, said string, observed *Observed) error {
	line := Describe(observed)
	if line != said {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{crds.AnnotationTakeover: line}}})
		if err != nil {
			return fmt.Errorf("encoding how far the takeover is: %w", err)
		}
		if err := r.options.API.Patch(ctx, definition.DeepCopy(), client.RawPatch(types.MergePatchType, patch), fieldManager); err != nil {
			return fmt.Errorf("saying in customresourcedefinition %s how far the takeover is: %w", definition.Name, err)
		}
	}
	if line == r.reported || said == "" && IsDone(line) {
		// Nothing was taken over, so no line is logged and no Event is recorded.
		return nil
	}
	r.reported = line
	r.options.Log.Info("Taking over an earlier release", "step", Next(observed), "message", line)
	reason := v2alpha1.ReasonTakingOver
	if IsDone(line) {
		reason = v2alpha1.ReasonTakenOver
	}
	r.options.Recorder.Eventf(definition, nil, corev1.EventTypeNormal, reason, "TakeOver", "%s", recorder.Note(line))
	return nil
}
