// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Fields that differ between the versions, or that only one version has.
const (
	fieldExtended     = "extended"
	fieldLifecycle    = "lifecycle"
	fieldBackoffLimit = "backoffLimit"
	fieldTasks        = "tasks"
	fieldType         = "type"
	fieldName         = "name"
	fieldReplicas     = "replicas"
	fieldTemplate     = "template"
	fieldDrain        = "drain"
)

// roles returns the roles of v1alpha1 in the order in which they become tasks. Each is a field of
// v1alpha1's spec, and the type and name of a task.
func roles() [3]string {
	return [3]string{
		string(v2alpha1.TaskTypeCoordinator),
		string(v2alpha1.TaskTypeCollector),
		string(v2alpha1.TaskTypeLearner),
	}
}

func isRole(name string) bool {
	return rolePosition(name) >= 0
}

func rolePosition(name string) int {
	names := roles()
	return slices.Index(names[:], name)
}

// isSharedSpecField reports whether both versions have the field of the spec with the same meaning.
func isSharedSpecField(name string) bool {
	switch name {
	case "group", "priorityClassName", "cleanPodPolicy", "volumes":
		return true
	}
	return false
}

// canonicalReplicas returns the number of replicas that a role of v1alpha1 gets.
func canonicalReplicas(role string) string {
	if role == string(v2alpha1.TaskTypeCoordinator) {
		return "1"
	}
	return "0"
}

// specToHub converts a spec of v1alpha1.
//
// The lifecycle in extended determines how the rest is read:
//
//   - Absent: v1alpha1 defined the job. It is coordinator-led with a backoffLimit of 0, and
//     extended adds to that.
//   - CoordinatorLed: nothing is implied.
//   - Anything else, where "" represents an absent lifecycle: the job is worker-led, and extended
//     defines it completely.
func specToHub(v1 object) object {
	raw, _ := v1.get(fieldExtended)
	extended := held[v2alpha1.DIJobSpec](raw)
	lifecycle, stated := extended.get(fieldLifecycle)

	var hub object
	if !stated {
		lifecycle = quote(string(v2alpha1.LifecycleCoordinatorLed))
	}
	if string(lifecycle) != `""` {
		hub.set(fieldLifecycle, lifecycle)
	}
	if _, ok := extended.get(fieldBackoffLimit); !ok && !stated {
		hub.set(fieldBackoffLimit, []byte("0"))
	}
	hub = append(hub, sharedSpecFields(v1)...)
	if !isWorkerLed(extended) {
		if tasks, ok := tasksToHub(v1, extended); ok {
			hub.set(fieldTasks, tasks)
		}
	}
	return hub.completedBy(extended.without(fieldLifecycle, "group", "priorityClassName", "cleanPodPolicy", "volumes"))
}

// isWorkerLed reports whether extended makes a job worker-led.
func isWorkerLed(extended object) bool {
	lifecycle, stated := extended.get(fieldLifecycle)
	return stated && text(lifecycle) != string(v2alpha1.LifecycleCoordinatorLed)
}

// sharedSpecFields returns the members of a v1alpha1 spec that the hub has under the same name. It
// includes fields that neither version knows: they come from a schema newer than this program and
// must not be lost.
func sharedSpecFields(v1 object) object {
	var shared object
	unknown := isUnknown[v2alpha1.DIJobSpec]()
	for _, m := range v1 {
		switch {
		case m.key == fieldExtended || isRole(m.key):
		case m.key == "cleanPodPolicy":
			shared = append(shared, member{m.key, canonicalCleanPodPolicy(m.value)})
		case isSharedSpecField(m.key) || unknown(m):
			shared = append(shared, m)
		}
	}
	return shared
}

// tasksToHub returns the tasks of a coordinator-led job. They are the tasks that extended lists,
// completed by v1alpha1's own fields for their roles, and a canonical task for each role that
// extended does not list. A listed task whose role no longer has a field was removed by an edit
// through v1alpha1.
func tasksToHub(v1, extended object) ([]byte, bool) {
	listed, _ := extended.get(fieldTasks)
	entries, isArray := parseArray(listed)
	var tasks [][]byte
	seen := map[string]bool{}
	for _, entry := range entries {
		task, _ := parseObject(entry)
		role := task.text(fieldType)
		if !isRole(role) || seen[role] {
			tasks = append(tasks, entry)
			continue
		}
		seen[role] = true
		if content, ok := roleOf(v1, role); ok {
			tasks = append(tasks, append(task.without(contentKeys(content)...), content...).bytes())
		}
	}
	for _, role := range roles() {
		content, ok := roleOf(v1, role)
		if seen[role] || !ok {
			continue
		}
		task := object{
			{fieldReplicas, []byte(canonicalReplicas(role))},
			{fieldType, quote(role)},
			{fieldName, quote(role)},
		}
		tasks = append(tasks, append(task, content...).bytes())
	}
	return joinArray(tasks), len(tasks) > 0 || isArray
}

// roleOf returns the content of a role in a spec of v1alpha1, and whether the spec has the role.
func roleOf(v1 object, role string) (object, bool) {
	raw, _ := v1.get(role)
	content, ok := parseObject(raw)
	return contentOf(content), ok
}

// contentOf returns the members of a task that v1alpha1's field of its role has: all but those that
// only v2alpha1 has.
func contentOf(task object) object {
	return task.without(fieldReplicas, fieldType, fieldName, fieldDrain)
}

// contentKeys returns the members of a task that v1alpha1's content of the role replaces. The
// template is one of them even if v1alpha1 has no template.
func contentKeys(content object) []string {
	keys := []string{fieldTemplate}
	for _, m := range content {
		keys = append(keys, m.key)
	}
	return keys
}

// specFromHub converts a spec of v2alpha1.
func specFromHub(hub object) object {
	var v1, extended object
	for _, m := range hub {
		switch {
		case isSharedSpecField(m.key):
			v1 = append(v1, m)
		case m.key != fieldLifecycle && m.key != fieldTasks:
			extended = append(extended, m)
		}
	}
	lifecycle, stated := hub.get(fieldLifecycle)
	if text(lifecycle) == string(v2alpha1.LifecycleCoordinatorLed) {
		return coordinatorLedFromHub(hub, v1, extended)
	}
	if !stated {
		lifecycle = []byte(`""`)
	}
	extended = append(extended, member{fieldLifecycle, lifecycle})
	tasks, listed := hub.get(fieldTasks)
	if listed {
		extended = append(extended, member{fieldTasks, tasks})
	}
	v1 = append(v1, workerRoles(tasks)...)
	return append(v1, member{fieldExtended, extended.bytes()})
}

// coordinatorLedFromHub adds the fields of a coordinator-led job to v1 and extended.
func coordinatorLedFromHub(hub, v1, extended object) object {
	limit, limited := hub.get(fieldBackoffLimit)
	if string(limit) == "0" {
		extended = extended.without(fieldBackoffLimit)
	}
	if !limited {
		extended = append(extended, member{fieldLifecycle, quote(string(v2alpha1.LifecycleCoordinatorLed))})
	}
	if tasks, ok := hub.get(fieldTasks); ok {
		shown, listed, canonical := shownRoles(tasks)
		v1 = append(v1, shown...)
		if !canonical {
			extended = append(extended, member{fieldTasks, listed})
		}
	}
	if len(extended) > 0 {
		v1 = append(v1, member{fieldExtended, extended.bytes()})
	}
	return v1
}

// shownRoles returns the roles of a coordinator-led job as fields of v1alpha1, which show the first
// task of each role. It also returns the tasks without what those fields carry. The tasks are
// canonical if the fields alone imply them.
func shownRoles(tasks []byte) (shown object, listed []byte, canonical bool) {
	entries, isArray := parseArray(tasks)
	if !isArray {
		return nil, tasks, false
	}
	canonical = len(entries) > 0
	position := -1
	rest := make([][]byte, 0, len(entries))
	for _, entry := range entries {
		task, _ := parseObject(entry)
		role := task.text(fieldType)
		if _, ok := shown.get(role); ok || !isRole(role) {
			canonical = false
			rest = append(rest, entry)
			continue
		}
		at := rolePosition(role)
		canonical = canonical && at > position && isCanonical(task, role)
		position = at
		content := contentOf(task)
		shown = append(shown, member{role, content.bytes()})
		rest = append(rest, task.without(contentKeys(content)...).bytes())
	}
	return shown, joinArray(rest), canonical
}

// isCanonical reports whether v1alpha1's field of the role implies the name and the replicas of the
// task, and the task has nothing else that only v2alpha1 has.
func isCanonical(task object, role string) bool {
	replicas, _ := task.get(fieldReplicas)
	_, drains := task.get(fieldDrain)
	return !drains && string(replicas) == canonicalReplicas(role) && task.text(fieldName) == role
}

// workerRoles returns the fields that show the tasks of a worker-led job in v1alpha1. A single task
// without a role is shown as the coordinator of a serial job. Other tasks are shown as learner and
// collector by their types. The coordinator is always present because v1alpha1 requires it.
func workerRoles(tasks []byte) object {
	var shown object
	entries, _ := parseArray(tasks)
	for _, entry := range entries {
		task, _ := parseObject(entry)
		role := shownAs(task, len(entries))
		if _, ok := shown.get(role); !ok && isRole(role) {
			shown = append(shown, member{role, contentOf(task).bytes()})
		}
	}
	return shown.completedBy(object{{string(v2alpha1.TaskTypeCoordinator), []byte("{}")}})
}

// shownAs returns the role that shows a task of a worker-led job with this number of tasks. A type
// that is not a role of v1alpha1 stays unchanged.
func shownAs(task object, tasks int) string {
	taskType := task.text(fieldType)
	switch {
	case tasks == 1 && taskType == string(v2alpha1.TaskTypeNone):
		return string(v2alpha1.TaskTypeCoordinator)
	case taskType == string(v2alpha1.TaskTypeCoordinator):
		return ""
	}
	return taskType
}

// canonicalCleanPodPolicy returns the policy in the letter case of v2alpha1.
func canonicalCleanPodPolicy(raw []byte) []byte {
	if policy, ok := CanonicalCleanPodPolicy(text(raw)); ok {
		return quote(string(policy))
	}
	return raw
}
