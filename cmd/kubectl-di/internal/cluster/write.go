// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Submit creates a job of either version as written, and updates it from the response. Validation
// is Strict, Warn or Ignore for unknown fields. A dry run stores nothing.
func (c *Cluster) Submit(ctx context.Context, job *unstructured.Unstructured, validation string, dryRun bool, more ...client.CreateOption) error {
	options := append([]client.CreateOption{client.FieldValidation(validation)}, more...)
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	title := "job " + job.GetNamespace() + "/" + job.GetName()
	if job.GetName() == "" {
		title = "job " + job.GetNamespace() + "/" + job.GetGenerateName() + "*"
	}
	err := c.client.Create(ctx, job, options...)
	switch {
	case apierrors.IsAlreadyExists(err):
		return &takenError{title}
	case apierrors.IsNotFound(err):
		return fmt.Errorf("submitting %s: %w\nis there a namespace %s, and is DI Orchestrator installed? See kubectl get namespaces, and kubectl di version",
			title, err, job.GetNamespace())
	}
	if wrong := refusal(err); wrong != "" {
		lines := append(strings.Split(wrong, "\n"), c.withoutUnknown(ctx, job, err, more)...)
		for i := range lines {
			lines[i] = suggest(lines[i], job.GetAPIVersion())
		}
		return &RefusedError{title: title, Lines: lines}
	}
	return explain("submitting "+title, err)
}

// takenError reports that a job of the name exists.
type takenError struct{ title string }

// Error implements error.
func (e *takenError) Error() string {
	return e.title + " exists already: delete it first, give this one another name, or change it by kubectl apply"
}

// IsTaken reports whether Submit failed only because a job of the name exists. The API server finds this last.
func IsTaken(err error) bool { return errors.As(err, new(*takenError)) }

// RefusedError is the API server's refusal of an object.
type RefusedError struct {
	title string
	// Lines are the findings, most with their fields.
	Lines []string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return e.title + " is refused:\n" + strings.Join(e.Lines, "\n")
}

// withoutUnknown returns what else the API server refuses of a job. It refuses unknown fields before it looks at any other, so
// that they are dropped here, in dry run. The job becomes the one with defaults if it is admitted then.
func (c *Cluster) withoutUnknown(ctx context.Context, job *unstructured.Unstructured, refused error, more []client.CreateOption) []string {
	if !apierrors.IsBadRequest(refused) || !strings.Contains(refused.Error(), strictError) {
		return nil
	}
	err := c.client.Create(ctx, job, append([]client.CreateOption{client.DryRunAll, client.FieldValidation(metav1.FieldValidationIgnore)}, more...)...)
	if wrong := refusal(err); wrong != "" {
		return strings.Split(wrong, "\n")
	}
	return nil
}

// strictError precedes the unknown fields in a message of the API server.
const strictError = "strict decoding error: "

// Objects returns a function that creates an object of any kind, in the cluster's namespace if it names none, and reports whether
// the object exists already. Validation is as of Submit. isGiven is set if the user named the namespace.
func (c *Cluster) Objects(validation string, isGiven bool) (func(context.Context, *unstructured.Unstructured, bool) (bool, error), error) {
	api, err := client.New(c.config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return func(ctx context.Context, object *unstructured.Unstructured, dryRun bool) (bool, error) {
		title := fmt.Sprintf("%s %q", object.GetKind(), object.GetName())
		isNamespaced, err := api.IsObjectNamespaced(object)
		switch {
		case err != nil:
			return false, explain("creating "+title, err)
		case isNamespaced && object.GetNamespace() == "":
			object.SetNamespace(c.Namespace)
		case isNamespaced && isGiven && object.GetNamespace() != c.Namespace:
			return false, fmt.Errorf("%s is of namespace %s, and -n is %s: leave out one of them", title, object.GetNamespace(), c.Namespace)
		}
		options := []client.CreateOption{client.FieldValidation(validation)}
		if dryRun {
			options = append(options, client.DryRunAll)
		}
		err = api.Create(ctx, object, options...)
		if apierrors.IsAlreadyExists(err) {
			return true, nil
		}
		if wrong := refusal(err); wrong != "" {
			return false, fmt.Errorf("%s is refused:\n%s", title, wrong)
		}
		return false, explain("creating "+title, err)
	}, nil
}

// Own adds a job to the owners of a ConfigMap, so that it is deleted with the job. One that is gone, because an earlier owner
// was deleted, is created again.
func (c *Cluster) Own(ctx context.Context, job, manifest *unstructured.Unstructured) error {
	namespace := job.GetNamespace()
	owner := metav1.OwnerReference{APIVersion: job.GetAPIVersion(), Kind: job.GetKind(), Name: job.GetName(), UID: job.GetUID()}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		existing := manifest.DeepCopy()
		err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: manifest.GetName()}, existing)
		switch {
		case apierrors.IsNotFound(err):
			existing = manifest.DeepCopy()
			existing.SetNamespace(namespace)
			existing.SetOwnerReferences([]metav1.OwnerReference{owner})
			return explain("creating configmap "+namespace+"/"+manifest.GetName(), c.client.Create(ctx, existing))
		case err != nil:
			return explain("reading configmap "+namespace+"/"+manifest.GetName(), err)
		}
		changed := existing.DeepCopy()
		changed.SetOwnerReferences(append(existing.GetOwnerReferences(), owner))
		return c.Patch(ctx, changed, client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{}))
	})
}

// CreatePlan creates a ScalePlan, and updates it from the response. A dry run stores nothing.
func (c *Cluster) CreatePlan(ctx context.Context, plan *v2alpha1.ScalePlan, dryRun bool) error {
	var options []client.CreateOption
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	err := c.client.Create(ctx, plan, options...)
	title := "a plan for job " + plan.Namespace + "/" + plan.Spec.Job
	if wrong := refusal(err); wrong != "" {
		return fmt.Errorf("%s is refused:\n%s", title, wrong)
	}
	return explain("creating "+title, err)
}

// refusal returns the API server's errors about an object, one field a line; "" for other errors.
func refusal(err error) string {
	status, isStatus := err.(apierrors.APIStatus)
	if !isStatus || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return ""
	}
	var lines []string
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			line := inWords(cause.Message)
			if cause.Field != "" && cause.Field != "<nil>" {
				line = cause.Field + ": " + line
			}
			lines = append(lines, "  "+line)
		}
	}
	if len(lines) == 0 {
		// The decoder reports all its errors in one line.
		message := status.Status().Message
		if _, strict, is := strings.Cut(message, strictError); is {
			message = strict
		}
		return "  " + strings.ReplaceAll(inWords(message), ", unknown field", "\n  unknown field")
	}
	return strings.Join(lines, "\n")
}

// pattern matches the regular expression that Kubernetes adds to what it says about a name.
var pattern = regexp.MustCompile(` \(regex used for validation is '[^']*'\)|, regex used for validation is '[^']*'`)

// inWords returns what the API server says about a value without the regular expression that it repeats.
func inWords(message string) string { return pattern.ReplaceAllString(message, "") }

// SetSuspended patches only spec.suspend of a job, so that it cannot conflict. It updates the job
// from the response. A dry run stores nothing.
func (c *Cluster) SetSuspended(ctx context.Context, job *v2alpha1.DIJob, suspended, dryRun bool) error {
	var options []client.PatchOption
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	return c.Patch(ctx, job, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspended)), options...)
}

// CheckScale refuses a change because of the current number of replicas.
type CheckScale func(current int32) error

// Scale sets the number of replicas of a job's elastic task by its scale subresource, like kubectl
// scale, and returns the previous number. The check may refuse the change because of the current
// number. A dry run stores nothing.
func (c *Cluster) Scale(ctx context.Context, job *v2alpha1.DIJob, replicas int32, check CheckScale, dryRun bool) (int32, error) {
	var options []client.SubResourceUpdateOption
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	var before int32
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale := &autoscalingv1.Scale{}
		if err := c.client.SubResource("scale").Get(ctx, job, scale); err != nil {
			return explainScale(job, replicas, err)
		}
		before = scale.Spec.Replicas
		if err := check(before); err != nil || replicas == before {
			return err
		}
		scale.Spec.Replicas = replicas
		return explainScale(job, replicas, c.client.SubResource("scale").Update(ctx, job, append(options, client.WithSubResourceBody(scale))...))
	})
	return before, err
}

// explainScale explains why the scale could not be read or written.
func explainScale(job *v2alpha1.DIJob, replicas int32, err error) error {
	key := client.ObjectKeyFromObject(job)
	switch {
	case err == nil, apierrors.IsConflict(err):
		return err
	case apierrors.IsInvalid(err):
		return fmt.Errorf("job %s cannot be scaled to %d: %w", key, replicas, err)
	case apierrors.IsInternalError(err) && (job.Spec.Elastic == nil || job.Spec.Elastic.Replicas == nil):
		return fmt.Errorf("job %s has no spec.elastic.replicas yet, which the operator writes into jobs of earlier releases; to set it yourself:\n"+
			"  kubectl -n %s patch dijob %s --type merge -p '{\"spec\":{\"elastic\":{\"replicas\":%d}}}'\n%w", key, job.Namespace, job.Name, replicas, err)
	}
	return explain("scaling job "+key.String(), err)
}
