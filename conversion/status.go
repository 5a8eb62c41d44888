// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"maps"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const (
	fieldPhase         = "phase"
	fieldConditions    = "conditions"
	fieldReplicaStatus = "replicaStatus"
	fieldTaskStatus    = "taskStatus"
	fieldActive        = "active"
	fieldSucceeded     = "succeeded"
	fieldFailed        = "failed"
)

// statusToHub converts a status of v1alpha1; the keys are those of the job's
// spec.
func statusToHub(v1 object, keys statusKeys) object {
	raw, _ := v1.get(fieldExtended)
	extended := held[v2alpha1.DIJobStatus](raw)
	var hub object
	for _, m := range v1 {
		switch m.key {
		case fieldExtended, fieldReplicaStatus:
		case fieldPhase:
			hub = append(hub, member{fieldPhase, phaseToHub(m.value, extended)})
		default:
			if m.key == fieldConditions || isUnknown[v2alpha1.DIJobStatus](m) {
				hub = append(hub, m)
			}
		}
	}
	if counts, ok := countsToHub(v1, extended, keys); ok {
		hub.set(fieldTaskStatus, counts)
	}
	return hub.completedBy(extended.without(fieldPhase, fieldConditions, fieldTaskStatus))
}

// statusFromHub converts a status of v2alpha1.
func statusFromHub(hub object, keys statusKeys) object {
	var v1, extended object
	for _, m := range hub {
		switch m.key {
		case fieldConditions:
			v1 = append(v1, m)
		case fieldPhase:
			shown := phaseFromHub(m.value)
			v1 = append(v1, member{fieldPhase, shown})
			if text(phaseToHub(shown, nil)) != text(m.value) {
				extended = append(extended, m)
			}
		case fieldTaskStatus:
			shown, exact := countsFromHub(m.value, keys)
			v1 = append(v1, member{fieldReplicaStatus, shown})
			if !exact {
				extended = append(extended, m)
			}
		default:
			extended = append(extended, m)
		}
	}
	if len(extended) > 0 {
		v1 = append(v1, member{fieldExtended, extended.bytes()})
	}
	return v1
}

// phaseFromHub returns v1alpha1's word for a phase.
func phaseFromHub(phase []byte) []byte {
	switch v2alpha1.Phase(text(phase)) {
	case v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRestarting, v2alpha1.JobRescheduling:
		return quote(string(v1alpha1.JobCreated))
	default:
		return phase
	}
}

// phaseToHub returns the phase that extended keeps, where v1alpha1 still says
// the word for it; else Pending for Created, which the hub has no word for; else
// v1alpha1's.
func phaseToHub(phase []byte, extended object) []byte {
	kept, ok := extended.get(fieldPhase)
	if ok && text(phase) != "" && text(phaseFromHub(kept)) == text(phase) {
		return kept
	}
	if text(phase) == string(v1alpha1.JobCreated) {
		return quote(string(v2alpha1.JobPending))
	}
	return phase
}

// countsFromHub returns a taskStatus as replicaStatus, and whether
// replicaCountsToHub gets the same taskStatus back from it.
func countsFromHub(raw []byte, keys statusKeys) ([]byte, bool) {
	tasks, ok := parseObject(raw)
	if !ok {
		return raw, true
	}
	shown, exact := make(object, 0, len(tasks)), true
	seen := make(map[string]bool, len(tasks))
	for _, task := range tasks {
		key := keys.show(task.key)
		if seen[key] {
			exact = false
			continue
		}
		seen[key] = true
		counts, same := replicaStatus(task.value)
		exact = exact && same && keys.hide(key) == task.key
		shown = append(shown, member{key, counts})
	}
	return shown.bytes(), exact
}

// replicaStatus returns the counts of one task by pod phase as v1alpha1 counts
// them, and whether taskStatus gets the same back from it.
func replicaStatus(raw []byte) ([]byte, bool) {
	phases, ok := parseObject(raw)
	if !ok {
		return raw, true
	}
	shown, exact, active := object{}, true, 0
	for _, m := range phases {
		switch corev1.PodPhase(m.key) {
		case corev1.PodSucceeded:
			shown = append(shown, member{fieldSucceeded, m.value})
		case corev1.PodFailed:
			shown = append(shown, member{fieldFailed, m.value})
		case corev1.PodRunning:
			shown.set(fieldActive, sum(shown, m.value, active))
			active++
		case corev1.PodPending, corev1.PodUnknown:
			shown.set(fieldActive, sum(shown, m.value, active))
			active++
			exact = false
		default:
			exact = false
		}
	}
	return shown.bytes(), exact
}

// sum adds a count to the active ones, if there were any before.
func sum(counts object, value []byte, before int) []byte {
	if before == 0 {
		return value
	}
	first, _ := counts.get(fieldActive)
	a, _ := strconv.ParseInt(string(first), 10, 32)
	b, _ := strconv.ParseInt(string(value), 10, 32)
	return strconv.AppendInt(nil, max(math.MinInt32, min(math.MaxInt32, a+b)), 10)
}

// countsToHub returns the taskStatus that extended keeps, where v1alpha1's
// replicaStatus is still what shows it, else what replicaStatus says.
func countsToHub(v1, extended object, keys statusKeys) ([]byte, bool) {
	replicas, counted := v1.get(fieldReplicaStatus)
	kept, ok := extended.get(fieldTaskStatus)
	if ok {
		shown, _ := countsFromHub(kept, keys)
		if sameCounts(shown, replicas) {
			return kept, true
		}
	}
	if !counted {
		return nil, false
	}
	return replicaCountsToHub(replicas, keys), true
}

// sameCounts says whether two replicaStatus count the same. An absent count is
// zero: typed clients drop zeros from what they write back.
func sameCounts(a, b []byte) bool {
	countsOfA, okA := decodeCounts(a)
	countsOfB, okB := decodeCounts(b)
	return okA && okB && maps.Equal(countsOfA, countsOfB)
}

func decodeCounts(raw []byte) (map[string]v1alpha1.ReplicaStatus, bool) {
	if len(raw) == 0 {
		return nil, true
	}
	counts := map[string]v1alpha1.ReplicaStatus{}
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &counts)
	return counts, err == nil
}

// replicaCountsToHub returns a replicaStatus as taskStatus. Active pods count
// as running, as v1alpha1 does not tell them from pending ones.
func replicaCountsToHub(raw []byte, keys statusKeys) []byte {
	replicas, ok := parseObject(raw)
	if !ok {
		return raw
	}
	hub := make(object, 0, len(replicas))
	seen := make(map[string]bool, len(replicas))
	for _, m := range replicas {
		if name := keys.hide(m.key); !seen[name] {
			seen[name] = true
			hub = append(hub, member{name, taskStatus(m.value)})
		}
	}
	return hub.bytes()
}

func taskStatus(raw []byte) []byte {
	counts, ok := parseObject(raw)
	if !ok {
		return raw
	}
	phases := object{}
	for _, m := range counts {
		switch m.key {
		case fieldActive:
			phases = append(phases, member{string(corev1.PodRunning), m.value})
		case fieldSucceeded:
			phases = append(phases, member{string(corev1.PodSucceeded), m.value})
		case fieldFailed:
			phases = append(phases, member{string(corev1.PodFailed), m.value})
		}
	}
	return phases.bytes()
}

// statusKeys maps the names of tasks, as taskStatus has them, to the keys of
// replicaStatus. A task that v1alpha1 shows under a role counts as that role;
// of the others the names stay.
type statusKeys struct {
	shown, hidden map[string]string
}

// taskKeys returns the keys for a spec of the hub.
func taskKeys(spec []byte) statusKeys {
	keys := statusKeys{shown: map[string]string{}, hidden: map[string]string{}}
	parsed, _ := parseObject(spec)
	workerLed := parsed.text(fieldLifecycle) != string(v2alpha1.LifecycleCoordinatorLed)
	tasks, _ := parsed.get(fieldTasks)
	entries, _ := parseArray(tasks)
	for _, entry := range entries {
		task, _ := parseObject(entry)
		role := task.text(fieldType)
		if workerLed {
			role = shownAs(task, len(entries))
		}
		name := task.text(fieldName)
		if name == "" {
			name = task.text(fieldType)
		}
		key, isKey := roleKey(role)
		if _, taken := keys.hidden[key]; !isKey || taken || name == role {
			continue
		}
		keys.shown[name] = key
		keys.hidden[key] = name
	}
	return keys
}

// show returns the key of a task. Where no task says otherwise, role and key
// are swapped for each other, so that no two names share a key.
func (k statusKeys) show(name string) string {
	if key, ok := k.shown[name]; ok {
		return key
	}
	return swapRole(name)
}

// hide returns the name of the task of a key.
func (k statusKeys) hide(key string) string {
	if name, ok := k.hidden[key]; ok {
		return name
	}
	return swapRole(key)
}

func swapRole(name string) string {
	if key, ok := roleKey(name); ok {
		return key
	}
	switch v1alpha1.ReplicaType(name) {
	case v1alpha1.ReplicaTypeCoordinator:
		return string(v2alpha1.TaskTypeCoordinator)
	case v1alpha1.ReplicaTypeCollector:
		return string(v2alpha1.TaskTypeCollector)
	case v1alpha1.ReplicaTypeLearner:
		return string(v2alpha1.TaskTypeLearner)
	case v1alpha1.ReplicaTypeAggregator:
		return v2alpha1.AggregatorTaskStatus
	}
	return name
}

// roleKey returns the key of replicaStatus under which a role counts.
func roleKey(role string) (string, bool) {
	switch role {
	case string(v2alpha1.TaskTypeCoordinator):
		return string(v1alpha1.ReplicaTypeCoordinator), true
	case string(v2alpha1.TaskTypeCollector):
		return string(v1alpha1.ReplicaTypeCollector), true
	case string(v2alpha1.TaskTypeLearner):
		return string(v1alpha1.ReplicaTypeLearner), true
	case v2alpha1.AggregatorTaskStatus:
		return string(v1alpha1.ReplicaTypeAggregator), true
	}
	return "", false
}
