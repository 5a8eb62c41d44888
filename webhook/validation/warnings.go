// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
	"opendilab.org/di-orchestrator/webhook/validation/semantic"
)

// Warnings returns the warnings about an accepted job. An update does not repeat those of the
// stored object.
func Warnings(request *Request) []string {
	if request.Subresource == subresourceStatus {
		return nil
	}
	at := pathsOf(request.Raw, request.Job)
	found := append(warnAddresses(request.Job, at, request.Domain), warnTemplates(request.Job, at, request.Domain)...)
	if request.Create {
		return found
	}
	if len(found) > 0 {
		at := pathsOf(request.OldRaw, request.Old)
		found = fewer(found, append(warnAddresses(request.Old, at, request.Domain), warnTemplates(request.Old, at, request.Domain)...))
	}
	found = append(found, warnChangedTemplates(request.Job, request.Old, at)...)
	if writtenInV2(request.Raw) {
		found = append(found, warnLost(request)...)
	}
	return found
}

// warnAddresses warns that programs must read the addresses from a file if they do not fit into a
// variable.
func warnAddresses(job *v2alpha1.DIJob, at paths, domain string) []string {
	if coordinatorLed(&job.Spec) {
		return nil
	}
	size, around, longest := sizeOfAddresses(job, names.EnvDINodes, domain)
	if size <= workload.MaxVariable {
		return nil
	}
	var w notes
	w.add(at.spec("tasks"), "%s names a file of addresses that programs must read: the addresses of all replicas take %d bytes, "+
		"and Linux starts no process with more than %d in one variable: enough for %d replicas",
		names.EnvDINodes, size, workload.MaxVariable, (workload.MaxVariable-around)/longest)
	return w
}

// fewer returns the warnings that are not among the others.
func fewer(warnings, others []string) []string {
	before := make(map[string]bool, len(others))
	for _, warning := range others {
		before[warning] = true
	}
	return slices.DeleteFunc(warnings, func(warning string) bool { return before[warning] })
}

// pathsOf returns the paths of the version that a job is written in.
func pathsOf(raw []byte, job *v2alpha1.DIJob) paths {
	if writtenInV2(raw) {
		return hubPaths{}
	}
	return v1Paths{job}
}

func writtenInV2(raw []byte) bool {
	var written struct {
		APIVersion string `json:"apiVersion"`
	}
	// Other JSON was rejected earlier.
	_ = json.Unmarshal(raw, &written)
	return written.APIVersion == v2alpha1.GroupVersion.String()
}

// warnChangedTemplates warns about changed templates and volumes of a live job, because
// existing pods keep theirs.
func warnChangedTemplates(job, old *v2alpha1.DIJob, at paths) []string {
	if old.Status.Phase == v2alpha1.JobSucceeded || old.Status.Phase == v2alpha1.JobFailed {
		return nil
	}
	var w notes
	if !semantic.SameVolumes(job.Spec.Volumes, old.Spec.Volumes) {
		w.changed(at.spec("volumes"))
	}
	// Jobs of v1.1.x may have several tasks with one name. These are compared in order.
	before := map[string][]*v2alpha1.Task{}
	for i := range old.Spec.Tasks {
		name := names.TaskName(&old.Spec.Tasks[i])
		before[name] = append(before[name], &old.Spec.Tasks[i])
	}
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		stored := before[names.TaskName(task)]
		if len(stored) == 0 {
			continue
		}
		if !semantic.SameTemplate(&job.Spec, task, stored[0]) {
			w.changed(at.task(i, "template"))
		}
		before[names.TaskName(task)] = stored[1:]
	}
	return w
}

func (w *notes) changed(at *field.Path) {
	w.add(at, "is changed: new pods use it, running pods stay unchanged")
}

// warnLost warns about dropped fields if an update removed all fields that a client built for
// v1.1.3 does not know. If one of them is left, the client knows them and removed the others
// intentionally.
func warnLost(request *Request) []string {
	stored, written := jsontype.Members(jsontype.Members(request.OldRaw)["spec"]), jsontype.Members(jsontype.Members(request.Raw)["spec"])
	lost := newerFields(stored)
	if len(lost) == 0 || len(newerFields(written)) > 0 {
		return nil
	}
	var w notes
	for _, name := range lost {
		w.add(field.NewPath("spec").Child(name),
			"is removed by this update, like all fields that v1.1.3 does not have: if the client was built for v1.1.3, write the field again")
	}
	return w
}

// newerFields returns the fields of a spec that v1.1.3 does not know, except those that defaulting
// keeps.
func newerFields(spec map[string]json.RawMessage) []string {
	known := []string{"priority", "cleanPodPolicy", "preemptible", "backoffLimit", "volumes", "tasks", "lifecycle"}
	var newer []string
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		switch {
		case !jsontype.IsSet(spec[name]) || slices.Contains(known, name):
		case name == "elastic":
			// Defaulting sets task and replicas again.
			for _, name := range slices.Sorted(maps.Keys(jsontype.Members(spec[name]))) {
				if name != "task" && name != "replicas" {
					newer = append(newer, "elastic."+name)
				}
			}
		default:
			newer = append(newer, name)
		}
	}
	return newer
}
