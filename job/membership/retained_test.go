// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"slices"
	"testing"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// world is a job's list with the status that the operator recorded.
type world struct {
	t      *testing.T
	spec   *v2alpha1.MembershipSpec
	status v2alpha1.MembershipStatus
}

// lose records a loss of the only pod.
func (w *world) lose() {
	slot := w.spec.Members[0].Slot
	lost := membership.Losses(&w.status, slot) + 1
	w.status.Slots = []v2alpha1.SlotStatus{{Slot: slot, Losses: lost}}
}

func (w *world) current() string {
	member := &w.spec.Members[0]
	return membership.PodName(job, member, membership.Losses(&w.status, member.Slot))
}

func (w *world) report(pods ...string) []v2alpha1.Member {
	w.t.Helper()
	return w.apply(membership.Replace{Job: job, Pods: pods})
}

// apply applies an edit, and returns the members in its answer.
func (w *world) apply(edit membership.Edit) []v2alpha1.Member {
	w.t.Helper()
	answer, err := edit.Apply(w.spec, &w.status)
	expect.NoError(w.t, err)
	return answer.Members
}

func (w *world) wantCollectors(pods ...string) {
	w.t.Helper()
	want := make([]string, len(pods))
	for i, pod := range pods {
		want[i] = pod + ".default:22270"
	}
	expect.Equal(w.t, "collectors", want, place().Listed(w.spec, &w.status).Collectors)
}

func aCollector(t *testing.T) *world {
	t.Helper()
	return &world{t: t, spec: members(t, "c")}
}

func TestALostPodStaysListedBesideItsReplacementUntilItIsReported(t *testing.T) {
	w := aCollector(t)
	first := w.current()
	w.lose()
	second := w.current()
	w.lose()
	third := w.current()
	w.wantCollectors(first, second, third)

	if replaced := w.report(second); len(replaced) != 1 || w.current() != third {
		t.Errorf("a report of a lost pod replaces %v, and %s is now %s", replaced, w.current(), third)
	}
	w.wantCollectors(first, third)
	if replaced := w.report(second); replaced != nil {
		t.Errorf("the same report again replaces %v", replaced)
	}
	w.report(third)
	fourth := w.current()
	if fourth == third {
		t.Error("a reported pod keeps its name")
	}
	w.wantCollectors(first, fourth)
	w.report(first)
	w.wantCollectors(fourth)
	if member := w.spec.Members[0]; member.AdvertisedFrom != 3 || member.Withdrawn != nil {
		t.Errorf("the record is not as short as it can be: %+v", member)
	}
}

func TestALostPodStaysListedAfterItsMemberWasRemoved(t *testing.T) {
	w := aCollector(t)
	first := w.current()
	w.lose()
	w.apply(membership.Shrink{Job: job, Collectors: 1})
	w.wantCollectors(first)
	if replaced := w.report(first); replaced != nil {
		t.Errorf("the report replaces %v, want nothing", replaced)
	}
	w.wantCollectors()
}

func TestANewCoordinatorIsNotToldOfWhatWasLostBefore(t *testing.T) {
	w := &world{t: t, spec: members(t, "cc")}
	w.lose()
	survivor := w.current()
	w.apply(membership.Shrink{Job: job, Collectors: 1})
	w.lose()
	w.report(w.current())
	w.spec.CoordinatorInstance = "uid/0"
	w.apply(membership.Grow{Job: job, Coordinator: "uid/1", MaxMembers: membership.MaxMembers})
	if w.current() == survivor {
		t.Fatal("nothing was replaced")
	}
	w.wantCollectors(w.current())
}

func TestALostUnitIsListedByItsAggregator(t *testing.T) {
	w := &world{t: t, spec: members(t, "u")}
	first := w.current()
	w.lose()
	want := []string{first + ".default:22272", w.current() + ".default:22272"}
	expect.Equal(t, "learners", want, place().Listed(w.spec, &w.status).Learners)
	w.report(membership.DDPPodName(job, first, 0))
	expect.Equal(t, "learners after a report of a DDP learner that went with its unit", want, place().Listed(w.spec, &w.status).Learners)
}

func TestTheURLOfALostPodKeepsThePortThatItServedOn(t *testing.T) {
	w := aCollector(t)
	first := w.current()
	var ports []v2alpha1.SlotPort
	for incarnation, port := range []int32{1000, 1000, 2000} {
		ports = membership.RecordPort(ports, int32(incarnation), port)
	}
	expect.Equal(t, "recorded", []v2alpha1.SlotPort{{From: 0, Port: 1000}, {From: 2, Port: 2000}}, ports)
	lose := func() string {
		lost := w.current()
		w.lose()
		w.status.Slots[0].Ports = ports
		return lost
	}
	lose()
	second, third := lose(), lose()
	want := []string{first + ".default:1000", second + ".default:1000", third + ".default:2000", w.current() + ".default:22270"}
	expect.Equal(t, "of a member", want, place().Listed(w.spec, &w.status).Collectors)
	w.apply(membership.Shrink{Job: job, Collectors: 1})
	w.status.Slots = nil
	expect.Equal(t, "of one that is removed", want[:3], place().Listed(w.spec, &w.status).Collectors)
}

// rivals returns two collectors whose first replacements have one name.
func rivals(t *testing.T) *v2alpha1.MembershipSpec {
	t.Helper()
	earlier := map[string]v2alpha1.Member{}
	for i := range 1_000_000 {
		suffix := fmt.Sprintf("%05x", i)
		member := v2alpha1.Member{Slot: "collector-" + suffix, Task: collector, PodName: job + "-collector-" + suffix}
		next := membership.PodName(job, &member, 1)
		if rival, found := earlier[next]; found {
			return &v2alpha1.MembershipSpec{Members: []v2alpha1.Member{rival, member}}
		}
		earlier[next] = member
	}
	t.Fatal("no two collectors have one name")
	return nil
}

func TestMembersThatAreReportedNeverGetOneName(t *testing.T) {
	spec := rivals(t)
	shared := membership.PodName(job, &spec.Members[0], 1)
	for how, reports := range map[string][][]string{
		"at once":              {{spec.Members[0].PodName, spec.Members[1].PodName}},
		"one after the other":  {{spec.Members[0].PodName}, {spec.Members[1].PodName}},
		"the other way around": {{spec.Members[1].PodName}, {spec.Members[0].PodName}},
	} {
		t.Run(how, func(t *testing.T) {
			w := &world{t: t, spec: spec.DeepCopy()}
			for _, pods := range reports {
				w.report(pods...)
			}
			first, second := w.spec.Members[0], w.spec.Members[1]
			names := []string{membership.PodName(job, &first, 0), membership.PodName(job, &second, 0)}
			if names[0] == names[1] || !slices.Contains(names, shared) {
				t.Errorf("the replacements are %v, want %s among them", names, shared)
			}
			w.wantCollectors(names...)
		})
	}
}

func TestANameThatTwoMembersHaveIsListedOnce(t *testing.T) {
	spec := rivals(t)
	for i := range spec.Members {
		spec.Members[i].FailureReports, spec.Members[i].AdvertisedFrom = 1, 1
	}
	w := &world{t: t, spec: spec}
	w.wantCollectors(w.current())
}
