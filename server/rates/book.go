// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rates

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
)

const (
	// maxReporters bounds the reporters of a job, maxAllReporters those of all jobs: about 20 MiB.
	maxReporters, maxAllReporters = limits.PodsPerJob, 100_000
	// currentFor is how long the current values of a reporter count, or twice the time between its last two
	// reports, up to maxCurrentFor: one that reports when a step ends is silent for as long as a step.
	currentFor, maxCurrentFor = 2 * time.Minute, 30 * time.Minute
	// keptFor is how long a silent reporter is remembered, and an entry of a silent di-server in the status. It
	// is also the longest time that one report can claim: that of a step with the waits in it.
	keptFor = 2 * time.Hour
	// silentFor is after which silence a reporter makes room for others, if too many are remembered.
	silentFor = 10 * time.Minute
	// maxSum is where a sum starts from zero again. Readers ignore a sum that decreases.
	maxSum = 1 << 62
)

// Book has the sums of one di-server, of all jobs.
type Book struct {
	server string

	mutex sync.Mutex
	jobs  map[types.UID]*jobBook
	// reporters counts those of all jobs.
	reporters int
}

type jobBook struct {
	reporters map[reporterKey]*reporter
	sums      map[string]*sums
	// last is the time of the last report.
	last time.Time
}

// reporterKey identifies a worker: its own pod, or one that the sender reports for.
type reporterKey struct {
	sender, role string
	rank         int
}

// reporter is the last report of a worker, and when it arrived here. every is the time since the one before.
type reporter struct {
	report  profilings.Role
	arrived time.Time
	every   time.Duration
	// left is the observed time that its counters have not claimed yet. busy is the busy time that it has reported
	// since its last samples: the time of a step counts together with its samples.
	left claims
	busy float64
}

// isCurrent reports whether the current values of a worker count.
func (r *reporter) isCurrent(now time.Time) bool {
	return now.Sub(r.arrived) <= max(currentFor, min(2*r.every, maxCurrentFor))
}

// claims are seconds by counter. Counters that advance when a step ends claim the whole step at once, however
// often they are sent. So time that passes without a claim is kept for a later one.
type claims struct{ reported, busy, blocked, starved float64 }

// each calls a function with each counter's seconds.
func (c *claims) each(do func(*float64)) {
	do(&c.reported)
	do(&c.busy)
	do(&c.blocked)
	do(&c.starved)
}

// sums are the sums of one role, in seconds and samples.
type sums struct {
	reported, samples, busy, blocked, starved float64
	updated                                   time.Time
}

// NewBook returns the book of the named di-server.
func NewBook(server string) *Book {
	return &Book{server: server, jobs: map[types.UID]*jobBook{}}
}

// Server returns the name of the di-server.
func (b *Book) Server() string { return b.server }

// ErrFull is the error of Add while more workers report than can be kept. Later there may be room.
var ErrFull = errors.New("more workers report than can be kept: send it again later")

// Add adds the report of a worker of a job. The first report of a worker, and one whose counters or time went
// back, such as after its restart, only starts a period: its counters are of an unknown time.
func (b *Book) Add(job types.UID, sender string, report *profilings.Role, now time.Time) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	of, err := b.jobOf(job, now)
	if err != nil {
		return err
	}
	if of.sums[report.Role] == nil {
		if len(of.sums) >= limits.Roles {
			return fmt.Errorf("profilings.role is %q: the job already reports %d roles, and no more are kept", report.Role, limits.Roles)
		}
		of.sums[report.Role] = &sums{}
	}
	key := reporterKey{sender, report.Role, report.Rank}
	before := of.reporters[key]
	if before == nil {
		if len(of.reporters) >= maxReporters {
			b.reporters -= of.dropSilent(now, silentFor)
		}
		if len(of.reporters) >= maxReporters {
			return ErrFull
		}
		b.reporters++
	}
	current := &reporter{report: *report, arrived: now}
	current.report.Batch = nil
	of.reporters[key] = current
	of.last = now
	of.sums[report.Role].add(before, current)
	return nil
}

// jobOf returns the book of a job. If too many workers report, it drops silent ones.
func (b *Book) jobOf(job types.UID, now time.Time) (*jobBook, error) {
	if b.reporters >= maxAllReporters {
		for uid, of := range b.jobs {
			b.reporters -= of.dropSilent(now, silentFor)
			if now.Sub(of.last) > silentFor {
				delete(b.jobs, uid)
			}
		}
	}
	if b.reporters >= maxAllReporters {
		return nil, ErrFull
	}
	if b.jobs[job] == nil {
		b.jobs[job] = &jobBook{reporters: map[reporterKey]*reporter{}, sums: map[string]*sums{}}
	}
	return b.jobs[job], nil
}

// Forget frees the memory of a job.
func (b *Book) Forget(job types.UID) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if of := b.jobs[job]; of != nil {
		b.reporters -= len(of.reporters)
		delete(b.jobs, job)
	}
}

// Of returns the sums of a job by role, in the order of the roles.
func (b *Book) Of(job types.UID, now time.Time) []v2alpha1.RoleRates {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	of := b.jobs[job]
	if of == nil {
		return nil
	}
	b.reporters -= of.dropSilent(now, keptFor)
	rates := make([]v2alpha1.RoleRates, 0, len(of.sums))
	for _, role := range slices.Sorted(maps.Keys(of.sums)) {
		entry := of.sums[role].entry()
		entry.Server, entry.Role = b.server, role
		for key, worker := range of.reporters {
			if key.role == role && worker.isCurrent(now) {
				addCurrent(&entry, &worker.report)
			}
		}
		rates = append(rates, entry)
	}
	return rates
}

// dropSilent drops workers that have not reported for some time, and returns their number.
func (j *jobBook) dropSilent(now time.Time, after time.Duration) int {
	before := len(j.reporters)
	maps.DeleteFunc(j.reporters, func(_ reporterKey, worker *reporter) bool { return now.Sub(worker.arrived) > after })
	return before - len(j.reporters)
}

// add adds what a worker did since its last report.
func (s *sums) add(before, current *reporter) {
	s.updated = current.arrived
	if before == nil {
		return
	}
	passed := current.arrived.Sub(before.arrived)
	if passed > keptFor || startsAgain(&before.report, &current.report) {
		return
	}
	current.every, current.left, current.busy = passed, before.left, before.busy
	current.left.each(func(left *float64) { *left = min(*left+max(passed.Seconds(), 0), keptFor.Seconds()) })
	s.claim(&before.report, current, passed.Seconds())
}

// startsAgain reports whether counters or the time of a worker went back.
func startsAgain(last, report *profilings.Role) bool {
	return report.Time > 0 && report.Time < last.Time || report.Samples < last.Samples || report.BusySeconds < last.BusySeconds ||
		report.BlockedSeconds < last.BlockedSeconds || report.StarvedSeconds < last.StarvedSeconds
}

// claim adds what a report claims, as far as that much time was observed and is left. The samples of time
// that was not observed do not count either, so the samples of a busy second stay what they are.
func (s *sums) claim(last *profilings.Role, current *reporter, passed float64) {
	report, left := &current.report, &current.left
	if report.Time > 0 && last.Time > 0 {
		passed = report.Time - last.Time
	}
	claim := func(sum, left *float64, seconds float64) (counted float64) {
		counted = min(seconds, *left)
		*left -= counted
		*sum = advance(*sum, counted)
		return counted
	}
	claim(&s.reported, &left.reported, max(passed, 0))
	claim(&s.blocked, &left.blocked, report.BlockedSeconds-last.BlockedSeconds)
	claim(&s.starved, &left.starved, report.StarvedSeconds-last.StarvedSeconds)
	current.busy += report.BusySeconds - last.BusySeconds
	samples := report.Samples - last.Samples
	if samples <= 0 {
		return
	}
	if counted := claim(&s.busy, &left.busy, current.busy); counted < current.busy {
		samples *= counted / current.busy
	}
	current.busy = 0
	s.samples = advance(s.samples, samples)
}

// advance adds to a sum. A sum that becomes too large starts from zero.
func advance(sum, by float64) float64 {
	if sum+by > maxSum/1000 {
		return 0
	}
	return sum + by
}

func (s *sums) entry() v2alpha1.RoleRates {
	return v2alpha1.RoleRates{
		UpdatedAt:            metav1.NewMicroTime(s.updated),
		ReportedMilliseconds: thousandths(s.reported), Samples: int64(s.samples),
		BusyMilliseconds: thousandths(s.busy), BlockedMilliseconds: thousandths(s.blocked), StarvedMilliseconds: thousandths(s.starved),
	}
}

func thousandths(value float64) int64 { return int64(value * 1000) }

// addCurrent adds the current values of a worker. Each worker reports its own part, so queues and batches add up.
func addCurrent(entry *v2alpha1.RoleRates, report *profilings.Role) {
	workers := int64(entry.Reporters)
	entry.Reporters++
	entry.Queue += int64(report.Queue)
	entry.QueueCapacity += int64(report.QueueCapacity)
	entry.InFlight += int64(report.InFlight)
	entry.BatchSamples += int64(report.BatchSamples)
	entry.PolicyVersion = max(entry.PolicyVersion, int64(report.PolicyVersion))
	entry.StalenessMax = max(entry.StalenessMax, int64(report.StalenessMax))
	entry.StalenessMeanThousandths = (entry.StalenessMeanThousandths*workers + thousandths(report.StalenessMean)) / (workers + 1)
	if bound := int64(report.MaxStaleness); bound > 0 && (entry.MaxStaleness == 0 || bound < entry.MaxStaleness) {
		entry.MaxStaleness = bound
	}
	replay := thousandths(report.ReplayRatio)
	if replay == 0 {
		replay = 1000
	}
	entry.ReplayRatioThousandths = (entry.ReplayRatioThousandths*workers + replay) / (workers + 1)
}

// Merge replaces the entries of one di-server in the status of a job, and drops those of di-servers that are
// silent. If there are too many, it drops the oldest.
func Merge(stored, own []v2alpha1.RoleRates, server string, now time.Time) []v2alpha1.RoleRates {
	merged := slices.Clone(own)
	for i := range stored {
		if stored[i].Server != server && now.Sub(stored[i].UpdatedAt.Time) <= keptFor {
			merged = append(merged, stored[i])
		}
	}
	if len(merged) > limits.Rates {
		slices.SortStableFunc(merged, func(a, b v2alpha1.RoleRates) int { return b.UpdatedAt.Compare(a.UpdatedAt.Time) })
		merged = merged[:limits.Rates]
	}
	slices.SortFunc(merged, func(a, b v2alpha1.RoleRates) int {
		if byRole := strings.Compare(a.Role, b.Role); byRole != 0 {
			return byRole
		}
		return strings.Compare(a.Server, b.Server)
	})
	return merged
}
