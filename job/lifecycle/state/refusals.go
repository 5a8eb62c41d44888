// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// The API server rejects for some time what it rejected once, for example by a quota. So creations
// of that kind back off, twice as long each time. They start again with one object, and the batch
// doubles with each reconcile that succeeds, as the pods of a batch/v1 Job do.
const (
	FirstRefusalDelay   = 5 * time.Second
	LongestRefusalDelay = 5 * time.Minute
)

// Creations are counted by these kinds, and by tasks and roles, whose names have no slash.
const (
	KindServices   = "/services"
	KindConfigMaps = "/configmaps"
	KindSecrets    = "/secrets"
	KindMembership = "/membership"
	KindPodGroups  = "/podgroup"
	KindBudgets    = "/poddisruptionbudget"
)

// Refusal is what the operator remembers about a kind after the API server rejected an object of
// it. The zero value is a kind without rejections.
type Refusal struct {
	// Until is when the next object may be created.
	Until time.Time
	// AtOnce bounds the objects of one reconcile from then on; 0 is no extra bound.
	AtOnce int
	// delay is the last backoff of the kind.
	delay time.Duration
}

// After returns the record after a reconcile, given how many objects of the kind it created and
// whether the API server rejected one. Progress resets the backoff to the first delay.
func (r Refusal) After(created int, refused bool, now time.Time) Refusal {
	switch {
	case refused && created > 0:
		return heldBack(FirstRefusalDelay, now)
	case refused:
		return heldBack(NextRefusalDelay(r.delay), now)
	case created == 0:
		return r
	case 2*r.AtOnce >= createdAtOnce:
		return Refusal{}
	}
	return Refusal{AtOnce: 2 * r.AtOnce, Until: r.Until, delay: r.delay}
}

// NextRefusalDelay returns the backoff after another rejection, given the last one; 0 if
// there was none.
func NextRefusalDelay(last time.Duration) time.Duration {
	return min(max(2*last, FirstRefusalDelay), LongestRefusalDelay)
}

func heldBack(delay time.Duration, now time.Time) Refusal {
	return Refusal{Until: now.Add(delay), AtOnce: 1, delay: delay}
}

// KindOf returns the kind by which the creation of an object is counted. A pod is counted by its
// task or role. A rejection of one kind delays no other.
func KindOf(job *v2alpha1.DIJob, object metav1.Object) string {
	switch object.(type) {
	case *corev1.Pod:
		if IsCoordinatorLed(job) {
			return object.GetLabels()[names.LabelReplicaType]
		}
		return object.GetLabels()[names.LabelTaskName]
	case *corev1.Service:
		return KindServices
	case *corev1.ConfigMap:
		return KindConfigMaps
	case *corev1.Secret:
		return KindSecrets
	case *v2alpha1.Membership:
		return KindMembership
	case *policyv1.PodDisruptionBudget:
		return KindBudgets
	}
	return KindPodGroups
}

// createdAtOnce is the batch size: how many pods of each task or role, and how many services, one
// reconcile of a job creates. Batches of a large job alternate with other jobs, and bound the pods
// in memory.
const createdAtOnce = 64

// MayCreate reports whether one more object of a kind is created now, and counts it.
// Otherwise a later reconcile creates it: the next one or, if the API server rejected
// one of the kind, the first after its backoff.
func (p *Plan) MayCreate(kind string) bool {
	if p.Decision.Lacking == nil {
		p.Decision.Lacking = map[string]int{}
	}
	p.Decision.Lacking[kind]++
	refused := p.in.Refused[kind]
	if left := refused.Until.Sub(p.in.Now); left > 0 {
		p.Decision.HeldBack = true
		p.RequeueAfter(left)
		return false
	}
	if p.creating[kind] >= cmp.Or(refused.AtOnce, createdAtOnce) {
		p.Decision.More = true
		return false
	}
	p.creating[kind]++
	return true
}
