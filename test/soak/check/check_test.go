// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const jobUID = "job-uid"

// story is a history that a test tells, one second after the other.
type story struct {
	now     time.Time
	entries []history.Entry
}

func newStory() *story { return &story{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (s *story) add(entry history.Entry) *story {
	s.now = s.now.Add(time.Second)
	entry.Time = s.now
	s.entries = append(s.entries, entry)
	return s
}

// later lets time pass in which nothing happens.
func (s *story) later(pause time.Duration) *story {
	s.now = s.now.Add(pause)
	return s
}

func (s *story) change(change history.Change) *story {
	change.Revision = int64(len(s.entries) + 1)
	return s.add(history.Entry{Change: &change})
}

// workers stores a worker-led job of one task that the operator has observed.
func (s *story) workers(generation int64, replicas int, edit ...func(*history.JobState)) *story {
	state := &history.JobState{
		Tasks: []history.TaskState{{Name: "worker", Replicas: replicas}}, Elastic: "worker", ElasticReplicas: replicas,
		Generation: generation, Observed: generation, Total: replicas, LastTotal: replicas, Phase: "Running",
	}
	for _, each := range edit {
		each(state)
	}
	return s.change(history.Change{Kind: history.Job, Namespace: "n", Name: "job", UID: jobUID, Job: state})
}

// led stores a coordinator-led job and its Membership.
func (s *story) led(members ...history.Member) *story {
	s.change(history.Change{Kind: history.Job, Namespace: "n", Name: "job", UID: jobUID, Job: &history.JobState{
		CoordinatorLed: true, Tasks: []history.TaskState{{Name: "coordinator", Replicas: 1}}, Generation: 1, Observed: 1, Phase: "Running",
	}})
	return s.members(members...)
}

func (s *story) members(members ...history.Member) *story {
	return s.change(history.Change{
		Kind: history.Membership, Name: "job", UID: "m", Owner: jobUID, Membership: &history.MembershipState{Members: members},
	})
}

// pod stores a ready pod of the job.
func (s *story) pod(uid, task, member string, edit ...func(*history.Change)) *story {
	change := history.Change{
		Kind: history.Pod, Namespace: "n", Name: "job-" + task + "-" + member, UID: uid, Owner: jobUID,
		Pod: &history.PodState{Task: task, Member: member, Attempt: "0//", Phase: "Running", Ready: true},
	}
	for _, each := range edit {
		each(&change)
	}
	return s.change(change)
}

func deleting(change *history.Change) { change.Deleting = true }
func removedNow(change *history.Change) {
	change.Gone = true
}
func failing(change *history.Change)       { change.Pod.Phase, change.Pod.Ready = "Failed", false }
func drains(state *history.JobState)       { state.Tasks[0].Drain = true }
func finished(state *history.JobState)     { state.Phase = "Succeeded" }
func restartedOne(state *history.JobState) { state.Restarts = 1 }

func (s *story) fault(kind string, begin, end time.Time) *story {
	return s.add(history.Entry{Fault: &history.Fault{Kind: kind, Target: "operator-0", Begin: begin, End: end}})
}

func (s *story) read(pod string, version int64, active, leaving []string) *story {
	return s.add(history.Entry{Read: &history.Read{Job: jobUID, Pod: pod, Version: version, Active: active, Leaving: leaving}})
}

func (s *story) ack(pod string, version int) *story {
	return s.add(history.Entry{Call: &history.Call{Operation: history.Ack, Job: jobUID, Pod: pod, Number: version, Begin: s.now}})
}

// call is answered half a second after it was sent.
func (s *story) call(call history.Call) *story {
	call.Job, call.Begin, call.End = jobUID, s.now, s.now.Add(time.Second/2)
	return s.add(history.Entry{Call: &call})
}

// quiet has a quiet window of ten seconds.
func (s *story) quiet() *story {
	begin := s.now
	s.add(history.Entry{Quiet: &history.Quiet{Begin: begin}})
	s.later(10 * time.Second)
	return s.add(history.Entry{Quiet: &history.Quiet{Begin: begin, End: s.now}})
}

func (s *story) check() []Violation {
	checker := New()
	for i := range s.entries {
		checker.See(&s.entries[i])
	}
	return checker.Finish()
}

// holds expects that the history keeps all promises.
func (s *story) holds(t *testing.T) {
	t.Helper()
	for _, violation := range s.check() {
		t.Errorf("%s", &violation)
	}
}

// breaks expects that the history breaks one promise, and that the violation names what happened.
func (s *story) breaks(t *testing.T, promise property, tells ...string) {
	t.Helper()
	found := s.check()
	if len(found) != 1 || found[0].Property != promise.name() {
		t.Fatalf("found %v, want one violation of %q", found, promise.name())
	}
	for _, part := range tells {
		if !strings.Contains(found[0].Story, part) {
			t.Errorf("the story is %q, want it to tell %q", found[0].Story, part)
		}
	}
}

func TestAJobThatGrowsAndShrinksKeepsItsPromises(t *testing.T) {
	newStory().
		workers(1, 1).pod("a", "worker", "0").
		later(time.Hour).
		workers(2, 2).pod("b", "worker", "1").
		later(time.Hour).
		workers(3, 1).pod("b", "worker", "1", deleting).pod("b", "worker", "1", removedNow).
		quiet().
		holds(t)
}

func TestTwoLivingPodsOfAReplicaAreFound(t *testing.T) {
	newStory().workers(1, 2).pod("a", "worker", "0").pod("b", "worker", "0").
		breaks(t, unique{}, "worker 0", "(a)", "(b)")
}

func TestAReplacementOfAPodThatEndsIsNoSecondOne(t *testing.T) {
	newStory().workers(1, 1).pod("a", "worker", "0").
		add(history.Entry{Cause: &history.Cause{What: "a stranger deletes the pod", Pod: "a"}}).
		pod("a", "worker", "0", deleting).pod("b", "worker", "0").
		holds(t)
}

func TestAPodThatItsCoordinatorReportedMayLiveBesideItsReplacement(t *testing.T) {
	newStory().workers(1, 1).pod("a", "worker", "0").
		add(history.Entry{Cause: &history.Cause{What: "its coordinator reports the pod failed", Pod: "a", Replaced: true}}).
		later(time.Hour).workers(2, 2).pod("b", "worker", "0").
		holds(t)
}

func TestAPodThatItsCoordinatorReportedByItsNameMayLiveBesideItsReplacement(t *testing.T) {
	early := func(change *history.Change) { change.Name = "early" }
	newStory().workers(1, 1).pod("a", "worker", "0", early).
		add(history.Entry{Cause: &history.Cause{What: "its coordinator reports the pod failed", Job: jobUID, Name: "early", Replaced: true}}).
		later(time.Hour).workers(2, 2).pod("b", "worker", "0").
		holds(t)
}

func TestAPodThatItsCoordinatorReportedBeforeItWasCreatedMayLiveBesideItsReplacement(t *testing.T) {
	early := func(change *history.Change) { change.Name = "early" }
	newStory().workers(1, 1).
		add(history.Entry{Cause: &history.Cause{What: "its coordinator reports the pod failed", Job: jobUID, Name: "early", Replaced: true}}).
		pod("a", "worker", "0", early).later(time.Hour).workers(2, 2).pod("b", "worker", "0").
		holds(t)
}

func TestAPodBeyondTheDesiredNumberIsFound(t *testing.T) {
	newStory().workers(1, 1).later(time.Hour).workers(2, 1).pod("a", "worker", "0").pod("b", "worker", "1").
		breaks(t, bounded{}, "(b)", "more than 1")
}

func TestAPodOfASuspendedJobIsFound(t *testing.T) {
	newStory().workers(1, 1, func(state *history.JobState) { state.Suspended = true }).pod("a", "worker", "0").
		breaks(t, bounded{}, "(a)", "more than 0")
}

func TestAPodThatTheLastObservedStateAskedForIsRight(t *testing.T) {
	unobserved := func(state *history.JobState) { state.Observed = 1 }
	newStory().workers(1, 2).pod("a", "worker", "0").later(time.Hour).workers(2, 1, unobserved).pod("b", "worker", "1").
		holds(t)
}

func TestAnOperatorThatWasPausedMayActOnWhatItKnew(t *testing.T) {
	s := newStory().workers(1, 2).pod("a", "worker", "0").later(time.Hour)
	begin := s.now
	s.fault("pause", begin, time.Time{}).later(time.Minute).workers(2, 1).later(time.Minute)
	s.fault("pause", begin, s.now).pod("b", "worker", "1").holds(t)
}

func TestAPodOfASlotThatIsNotDesiredIsFound(t *testing.T) {
	member := history.Member{Slot: "s", Task: "collector", Pods: 1}
	newStory().led(member).pod("c", "coordinator", "coordinator").pod("a", "collector", "s").
		later(time.Hour).members().later(time.Hour).members().pod("b", "collector", "t").
		breaks(t, bounded{}, "1. pod of slot t")
}

func TestALearnerBeyondThoseOfItsUnitIsFound(t *testing.T) {
	inUnit := func(change *history.Change) { change.Pod.Unit = "a" }
	unit := func() *story {
		return newStory().led(history.Member{Slot: "s", Task: "learner", Pods: 2}).pod("c", "coordinator", "coordinator").
			pod("a", "aggregator", "s").pod("l", "ddp-learner", "l", inUnit)
	}
	unit().quiet().holds(t)
	unit().pod("m", "ddp-learner", "m", inUnit).breaks(t, bounded{}, "(m)", "the 3. pod of slot s")
}

func TestADeletionWithoutACauseIsFound(t *testing.T) {
	newStory().workers(1, 1).later(time.Hour).pod("a", "worker", "0").later(time.Hour).pod("a", "worker", "0", deleting).
		breaks(t, caused{}, "(a)")
}

func TestARestartWithoutACauseIsFound(t *testing.T) {
	newStory().workers(1, 1).pod("a", "worker", "0").later(time.Hour).workers(1, 1, restartedOne).
		breaks(t, caused{}, "1 restarts")
}

func TestARestartAfterFaultsThatKeptTheOperatorsFromTheFailureIsRight(t *testing.T) {
	after := func(pause time.Duration) *story {
		s := newStory().workers(1, 1).pod("a", "worker", "0").later(time.Hour).pod("a", "worker", "0", failing).pod("a", "worker", "0", failing, removedNow)
		for range 10 {
			begin := s.later(pause).now
			s.fault("kill", begin, begin.Add(5*time.Second))
		}
		return s.workers(1, 1, restartedOne)
	}
	after(15 * time.Second).holds(t)
	after(time.Minute).breaks(t, caused{}, "1 restarts")
}

func TestARestartLongAfterAFailureThatNothingHasHandledIsRight(t *testing.T) {
	failed := func() *story {
		return newStory().workers(1, 2).pod("a", "worker", "0").pod("b", "worker", "1").later(time.Hour).pod("a", "worker", "0", failing).later(time.Hour)
	}
	failed().workers(1, 2, restartedOne).holds(t)
	failed().workers(1, 2, restartedOne).later(time.Hour).workers(1, 2, func(state *history.JobState) { state.Restarts = 2 }).
		breaks(t, caused{}, "2 restarts")
}

func TestARestartAfterAFailureIsRight(t *testing.T) {
	newStory().workers(1, 2).pod("a", "worker", "0").pod("b", "worker", "1").later(time.Hour).
		pod("a", "worker", "0", failing).workers(1, 2, restartedOne).pod("b", "worker", "1", deleting).
		holds(t)
}

// shrinking is a job with state whose second member leaves in version 2, which both members have read.
func shrinking() *story {
	both := []string{"job-worker-0", "job-worker-1"}
	return newStory().workers(1, 2, drains).pod("a", "worker", "0").pod("b", "worker", "1").
		read("a", 1, both, nil).read("b", 1, both, nil).
		workers(2, 1, drains).
		read("a", 2, both[:1], both[1:]).read("b", 2, both[:1], both[1:])
}

func TestADrainWithoutAllAcknowledgementsIsFound(t *testing.T) {
	shrinking().ack("b", 2).pod("b", "worker", "1", deleting).breaks(t, &drained{}, "(b) is deleted", "job-worker-0 (a)")
}

func TestAnAcknowledgementOfAnEarlierListIsNotEnough(t *testing.T) {
	shrinking().ack("a", 1).ack("b", 2).pod("b", "worker", "1", deleting).breaks(t, &drained{}, "job-worker-0 (a)")
}

func TestADrainWithAllAcknowledgementsIsRight(t *testing.T) {
	shrinking().ack("a", 2).ack("b", 2).pod("b", "worker", "1", deleting).holds(t)
}

func TestAMemberThatALaterPodReplacedNeedNotAcknowledge(t *testing.T) {
	shrinking().ack("b", 2).pod("a", "worker", "0", failing).pod("b", "worker", "1", deleting).holds(t)
}

func TestAPodThatNoListHasNamedNeedsNoHandshakeThoughAnEarlierOneOfItsNameDid(t *testing.T) {
	both := []string{"job-worker-0", "job-worker-1"}
	newStory().workers(1, 2, drains).pod("a", "worker", "0").pod("b", "worker", "1").
		read("a", 1, both, nil).pod("b", "worker", "1", failing).pod("b", "worker", "1", removedNow).read("a", 2, both[:1], nil).
		later(time.Second).pod("c", "worker", "1").workers(2, 1, drains).pod("c", "worker", "1", deleting).
		holds(t)
}

func TestAJobThatEndsNeedsNoHandshake(t *testing.T) {
	shrinking().workers(2, 1, drains, finished).pod("b", "worker", "1", deleting).holds(t)
}

// grown is a coordinator whose second request adds members of its mark.
func grown(members ...string) *story {
	s := newStory().led().pod("c", "coordinator", "coordinator").
		call(history.Call{Operation: history.Grow, Pod: "c", Mark: "first"})
	var list []history.Member
	for _, slot := range members {
		list = append(list, history.Member{Slot: slot, Task: "collector", Pods: 1, Mark: "2m"})
		s.members(list...)
	}
	return s
}

func TestARequestThatIsExecutedTwiceIsFound(t *testing.T) {
	grown("s", "t").call(history.Call{Operation: history.Grow, Pod: "c", Number: 1, Mark: "2m"}).
		members(history.Member{Slot: "u", Pods: 1, Mark: "2m"}).
		breaks(t, newServed(), "requested 1 replicas", "3 were added")
}

func TestAnAcknowledgedRequestThatIsLostIsFound(t *testing.T) {
	grown().call(history.Call{Operation: history.Grow, Pod: "c", Number: 1, Mark: "2m"}).breaks(t, newServed(), "0 were added")
}

func TestARefusedRequestThatIsExecutedIsFound(t *testing.T) {
	grown("s").call(history.Call{Operation: history.Grow, Pod: "c", Number: 1, Mark: "2m", Error: "conflict", Refused: true}).
		breaks(t, newServed(), "it was refused")
}

func TestARequestThatIsRefusedBecauseItsJobIsGoneMayBeExecuted(t *testing.T) {
	grown("s").change(history.Change{Kind: history.Job, Namespace: "n", Name: "job", UID: jobUID, Gone: true}).
		call(history.Call{Operation: history.Grow, Pod: "c", Number: 1, Mark: "2m", Error: "the job is gone", Refused: true}).holds(t)
}

func TestARequestWithoutAnAnswerMayBeExecutedOrNot(t *testing.T) {
	grown("s").call(history.Call{Operation: history.Grow, Pod: "c", Number: 1, Mark: "2m", Error: "reset"}).holds(t)
	grown().call(history.Call{Operation: history.Grow, Pod: "c", Number: 1, Mark: "2m", Error: "reset"}).holds(t)
}

func TestTheFirstRequestOfANewCoordinatorAddsWhatIsMissing(t *testing.T) {
	grown().call(history.Call{Operation: history.Grow, Pod: "d", Number: 2, Mark: "2m"}).holds(t)
}

func TestAListWithoutAReplicaThatWasGivenIsFound(t *testing.T) {
	given := func() *story {
		return newStory().call(history.Call{Operation: history.Grow, Pod: "c", Number: 2, URLs: []string{"a", "b"}})
	}
	given().call(history.Call{Operation: history.List, Pod: "c", URLs: []string{"b"}}).holds(t)
	given().later(time.Hour).call(history.Call{Operation: history.List, Pod: "c", URLs: []string{"b"}}).breaks(t, newListed(), "given and has not removed: a")
	cut := given()
	cut.add(history.Entry{Fault: &history.Fault{Kind: "cut", Target: "server-0", Begin: cut.now}}).
		later(time.Hour).call(history.Call{Operation: history.List, Pod: "c", URLs: []string{"b"}}).holds(t)
	given().call(history.Call{Operation: history.Shrink, Pod: "c", Number: 1, URLs: []string{"a"}}).
		later(time.Hour).call(history.Call{Operation: history.List, Pod: "c", URLs: []string{"b"}}).holds(t)
	given().call(history.Call{Operation: history.Shrink, Pod: "c", Number: 1, Error: "reset"}).
		later(time.Hour).call(history.Call{Operation: history.List, Pod: "c"}).holds(t)
	given().call(history.Call{Operation: history.Shrink, Pod: "c", Number: 1, URLs: []string{"b"}, Repeated: true}).
		later(time.Hour).call(history.Call{Operation: history.List, Pod: "c"}).holds(t)
	given().later(time.Hour).call(history.Call{Operation: history.List, Pod: "another"}).holds(t)
}

// sized reads the size of a job, requests a change, and reads the size again.
func sized(before int, call history.Call, after int) *story {
	return newStory().workers(1, before).
		call(history.Call{Operation: history.Count, Number: before}).call(call).call(history.Call{Operation: history.Count, Number: after})
}

func TestTheSizeIsTheSumOfTheRequests(t *testing.T) {
	sized(2, history.Call{Operation: history.Grow, Number: 3}, 5).holds(t)
	sized(2, history.Call{Operation: history.Shrink, Number: 5}, 1).holds(t)
	sized(2, history.Call{Operation: history.Grow, Number: 3, Error: "reset"}, 5).holds(t)
	sized(2, history.Call{Operation: history.Grow, Number: 3, Error: "reset"}, 2).holds(t)
}

func TestASizeThatNoOrderExplainsIsFound(t *testing.T) {
	for name, s := range map[string]*story{
		"twice":    sized(2, history.Call{Operation: history.Grow, Number: 3}, 8),
		"lost":     sized(2, history.Call{Operation: history.Grow, Number: 3}, 2),
		"shrunk":   sized(4, history.Call{Operation: history.Shrink, Number: 1}, 2),
		"a refuse": sized(2, history.Call{Operation: history.Grow, Number: 3, Error: "conflict", Refused: true}, 5),
	} {
		t.Run(name, func(t *testing.T) { s.breaks(t, newCounted(), "no order of") })
	}
}

func TestASearchSaysHowMuchItHasCovered(t *testing.T) {
	checker := New()
	for _, entry := range sized(2, history.Call{Operation: history.Grow, Number: 3}, 5).entries {
		checker.See(&entry)
	}
	checker.Finish()
	if jobs, calls, undecided := checker.Searched(); jobs != 1 || calls != 3 || undecided != 0 {
		t.Errorf("searched %d calls of %d jobs, %d without a result, want 3 of one", calls, jobs, undecided)
	}
}

func TestAJobThatIsNotAtRestIsFound(t *testing.T) {
	newStory().workers(1, 2).pod("a", "worker", "0").quiet().breaks(t, rest{}, "1 living pods")
}

func TestAMemberWithoutAPodIsFound(t *testing.T) {
	newStory().led(history.Member{Slot: "s", Pods: 1}).pod("c", "coordinator", "coordinator").quiet().breaks(t, rest{}, "slot s has no living pod")
}

func TestWhatADeletedJobLeavesIsFound(t *testing.T) {
	newStory().workers(1, 1).pod("a", "worker", "0").
		change(history.Change{Kind: history.Service, Name: "di-job", UID: "s", Owner: jobUID}).
		change(history.Change{Kind: history.Job, Namespace: "n", Name: "job", UID: jobUID, Deleting: true, Gone: true}).
		pod("a", "worker", "0", deleting, removedNow).
		quiet().
		breaks(t, rest{}, "Service di-job is left")
}

func TestVersionsThatDifferAreFound(t *testing.T) {
	newStory().workers(1, 0).add(history.Entry{Versions: &history.Versions{Job: jobUID, Difference: "group: a or b"}}).
		breaks(t, versions{}, "group: a or b")
}

func TestAFailedReadAtTheOldVersionIsFoundInAQuietWindowOnly(t *testing.T) {
	failed := history.Call{Operation: OldRead, Error: "conversion webhook failed"}
	newStory().workers(1, 0).call(failed).holds(t)
	newStory().workers(1, 0).add(history.Entry{Quiet: &history.Quiet{}}).call(failed).breaks(t, versions{}, "conversion webhook failed")
}

func TestGrowthOfAProgramIsFound(t *testing.T) {
	used := func(growth history.Usage) *story {
		s := newStory()
		for i := range 12 {
			s.add(history.Entry{Usage: &history.Usage{
				Program: "server-0", HeapBytes: 40<<20 + int64(i)*growth.HeapBytes, Goroutines: 90 + i*growth.Goroutines,
				Files: 24 + i*growth.Files, StoreBytes: 7<<20 + int64(i)*growth.StoreBytes, Jobs: 60,
			}})
		}
		return s
	}
	used(history.Usage{HeapBytes: 1 << 20, Goroutines: 5, Files: 2, StoreBytes: 1 << 20}).holds(t)
	for what, growth := range map[string]history.Usage{
		"heap bytes": {HeapBytes: 16 << 20},
		// Each of 43 jobs between two samples leaves one.
		"goroutines":   {Goroutines: 43},
		"open files":   {Files: 20},
		"stored bytes": {StoreBytes: 16 << 20},
	} {
		t.Run(what, func(t *testing.T) { used(growth).breaks(t, newFlat(), what+" grow") })
	}
}

func TestAGoroutineForEachJobIsFoundThoughTheProgramRestarts(t *testing.T) {
	used := func(goroutines ...int) *story {
		s := newStory().add(history.Entry{Usage: &history.Usage{Program: "operator-0", Goroutines: 270}})
		s.add(history.Entry{Usage: &history.Usage{Program: "operator-1", Goroutines: 200}})
		for _, each := range goroutines {
			s.add(history.Entry{Usage: &history.Usage{Program: "operator-1", Goroutines: each, Jobs: 60}})
		}
		return s
	}
	used(186, 276, 210).holds(t)
	used(186, 331, 210).breaks(t, newFlat(), "331 goroutines with 60 jobs, and at most 270 without")
}

func TestAHistoryFileIsCheckedLikeARun(t *testing.T) {
	var file bytes.Buffer
	log := history.NewLog(&file, func(*history.Entry) {})
	s := newStory().workers(1, 2).pod("a", "worker", "0").pod("b", "worker", "0")
	for _, entry := range s.entries {
		log.Add(entry)
	}
	expect.NoError(t, log.Err())
	checker := New()
	expect.NoError(t, history.Load(&file, checker.See))
	expect.Equal(t, "violations", 1, len(checker.Finish()))
}

func TestAViolationTellsTheLastEventsOfItsJob(t *testing.T) {
	found := newStory().workers(1, 2).pod("a", "worker", "0").pod("b", "worker", "0").check()
	if len(found) != 1 || !strings.Contains(found[0].String(), "pod job-worker-0 (a) is created") {
		t.Errorf("found %v, want the creation of the first pod among the events", found)
	}
}
