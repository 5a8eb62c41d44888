// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// StateFrom returns the state that a job's status has, so that a new leader continues with it.
func StateFrom(status *v2alpha1.RatioStatus) State {
	if status == nil {
		return State{}
	}
	return State{
		Integral:         float64(status.Integral),
		Correction:       float64(status.Correction) / 1000,
		DecidedAt:        timeOf(status.DecidedAt),
		GrownAt:          timeOf(status.GrownAt),
		ShrunkAt:         timeOf(status.ShrunkAt),
		StartDelay:       time.Duration(min(max(status.StartDelayMilliseconds, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond,
		ProducerCapacity: float64(status.ProducerCapacity) / 1000,
		ConsumerCapacity: float64(status.ConsumerCapacity) / 1000,
	}
}

// Status returns what a job's status has of a decision. The settings and the measurement are those
// of the decision.
func (d Decision) Status(settings Settings, measured Measurement) *v2alpha1.RatioStatus {
	status := &v2alpha1.RatioStatus{
		DecidedAt:              microTime(d.Next.DecidedAt),
		ProducerCapacity:       integer(1000 * d.Next.ProducerCapacity),
		ConsumerCapacity:       integer(1000 * d.Next.ConsumerCapacity),
		Queue:                  max(integer(measured.Queue), 0),
		TargetQueue:            integer(d.TargetQueue),
		Integral:               integer(d.Next.Integral),
		StartDelayMilliseconds: d.Next.StartDelay.Milliseconds(),
		Starved:                int32(math.Round(1000 * share(measured.Starved))),
		Blocked:                int32(math.Round(1000 * share(measured.Blocked))),
		Desired:                d.Desired,
		Replicas:               make(map[string]int32, len(d.Pools)),
		GrownAt:                microTime(d.Next.GrownAt),
		ShrunkAt:               microTime(d.Next.ShrunkAt),
		Reason:                 d.Reason,
		Message:                d.Message,
	}
	if correction := d.Next.Correction; correction != 1 {
		status.Correction = int32(math.Round(1000 * correction))
	}
	for i, count := range d.Pools {
		status.Replicas[settings.Pools[i].Task] = count
	}
	return status
}

// checked returns the state without numbers and times that cannot be.
func (s State) checked(now time.Time) State {
	if math.IsNaN(s.Integral) || math.IsInf(s.Integral, 0) {
		s.Integral = 0
	}
	// A clock that was set back must not delay resizes for longer than a fresh resize would.
	for _, at := range []*time.Time{&s.DecidedAt, &s.GrownAt, &s.ShrunkAt, &s.OffSince} {
		if at.After(now) {
			*at = now
		}
	}
	if !isPositive(s.Correction) {
		s.Correction = 1
	}
	s.Correction = min(max(s.Correction, 1/maxCorrection), maxCorrection)
	s.StartDelay = max(s.StartDelay, 0)
	return s
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t}
}

// integer rounds a number to one that the API has; what is no number is 0.
func integer(x float64) int64 {
	const most = 1 << 53 // larger integers do not survive all clients
	switch {
	case math.IsNaN(x):
		return 0
	default:
		return int64(math.Round(min(max(x, -most), most)))
	}
}
