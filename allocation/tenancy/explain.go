// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
)

// mostNamed bounds the tenants that a message names.
const mostNamed = 3

// Explain adds to the messages of a decision what the tenants of jobs have: where a job has less than it wants, or where its
// tenant borrows. A job that gives back what its tenant has borrowed learns to whom.
func Explain(round *allocation.Round, decided map[types.NamespacedName]allocation.Placement, standings []Standing) {
	if len(standings) == 0 {
		return
	}
	for _, job := range round.Jobs {
		placement, isDecided := decided[job.Name]
		own := standingOf(job, round.TenantOf(job), standings)
		if !isDecided || own == nil {
			continue
		}
		if lacks := placement.Reason != allocation.ReasonPlaced; lacks || own.borrows(own.Holds) > 0 {
			placement.Message += "; " + own.text(standings)
		}
		placement.GivesBack = givesBack(round, job, &placement, own, standings)
		decided[job.Name] = placement
	}
}

// standingOf returns the standing of a job's tenant on the first resource that the job requests, nil if it requests none.
func standingOf(job *allocation.Job, tenant string, standings []Standing) *Standing {
	for i := range standings {
		if s := &standings[i]; s.Tenant == tenant && axisOf(job, s.Resource) >= 0 {
			return s
		}
	}
	return nil
}

// axisOf returns the axis of a resource that a job requests, -1 if it does not.
func axisOf(job *allocation.Job, resource corev1.ResourceName) int {
	for task := range job.Tasks {
		pod := job.Tasks[task].Pod
		for axis, name := range pod.Names() {
			if name == resource && pod.Amounts()[axis] > 0 {
				return axis
			}
		}
	}
	return -1
}

// text says what a tenant has, and who lends it more than its own.
func (s *Standing) text(standings []Standing) string {
	holds := fmt.Sprintf("tenant %s holds %s of its %s %s", s.Tenant, figure(s.Holds), figure(s.Entitled), s.Resource)
	borrowed := s.borrows(s.Holds)
	lenders := namesOf(standings, s, func(other *Standing) float64 { return other.Entitled - other.Holds })
	switch {
	case borrowed == 0:
		return holds
	case lenders == "":
		return fmt.Sprintf("%s, %s of them lent", holds, figure(borrowed))
	}
	return fmt.Sprintf("%s, %s of them lent by %s", holds, figure(borrowed), lenders)
}

// givesBack says what a job returns to other tenants, "" for nothing: it has lost replicas, and its tenant had borrowed some.
func givesBack(round *allocation.Round, job *allocation.Job, placement *allocation.Placement, own *Standing, standings []Standing) string {
	axis := axisOf(job, own.Resource)
	lost := held(job, round.Previous[job.Name], axis, anywhere) - held(job, placement.Nodes, axis, anywhere)
	gainers := namesOf(standings, own, func(other *Standing) float64 { return min(other.Holds, other.Entitled) - other.before })
	if lost <= 0 || own.Holds >= own.before || own.borrows(own.before) == 0 || gainers == "" {
		return ""
	}
	return fmt.Sprintf("the job gives back %s %s to %s, which tenant %s had borrowed: %s",
		figure(float64(lost)/scaleOf(own.Resource)), own.Resource, gainers, own.Tenant, placement.Message)
}

// namesOf returns the other tenants of a resource with a positive amount, those of the largest first.
func namesOf(standings []Standing, own *Standing, amount func(*Standing) float64) string {
	var others []*Standing
	for i := range standings {
		if other := &standings[i]; other.Resource == own.Resource && other.Tenant != own.Tenant && amount(other) > 1e-9 {
			others = append(others, other)
		}
	}
	slices.SortStableFunc(others, func(a, b *Standing) int { return cmp.Compare(amount(b), amount(a)) })
	var names []string
	for _, other := range others[:min(len(others), mostNamed)] {
		names = append(names, "tenant "+other.Tenant)
	}
	if more := len(others) - len(names); more > 0 {
		names = append(names, english.Plural(more, "other", ""))
	}
	return english.WordSeries(names, "and")
}

// figure returns an amount with at most one decimal.
func figure(amount float64) string {
	return strconv.FormatFloat(float64(int64(amount*10+0.5))/10, 'f', -1, 64)
}
