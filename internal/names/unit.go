// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strconv"
	"strings"
)

// Unit is what an aggregator remembers of its DDP learners in its pod's
// annotations. What it is told of them must not change while it lives, though
// it is taken off the list of replicas, and its DDP learners are gone.
type Unit struct {
	// GPUs are those of each DDP learner pod, in rank order.
	GPUs []int32
	// Port is the first that each of the pods serves on.
	Port int32
}

// Annotations returns the annotations that tell of the unit.
func (u Unit) Annotations() map[string]string {
	gpus := make([]string, len(u.GPUs))
	for i, count := range u.GPUs {
		gpus[i] = strconv.Itoa(int(count))
	}
	return map[string]string{
		AnnotationDDPGPUs: strings.Join(gpus, ","),
		AnnotationDDPPort: strconv.Itoa(int(u.Port)),
	}
}

// UnitOf returns the unit that the annotations of an aggregator tell of; false
// where they do not, as those of an earlier release's.
func UnitOf(annotations map[string]string) (Unit, bool) {
	port, err := strconv.ParseUint(annotations[AnnotationDDPPort], 10, 16)
	if err != nil {
		return Unit{}, false
	}
	unit := Unit{Port: int32(port)}
	for text := range strings.SplitSeq(annotations[AnnotationDDPGPUs], ",") {
		count, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return Unit{}, false
		}
		unit.GPUs = append(unit.GPUs, int32(count))
	}
	return unit, true
}
