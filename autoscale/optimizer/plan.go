// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package optimizer

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// maxReason is the maximum length of spec.reason, in characters.
const maxReason = 1024

// Plan is a change of a job. The zero value changes nothing.
type Plan struct {
	// Tasks are the changed tasks.
	Tasks []TaskPlan `json:"tasks,omitempty"`
	// Migrate are replicas that get resources of their own.
	Migrate []Migration `json:"migrate,omitempty"`
	// Reason describes for people why the plan changes this, or changes nothing.
	Reason string `json:"reason,omitempty"`
}

// TaskPlan is the new size of a task.
type TaskPlan struct {
	// Name is the name of the task.
	Name string `json:"name"`
	// Replicas is the new number of replicas; nil to keep it.
	Replicas *int32 `json:"replicas,omitempty"`
	// Requests are the new requests of each replica; a zero keeps the present one.
	Requests Resources `json:"requests"`
}

// Migration is the new size of one replica.
type Migration struct {
	// Pod is the name of its pod.
	Pod string `json:"pod"`
	// Requests are its new requests; a zero keeps the present one.
	Requests Resources `json:"requests"`
}

// Empty reports whether a plan changes nothing.
func (p Plan) Empty() bool { return len(p.Tasks) == 0 && len(p.Migrate) == 0 }

// ScalePlan returns the object for a plan that is not empty. Its name is that of the job and the second of the
// decision, so a repeated create conflicts instead of creating a second plan.
func ScalePlan(job *Job, plan Plan) *v2alpha1.ScalePlan {
	controller := false
	object := &v2alpha1.ScalePlan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace,
			Name:      fmt.Sprintf("%s-optimizer-%d", strings.TrimRight(job.Name[:min(len(job.Name), 200)], "-."), job.Now.Unix()),
		},
		Spec: v2alpha1.ScalePlanSpec{Job: job.Name, Origin: v2alpha1.PlanOptimizer, Reason: text(plan.Reason)},
	}
	if job.UID != "" {
		object.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob", Name: job.Name, UID: job.UID, Controller: &controller,
		}}
	}
	for _, task := range plan.Tasks {
		object.Spec.Tasks = append(object.Spec.Tasks, v2alpha1.TaskScale{
			Name: task.Name, Replicas: task.Replicas, Resources: quantities(task.Requests),
		})
	}
	for _, migration := range plan.Migrate {
		object.Spec.Migrate = append(object.Spec.Migrate, v2alpha1.PodMigration{
			Pod: migration.Pod, Resources: quantities(migration.Requests),
		})
	}
	return object
}

func quantities(of Resources) v2alpha1.ReplicaResources {
	var resources v2alpha1.ReplicaResources
	if of.CPU > 0 {
		resources.CPU = resource.NewMilliQuantity(of.CPU, resource.DecimalSI)
	}
	if of.Memory > 0 {
		resources.Memory = resource.NewQuantity(of.Memory, resource.BinarySI)
	}
	return resources
}

// text returns a reason that the API server accepts: printable, valid UTF-8, and not too long.
func text(reason string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(reason, "?"))
	if characters := []rune(printable); len(characters) > maxReason {
		return string(characters[:maxReason-1]) + "…"
	}
	return printable
}
