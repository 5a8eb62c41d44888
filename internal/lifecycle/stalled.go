// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

// namedStalls is how many stalled pods are named.
const namedStalls = 3

// saying is what last words stand behind, in double quotes.
const saying = `, saying "`

// stalledPod is a pod that does not get on, and the most serious reason why.
type stalledPod struct {
	pod *corev1.Pod
	why stall
}

// reportStalled sets the condition that tells which pods do not get on. An
// event tells that it begins or has another reason.
func (p *pass) reportStalled() {
	const condition = v2alpha1.ConditionReplicasStalled
	stalled := p.stalledPods()
	if len(stalled) == 0 {
		clearCondition(p.status(), condition, p.now)
		return
	}
	reason, message := stalled[0].why.reason, describeStalled(stalled)
	isNews := true
	if recorded := findCondition(p.status(), condition); recorded != nil && recorded.Status == corev1.ConditionTrue {
		isNews = recorded.Reason != reason
		if tellsAsMuch(recorded.Message, message) {
			message = recorded.Message
		}
	}
	setCondition(p.status(), condition, corev1.ConditionTrue, reason, message, p.now)
	if isNews {
		p.event(corev1.EventTypeWarning, reason, message)
	}
}

// stalledPods returns the pods of a live job that do not get on, the most
// serious first, and has it looked at again when time alone changes that.
func (p *pass) stalledPods() []stalledPod {
	if IsFinished(p.status()) || IsSuspended(p.Job) {
		return nil
	}
	var stalled []stalledPod
	for _, pod := range p.Pods {
		if p.going[pod] {
			continue
		}
		if why, held := p.stallOf(pod); held {
			if p.ForceDeleteAfter > 0 && why.reason == v2alpha1.ReasonTerminating && len(pod.Finalizers) > 0 {
				why.text += ", which deletion by force does not take off"
			}
			stalled = append(stalled, stalledPod{pod, why})
		}
	}
	slices.SortFunc(stalled, func(a, b stalledPod) int {
		return cmp.Or(cmp.Compare(a.why.rank(), b.why.rank()), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	return stalled
}

// stallOf returns the most serious stall of a pod that holds now.
func (p *pass) stallOf(pod *corev1.Pod) (stall, bool) {
	var worst stall
	found := false
	for _, each := range stallsOf(pod) {
		held, changes := each.holds(p.Now)
		if changes > 0 {
			p.requeueAfter(changes)
		}
		if held && !found {
			worst, found = each, true
		}
	}
	return worst, found
}

// isCrashing tells whether a pod crashes again and again, also while it runs
// in between.
func (p *pass) isCrashing(pod *corev1.Pod) bool {
	worst, held := p.stallOf(pod)
	return held && worst.reason == v2alpha1.ReasonCrashLoop
}

// describeStalled names the first few pods with their roles and what is wrong.
func describeStalled(stalled []stalledPod) string {
	var texts []string
	for i := range stalled[:min(len(stalled), namedStalls)] {
		texts = append(texts, stalled[i].describe())
	}
	message := strings.Join(texts, "; ")
	if more := len(stalled) - namedStalls; more > 0 {
		message += "; and " + roughly(more)
	}
	return message
}

func (s *stalledPod) describe() string {
	role := cmp.Or(string(membership.RoleOf(s.pod)), s.pod.Labels[names.LabelTaskName])
	text := fmt.Sprintf("%s (%s): %s", s.pod.Name, role, s.why.text)
	if s.why.lastWords != "" {
		text += saying + s.why.lastWords + `"`
	}
	return text
}

// roughly tells large numbers in steps, as many pods do not come up at once.
func roughly(pods int) string {
	switch {
	case pods == 1:
		return "1 more pod"
	case pods < 10:
		return fmt.Sprintf("%d more pods", pods)
	}
	return fmt.Sprintf("%d+ more pods", stepBelow(int32(pods)))
}

// tellsAsMuch tells whether a recorded message says the same as another one but
// for last words, and has as many of those: words that differ at each try, or
// that the kubelet leaves out at the next one, are not worth a write.
func tellsAsMuch(recorded, message string) bool {
	return withoutLastWords(recorded) == withoutLastWords(message) &&
		strings.Count(recorded, saying) >= strings.Count(message, saying)
}

// withoutLastWords cuts last words out of a message. They hold no double quotes.
func withoutLastWords(message string) string {
	var kept strings.Builder
	for {
		before, rest, found := strings.Cut(message, saying)
		kept.WriteString(before)
		if !found {
			return kept.String()
		}
		_, message, _ = strings.Cut(rest, `"`)
	}
}
