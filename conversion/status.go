// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"maps"
	"math"
	"strconv"
	"strings"

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

// statusToHub converts a status of v1alpha1. The keys are those of the job's spec.
func statusToHub(v1 object, keys statusKeys) object {
	raw, _ := v1.get(fieldExtended)
	extended := held[v2alpha1.DIJobStatus](raw)
	var hub object
	unknown := isUnknown[v2alpha1.DIJobStatus]()
	for _, m := range v1 {
		switch m.key {
		case fieldExtended, fieldReplicaStatus:
		case fieldPhase:
			hub = append(hub, member{fieldPhase, phaseToHub(m.value, extended)})
		default:
			if m.key == fieldConditions || unknown(m) {
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

// phaseMark is a prefix, in the hub, of a v1alpha1 phase that is spelled like a phase that v1alpha1
// shows as Created. No program writes such a phase to v1alpha1. The mark keeps even that phase
// distinct, so that the way back restores it.
const phaseMark = "v1alpha1/"

// shownAsCreated reports whether v1alpha1 shows this phase of the hub as Created.
func shownAsCreated(phase string) bool {
	switch v2alpha1.Phase(phase) {
	case v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRestarting, v2alpha1.JobRescheduling:
		return true
	default:
		return false
	}
}

// needsMark reports whether a phase of v1alpha1 would be read as one of the hub's phases, or as a
// phase with the mark.
func needsMark(phase string) bool {
	unmarked := phase
	for strings.HasPrefix(unmarked, phaseMark) {
		unmarked = unmarked[len(phaseMark):]
	}
	return shownAsCreated(unmarked)
}

// phaseFromHub returns the v1alpha1 name of a phase.
func phaseFromHub(phase []byte) []byte {
	word := text(phase)
	if shownAsCreated(word) {
		return quote(string(v1alpha1.JobCreated))
	}
	if unmarked, marked := strings.CutPrefix(word, phaseMark); marked && needsMark(unmarked) {
		return quote(unmarked)
	}
	return phase
}

// phaseToHub returns the hub's phase. It is the phase in extended if v1alpha1 still has the name
// for it. Otherwise Created becomes Pending because the hub has no Created. Any other phase keeps
// its name, with the mark if it needs one.
func phaseToHub(phase []byte, extended object) []byte {
	word := text(phase)
	if kept, ok := extended.get(fieldPhase); ok && text(phaseFromHub(kept)) == word {
		return kept
	}
	if word == string(v1alpha1.JobCreated) {
		return quote(string(v2alpha1.JobPending))
	}
	if needsMark(word) {
		return quote(phaseMark + word)
	}
	return phase
}

// countsFromHub returns a taskStatus as replicaStatus, and whether replicaCountsToHub restores the
// same taskStatus from it.
func countsFromHub(raw []byte, keys statusKeys) ([]byte, bool) {
	tasks, ok := parseObject(raw)
	if !ok {
		return raw, true
	}
	exact := true
	for i, task := range tasks {
		counts, same := replicaStatus(task.value)
		exact = exact && same
		tasks[i] = member{keys.show(task.key), counts}
	}
	return tasks.bytes(), exact
}

// replicaStatus returns the counts by pod phase of one task as v1alpha1 counts them, and whether
// taskStatus restores the same counts from them.
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

// sum adds a count to the active pods counted so far. It returns the count unchanged if it is the
// first.
func sum(counts object, value []byte, before int) []byte {
	if before == 0 {
		return value
	}
	first, _ := counts.get(fieldActive)
	a, _ := strconv.ParseInt(string(first), 10, 32)
	b, _ := strconv.ParseInt(string(value), 10, 32)
	return strconv.AppendInt(nil, max(math.MinInt32, min(math.MaxInt32, a+b)), 10)
}

// countsToHub returns replicaStatus as taskStatus. A role whose counts v1alpha1 has not changed
// keeps the counts in extended.
func countsToHub(v1, extended object, keys statusKeys) ([]byte, bool) {
	replicas, counted := v1.get(fieldReplicaStatus)
	kept, _ := extended.get(fieldTaskStatus)
	return replicaCountsToHub(replicas, kept, keys), counted
}

// sameCounts reports whether two replicaStatus have the same counts. An absent count is zero,
// because typed clients omit zeros when they write.
func sameCounts(a, b []byte) bool {
	countsOfA, okA := decodeCounts(a)
	countsOfB, okB := decodeCounts(b)
	return okA && okB && maps.Equal(countsOfA, countsOfB)
}

func decodeCounts(raw []byte) (map[string]v1alpha1.ReplicaStatus, bool) {
	counts := map[string]v1alpha1.ReplicaStatus{}
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &counts)
	return counts, err == nil
}

// replicaCountsToHub returns a replicaStatus as taskStatus. The kept counts of a task are used if
// the replicaStatus still shows them.
func replicaCountsToHub(raw, kept []byte, keys statusKeys) []byte {
	replicas, ok := parseObject(raw)
	if !ok {
		return raw
	}
	tasks, _ := parseObject(kept)
	index := tasks.index()
	for i, replica := range replicas {
		task := keys.hide(replica.key)
		var counts []byte
		place, known := index[task]
		if known {
			counts = tasks[place].value
		}
		shown, _ := replicaStatus(counts)
		if !known || !sameCounts(object{{task, shown}}.bytes(), object{{task, replica.value}}.bytes()) {
			counts = taskStatus(replica.value)
		}
		replicas[i] = member{task, counts}
	}
	return replicas.bytes()
}

// taskStatus returns the counts of one role by pod phase as the hub counts them. Active pods count
// as running because v1alpha1 does not distinguish them from pending pods.
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

// statusKeys pairs the key of a task in taskStatus with the key of its role in replicaStatus, for
// the tasks that v1alpha1 shows under a role. Every other key is the same in both.
type statusKeys []keyPair

type keyPair struct {
	task, replica string
}

// taskKeys returns the keys for a spec of v1alpha1. A task that the spec shows under a role has its
// own name as key; the other roles use their own names. Only extended can give tasks names that
// differ from their roles.
func taskKeys(v1 object) statusKeys {
	raw, _ := v1.get(fieldExtended)
	extended, _ := parseObject(raw)
	workerLed := isWorkerLed(extended)
	tasks, _ := extended.get(fieldTasks)
	entries, _ := parseArray(tasks)
	keys := make(statusKeys, 0, 4)
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
		keys = keys.with(name, replicaType(role))
	}
	for _, role := range roles() {
		keys = keys.with(role, replicaType(role))
	}
	return keys.with(v2alpha1.AggregatorTaskStatus, string(v1alpha1.ReplicaTypeAggregator))
}

// with adds a pair, unless one of the names is paired already: the first task of a role is the one
// that is shown.
func (k statusKeys) with(task, replica string) statusKeys {
	for _, pair := range k {
		if pair.task == task || pair.replica == replica {
			return k
		}
	}
	if replica == "" {
		return k
	}
	return append(k, keyPair{task, replica})
}

// show returns the key in replicaStatus for a key of taskStatus. Keys stay unique: a name that is
// the key of another task is replaced by that task's name.
func (k statusKeys) show(name string) string {
	if replica, ok := k.replicaOf(name); ok {
		return replica
	}
	for task, ok := k.taskOf(name); ok; task, ok = k.taskOf(name) {
		name = task
	}
	return name
}

// hide is the inverse of show.
func (k statusKeys) hide(name string) string {
	if task, ok := k.taskOf(name); ok {
		return task
	}
	for replica, ok := k.replicaOf(name); ok; replica, ok = k.replicaOf(name) {
		name = replica
	}
	return name
}

func (k statusKeys) replicaOf(task string) (string, bool) {
	for _, pair := range k {
		if pair.task == task {
			return pair.replica, true
		}
	}
	return "", false
}

func (k statusKeys) taskOf(replica string) (string, bool) {
	for _, pair := range k {
		if pair.replica == replica {
			return pair.task, true
		}
	}
	return "", false
}

// replicaType returns the key of a role in replicaStatus, or "" if the name is not a role.
func replicaType(role string) string {
	switch role {
	case string(v2alpha1.TaskTypeCoordinator):
		return string(v1alpha1.ReplicaTypeCoordinator)
	case string(v2alpha1.TaskTypeCollector):
		return string(v1alpha1.ReplicaTypeCollector)
	case string(v2alpha1.TaskTypeLearner):
		return string(v1alpha1.ReplicaTypeLearner)
	}
	return ""
}
