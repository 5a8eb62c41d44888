// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Submit creates a job as it is written, in either version; what the API server
// makes of it, it becomes. Validation is Strict, Warn or Ignore for fields that
// the API does not know. A trial is not stored.
func (c *Cluster) Submit(ctx context.Context, job *unstructured.Unstructured, validation string, trial bool) error {
	options := []client.CreateOption{client.FieldValidation(validation)}
	if trial {
		options = append(options, client.DryRunAll)
	}
	title := "job " + job.GetNamespace() + "/" + job.GetName()
	if job.GetName() == "" {
		title = "job " + job.GetNamespace() + "/" + job.GetGenerateName() + "*"
	}
	err := c.client.Create(ctx, job, options...)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s is there already: delete it first, give this one another name, or change it by kubectl apply", title)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("submitting %s: %w\nis there a namespace %s, and is DI Orchestrator installed? See kubectl get namespaces, and kubectl di version",
			title, err, job.GetNamespace())
	}
	if wrong := refusal(err); wrong != "" {
		return fmt.Errorf("%s is refused:\n%s", title, wrong)
	}
	need := Right{Verb: "create", Group: v2alpha1.GroupName, Resource: "dijobs", Namespace: job.GetNamespace()}
	return need.Denied("submitting "+title, err)
}

// refusal returns what the API server finds wrong with an object, one field a
// line; nothing where the error is another.
func refusal(err error) string {
	status, isStatus := err.(apierrors.APIStatus)
	if !isStatus || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return ""
	}
	told := status.Status()
	var lines []string
	if told.Details != nil {
		for _, cause := range told.Details.Causes {
			line := cause.Message
			if cause.Field != "" && cause.Field != "<nil>" {
				line = cause.Field + ": " + line
			}
			lines = append(lines, "  "+line)
		}
	}
	if len(lines) > 0 {
		return strings.Join(lines, "\n")
	}
	// The decoder lists what it finds in one line.
	for _, line := range strings.Split(afterLast(told.Message, "strict decoding error: "), ", unknown field") {
		if len(lines) > 0 {
			line = "unknown field" + line
		}
		lines = append(lines, "  "+line)
	}
	return strings.Join(lines, "\n")
}

func afterLast(text, separator string) string {
	if at := strings.LastIndex(text, separator); at >= 0 {
		return text[at+len(separator):]
	}
	return text
}
