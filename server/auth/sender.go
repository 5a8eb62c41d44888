// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/server/store"
)

// evidence is the means by which a sender was authenticated.
type evidence string

const (
	byToken   evidence = "token"
	byAddress evidence = "address"
	byNode    evidence = "node"
	byNothing evidence = "none"
)

// Sender is the pod or user that sent a request.
type Sender struct {
	by evidence
	// pod is the pod that sent the request; nil for any other sender.
	pod *corev1.Pod
	// sharing are the pods of jobs that share the sender's address with their node. One of them may have sent
	// the request.
	sharing []*corev1.Pod
	// user is the user of the token; nil without a token.
	user *authenticationv1.UserInfo
	// address is the remote address of the request.
	address string
}

// Identity returns the evidence of the sender's identity: token, address, node or none.
func (s *Sender) Identity() string {
	return string(s.by)
}

// Pod returns the pod that sent the request; nil for any other sender.
func (s *Sender) Pod() *corev1.Pod {
	return s.pod
}

// NameIn returns the name of the sender's pod if it is, or may be, the named one; "" otherwise. Without a
// name it is the pod that certainly sent the request.
func (s *Sender) NameIn(name string) string {
	if s.pod != nil && (name == "" || name == s.pod.Name) {
		return s.pod.Name
	}
	if name != "" && s.pod == nil && slices.ContainsFunc(s.sharing, func(pod *corev1.Pod) bool { return pod.Name == name }) {
		return name
	}
	return ""
}

// HasToken reports whether a token identifies the sender. Deployed clients of earlier releases send none.
func (s *Sender) HasToken() bool {
	return s.by == byToken
}

// IsUnknown reports whether nothing identifies the sender.
func (s *Sender) IsUnknown() bool {
	return s.pod == nil && s.user == nil && len(s.sharing) == 0
}

// IsKnown reports whether the sender is one certain pod or a user.
func (s *Sender) IsKnown() bool {
	return s.pod != nil || s.user != nil
}

// pods returns the pods that the sender may be.
func (s *Sender) pods() []*corev1.Pod {
	if s.pod != nil {
		return []*corev1.Pod{s.pod}
	}
	return s.sharing
}

// isOf reports whether the sender is, or may be, a pod of a job.
func (s *Sender) isOf(job *v2alpha1.DIJob) bool {
	return slices.ContainsFunc(s.pods(), func(pod *corev1.Pod) bool { return store.OwnedBy(pod, job) })
}

// Account returns the key of the sender's rate limits. All pods of a job share one key, so a large job gets no
// more than a small one.
func (s *Sender) Account() string {
	if s.pod != nil {
		if owner := store.JobOwner(s.pod); owner != nil {
			return "job/" + string(owner.UID)
		}
	}
	if s.user != nil {
		return "user/" + s.user.Username
	}
	return netlimit.Host(s.address)
}

// String returns the sender's name for the log.
func (s *Sender) String() string {
	switch {
	case s.pod != nil:
		return fmt.Sprintf("pod %s/%s", s.pod.Namespace, s.pod.Name)
	case s.user != nil:
		return s.user.Username
	}
	return s.address
}

// resolve identifies the sender from the pods with its address. A pod that does not share the address is the
// sender. If pods of jobs share the address of their node, each of them may be the sender. If two pods claim
// an unshared address, it identifies neither.
func (s *Sender) resolve(pods []*corev1.Pod, strict bool) {
	var own, sharing []*corev1.Pod
	for _, pod := range pods {
		if pod.Spec.HostNetwork {
			sharing = append(sharing, pod)
		} else {
			own = append(own, pod)
		}
	}
	switch {
	case len(own) == 1:
		s.by, s.pod = byAddress, own[0]
	case len(own) == 0 && len(sharing) > 0 && !strict:
		s.by, s.sharing = byNode, sharing
	}
}
