// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podcheck

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/workload"
)

// origin is where a pod comes from: a template of a job, or of an AggregatorConfig.
type origin struct {
	job      Job
	at       string
	template *corev1.PodTemplateSpec
	// fields is the template as it is written.
	fields       map[string]any
	isAggregator bool
}

func newOrigin(job Job, at string, written v2alpha1.RawObject) (origin, error) {
	from := origin{job: job, at: at}
	var err error
	if from.template, err = workload.Template(at, written); err != nil {
		return origin{}, err
	}
	if err := json.Unmarshal(written.Raw, &from.fields); err != nil {
		return origin{}, fmt.Errorf("%s: %w", at, err)
	}
	return from, nil
}

var (
	volumeField = regexp.MustCompile(`^spec\.volumes\[(\d+)\](.*)$`)
	envField    = regexp.MustCompile(`^spec\.(containers|initContainers)\[(\d+)\]\.env\[(\d+)\](.*)$`)
	listItem    = regexp.MustCompile(`^([^\[]+)((?:\[\d+\])*)$`)
)

// field returns the path in the manifest that a field of the pod comes from.
func (p *Pod) field(field string) string {
	job := &p.origin.job
	switch {
	case field == "metadata.name" || field == "metadata.namespace" || strings.HasPrefix(field, "metadata.ownerReferences"):
		return "metadata.name"
	case field == "spec.priorityClassName" && job.Spec.PriorityClassName != "":
		return job.path("spec.priorityClassName")
	case field == "spec.schedulerName" && job.Spec.Scheduling != nil && job.Spec.Scheduling.SchedulerName != "":
		return job.path("spec.scheduling.schedulerName")
	}
	if found := volumeField.FindStringSubmatch(field); found != nil {
		if index := number(found[1]) - p.ownVolumes(); index >= 0 && index < len(job.Spec.Volumes) && !p.origin.isAggregator {
			return job.path(fmt.Sprintf("spec.volumes[%d]%s", index, found[2]))
		}
	}
	if found := envField.FindStringSubmatch(field); found != nil {
		field = fmt.Sprintf("spec.%s[%s].env%s", found[1], found[2], p.ownEnv(found[1], number(found[2]), number(found[3]), found[4]))
	}
	path := p.origin.at + "." + p.written(field)
	if p.origin.isAggregator {
		return path
	}
	return job.path(path)
}

func number(digits string) int {
	parsed, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return parsed
}

// ownVolumes counts the volumes of the template; those of the job follow in the pod.
func (p *Pod) ownVolumes() int {
	return len(p.origin.template.Spec.Volumes)
}

// ownEnv returns the position of a pod's variable in the template, "" for the operator's variables.
// The operator's come first. The template's follow in their order, without those that it overrides.
func (p *Pod) ownEnv(list string, container, variable int, below string) string {
	spec := p.origin.template.Spec
	written, built := spec.Containers, p.built.Spec.Containers
	if list == "initContainers" {
		written, built = spec.InitContainers, p.built.Spec.InitContainers
	}
	if container < 0 || container >= len(written) || container >= len(built) {
		return ""
	}
	from := len(written[container].Env) - 1
	for at := len(built[container].Env) - 1; at >= 0 && from >= 0; from-- {
		if written[container].Env[from].Name != built[container].Env[at].Name {
			continue
		}
		if at == variable {
			return fmt.Sprintf("[%d]%s", from, below)
		}
		at--
	}
	return ""
}

// written returns a path up to the first item of a list that the template does not have, because the
// operator adds items.
func (p *Pod) written(field string) string {
	var value any = p.origin.fields
	var kept []string
	for _, part := range strings.Split(field, ".") {
		found := listItem.FindStringSubmatch(part)
		object, isObject := value.(map[string]any)
		if found == nil || !isObject {
			return field
		}
		value = object[found[1]]
		if found[2] == "" {
			kept = append(kept, part)
			continue
		}
		items, _ := value.([]any)
		index := number(strings.Trim(found[2], "[]"))
		if index < 0 || index >= len(items) {
			return strings.Join(append(kept, found[1]), ".")
		}
		kept, value = append(kept, part), items[index]
	}
	return field
}

// container returns the path in the pod of a container, "" if the pod has none of that name.
func (p *Pod) container(name string) string {
	for list, containers := range map[string][]corev1.Container{
		"containers": p.built.Spec.Containers, "initContainers": p.built.Spec.InitContainers,
	} {
		for i := range containers {
			if containers[i].Name == name {
				return fmt.Sprintf("spec.%s[%d]", list, i)
			}
		}
	}
	return ""
}

// volume returns the path in the pod of a volume, "" if the pod has none of that name.
func (p *Pod) volume(name string) string {
	for i := range p.built.Spec.Volumes {
		if p.built.Spec.Volumes[i].Name == name {
			return fmt.Sprintf("spec.volumes[%d]", i)
		}
	}
	return ""
}
