// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"slices"
	"strconv"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
	"opendilab.org/di-orchestrator/conversion/importers"
)

// same are the origins of what stays where it is.
func same(path []string) [][]string { return [][]string{path} }

// through follows paths back over moves, those that moved least first.
func through(paths [][]string, moves []importers.Move) [][]string {
	var found [][]string
	for _, path := range paths {
		for _, move := range moves {
			if below, ok := importers.Path(path).Below(move.To); ok {
				found = append(found, move.From.Child(below...))
			}
		}
		found = append(found, path)
	}
	return found
}

// task is what is read of a task to tell which role shows it.
type task struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// view is a job as either version shows its tasks.
type view struct {
	APIVersion string `json:"apiVersion"`
	Spec       struct {
		Tasks    []task `json:"tasks"`
		Extended *struct {
			Tasks     []task  `json:"tasks"`
			Lifecycle *string `json:"lifecycle"`
		} `json:"extended"`
	} `json:"spec"`
}

// read reads what it can: a job may hold anything that its schema allows.
func read(raw []byte) view {
	var v view
	if err := json.Unmarshal(raw, &v); err != nil {
		return view{}
	}
	return v
}

// versionOrigins are the origins of an object that was converted between the
// versions.
func versionOrigins(out, in []byte) manifests.Origins {
	if after := read(out); after.APIVersion == v1alpha1.GroupVersion.String() {
		return origins(movesToV1(read(in)))
	}
	return origins(movesToV2(read(in), read(out)))
}

func origins(moves []importers.Move) manifests.Origins {
	return func(path []string) [][]string { return through([][]string{path}, moves) }
}

// movesToV1 says where the parts of v1alpha1's spec come from: what v1alpha1
// cannot say is in extended, and each role shows a task.
func movesToV1(before view) []importers.Move {
	extended := importers.Path{"spec", "extended"}
	var moves []importers.Move
	for _, role := range []string{"coordinator", "collector", "learner"} {
		if i := taskOf(before.Spec.Tasks, role); i >= 0 {
			moves = append(moves, importers.Move{From: taskPath("spec", i), To: importers.Path{"spec", role}})
		}
	}
	return append(moves,
		importers.Move{From: importers.Path{"spec"}, To: extended},
		importers.Move{From: importers.Path{"status"}, To: importers.Path{"status", "extended"}},
	)
}

// taskOf returns the task that a role shows, -1 if there is none.
func taskOf(tasks []task, role string) int {
	if i := slices.IndexFunc(tasks, func(t task) bool { return t.Type == role }); i >= 0 {
		return i
	}
	if role == "coordinator" && len(tasks) == 1 && tasks[0].Type == "none" {
		return 0
	}
	return -1
}

func taskPath(parent string, i int) importers.Path {
	return importers.Path{parent, "tasks", strconv.Itoa(i)}
}

// movesToV2 says where the parts of v2alpha1's spec come from.
func movesToV2(before, after view) []importers.Move {
	var moves []importers.Move
	for i, t := range after.Spec.Tasks {
		to := taskPath("spec", i)
		role := importers.Move{From: importers.Path{"spec", roleOf(t, len(after.Spec.Tasks))}, To: to}
		listed := importers.Move{From: importers.Path{"spec", "extended", "tasks", strconv.Itoa(i)}, To: to}
		if x := before.Spec.Extended; x != nil && len(x.Tasks) > 0 {
			moves = append(moves, listed)
		}
		moves = append(moves, role)
	}
	return append(moves,
		importers.Move{From: importers.Path{"spec", "extended"}, To: importers.Path{"spec"}},
		importers.Move{From: importers.Path{"status", "extended"}, To: importers.Path{"status"}},
	)
}

// roleOf returns the role that shows a task of so many.
func roleOf(t task, tasks int) string {
	if t.Type == "none" && tasks == 1 {
		return "coordinator"
	}
	return t.Type
}
