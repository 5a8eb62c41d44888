// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/podstate"
)

// digestSize is the number of characters that identify a pod in a list, among the pods of a job.
const digestSize = 6

// List answers which pods a published membership lists. The zero value lists none.
type List struct {
	active ranks.Set
	// pods are the digests of the listed pods by rank. They are nil for the list of an earlier operator, which
	// lists all pods of the active ranks. rankOf are the ranks by digest.
	pods   map[int32]string
	rankOf map[string]int32
}

// ReadList reads which pods a published membership lists.
func ReadList(published *v2alpha1.PublishedMembership) List {
	list := List{active: ranks.Read(published.Active)}
	run := ranks.ReadRun(published.Active)
	if published.PodsVersion != published.Version || len(published.Pods) != digestSize*len(run) {
		return list
	}
	list.pods, list.rankOf = make(map[int32]string, len(run)), make(map[string]int32, len(run))
	for i, rank := range run {
		digest := published.Pods[i*digestSize : (i+1)*digestSize]
		list.pods[rank], list.rankOf[digest] = digest, rank
	}
	return list
}

// Has reports whether the list means a pod, and not another one of its rank. No clock matters: that of the
// API server, which created the pod, differs from the operator's.
func (l *List) Has(pod *corev1.Pod) bool {
	rank := podstate.Rank(pod)
	return l.active.Has(rank) && (l.pods == nil || l.pods[rank] == digestOf(pod.UID))
}

// RankOf returns the rank at which the list means a pod; false if it lists none by its UID.
func (l *List) RankOf(pod *corev1.Pod) (int32, bool) {
	if len(l.rankOf) == 0 {
		return 0, false
	}
	rank, isListed := l.rankOf[digestOf(pod.UID)]
	return rank, isListed
}

// digestOf returns what identifies a pod in a list.
func digestOf(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:digestSize]
}

// setMembers lists members by rank.
func setMembers(published *v2alpha1.PublishedMembership, members map[int32]*corev1.Pod) {
	active := make(map[int32]bool, len(members))
	for rank := range members {
		active[rank] = true
	}
	published.Active = ranks.Format(active)
	var pods strings.Builder
	for _, rank := range ranks.ReadRun(published.Active) {
		pods.WriteString(digestOf(members[rank].UID))
	}
	published.Pods = pods.String()
}
