// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Excess is a count in a job's spec that exceeds its maximum.
type Excess struct {
	// Task is the index of the task with the count; -1 if the field belongs to the spec.
	Task int
	// Field is the field of that task, or the path of the field in the spec.
	Field []string
	// Value is the count.
	Value int64
	// Want describes a valid count.
	Want string
}

// String returns the message of the excess with v2alpha1's paths.
func (e Excess) String() string {
	path := "spec"
	if e.Task >= 0 {
		path = fmt.Sprintf("spec.tasks[%d]", e.Task)
	}
	return fmt.Sprintf("%s.%s: %d: %s", path, strings.Join(e.Field, "."), e.Value, e.Want)
}

// Total returns the sum of counts of replicas. Negative counts, which may be stored, count as 0, so they
// do not conceal other counts.
func Total(counts ...int32) int64 {
	var total int64
	for _, count := range counts {
		total += int64(max(count, 0))
	}
	return total
}

// Sum adds two counts and clamps the sum to the maximum of int32.
func Sum(a, b int32) int32 {
	return int32(min(Total(a, b), Seconds))
}

// CheckCounts returns the counts in a worker-led job's spec that give the job more pods than most, now or
// after a resize. It returns nothing for a coordinator-led job.
func CheckCounts(spec *v2alpha1.DIJobSpec, most int32) []Excess {
	if spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return nil
	}
	counts := make([]int32, len(spec.Tasks))
	var found []Excess
	for i := range spec.Tasks {
		counts[i] = replicasOf(&spec.Tasks[i])
		if counts[i] > most {
			found = append(found, Excess{Task: i, Field: []string{"replicas"}, Value: int64(counts[i]), Want: wantOne(most)})
		}
	}
	elastic := names.ElasticTask(spec)
	if spec.Elastic == nil || elastic < 0 {
		return append(found, checkTotal(found, counts, most)...)
	}
	if wanted := spec.Elastic.Replicas; wanted != nil {
		if *wanted > most && *wanted != counts[elastic] {
			found = append(found, Excess{Task: -1, Field: []string{"elastic", "replicas"}, Value: int64(*wanted), Want: wantOne(most)})
		}
		counts[elastic] = *wanted
	}
	found = append(found, checkTotal(found, counts, most)...)
	counts[elastic] = 0
	return append(found, checkBounds(spec.Elastic, Total(counts...), most)...)
}

// checkTotal checks the total of all tasks if each task is within the maximum.
func checkTotal(found []Excess, counts []int32, most int32) []Excess {
	if total := Total(counts...); len(found) == 0 && total > int64(most) {
		return []Excess{{Task: -1, Field: []string{"tasks"}, Value: total,
			Want: fmt.Sprintf("the replicas of all tasks together must be at most %d, the maximum number of pods of a job here", most)}}
	}
	return nil
}

// checkBounds checks the bounds of the elastic task together with the other tasks.
func checkBounds(elastic *v2alpha1.Elastic, others int64, most int32) []Excess {
	room, want := int64(most)-others, wantOne(most)
	switch {
	case room < 0:
		// The other tasks alone exceed the maximum, which is reported elsewhere.
		room = int64(most)
	case others > 0:
		want = fmt.Sprintf("must be at most %d, which with the %d %s of the other tasks is the maximum number of pods of a job here",
			room, others, english.PluralWord(int(others), "replica", ""))
	}
	var found []Excess
	check := func(field string, bound *int32) {
		if bound != nil && int64(*bound) > room {
			found = append(found, Excess{Task: -1, Field: []string{"elastic", field}, Value: int64(*bound), Want: want})
		}
	}
	check("minReplicas", elastic.MinReplicas)
	check("maxReplicas", elastic.MaxReplicas)
	return found
}

func wantOne(most int32) string {
	return fmt.Sprintf("must be at most %d, the maximum number of pods of a job here", most)
}

func replicasOf(task *v2alpha1.Task) int32 {
	if task.Replicas != nil {
		return *task.Replicas
	}
	return 1
}
