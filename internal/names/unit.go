// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strconv"
	"strings"
)

// Unit is the record of an aggregator's DDP learners in the aggregator's annotations. di-server
// returns their URLs to the aggregator. These must not change while its pod exists, even after the
// member is removed and the DDP learners are gone.
type Unit struct {
	// GPUs are the GPUs of each DDP learner pod, in rank order.
	GPUs []int32
	// Port is the first port that each of the pods serves on.
	Port int32
}

// Annotations returns the annotations that record the unit.
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

// UnitOf returns the unit that the annotations of an aggregator record. It returns false if they do
// not, as in an earlier release.
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
