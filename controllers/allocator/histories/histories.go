// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package histories keeps what the allocator learns of groups of jobs, as it is stored in a ConfigMap.
package histories

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator/usage"
)

const (
	// maxGroups and maxGroupBytes bound the stored groups. Those that were used last are kept.
	maxGroups     = 200
	maxGroupBytes = 512 << 10
	// maxGroupName is the maximum length of a stored group's name.
	maxGroupName = 2048
	// groupUse is the precision of the stored time of a group's last use, so that use alone seldom causes a
	// write.
	groupUse = time.Hour
	// GroupPrefix begins the key of each group.
	GroupPrefix = "group-"
	// countedKey is the key of the jobs that are counted and not marked yet.
	countedKey = "counted"
)

// Histories are the groups of jobs, as they are stored in a ConfigMap.
type Histories struct {
	Groups map[string]*allocation.Group
	// usedAt is when a job of the group was last in a round.
	usedAt map[string]time.Time
	// counted are the finished jobs that the histories include and that are not marked as counted yet.
	counted map[types.UID]bool
}

// New returns histories without groups.
func New() *Histories {
	return &Histories{Groups: map[string]*allocation.Group{}, usedAt: map[string]time.Time{}, counted: map[types.UID]bool{}}
}

// storedGroup is a group in the ConfigMap.
type storedGroup struct {
	Name   string    `json:"name"`
	UsedAt time.Time `json:"usedAt"`
	// Since is when the job was created that began the observations.
	Since time.Time `json:"since,omitzero"`
	// Observations are nodes, replicas, samples, and seconds of a step with and without synchronization.
	Observations [][5]float64 `json:"observations,omitempty"`
	// Devices are the devices of the observations; empty if none is named.
	Devices []string `json:"devices,omitempty"`
	// Spans are the spans of the observations; empty if none is known.
	Spans       []int         `json:"spans,omitempty"`
	Noise       *model.Noise  `json:"noise,omitempty"`
	Bounds      *model.Bounds `json:"bounds,omitempty"`
	MaxObserved int           `json:"maxObserved,omitempty"`
	Finished    int           `json:"finished,omitempty"`
	Useful      float64       `json:"useful,omitempty"`
	// Totals counts the finished jobs that had reported a total, and TotalsWrong is how wrong these were.
	Totals      int     `json:"totals,omitempty"`
	TotalsWrong float64 `json:"totalsWrong,omitempty"`
}

// groupKey returns the key of a group in the ConfigMap. Not every name is a valid key.
func groupKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return GroupPrefix + hex.EncodeToString(sum[:16])
}

// Encode returns the data of the ConfigMap. It drops the groups that were used longest ago beyond the
// bounds.
func (h *Histories) Encode() map[string]string {
	names := slices.SortedFunc(maps.Keys(h.Groups), func(a, b string) int {
		return cmp.Or(h.usedAt[b].Compare(h.usedAt[a]), strings.Compare(a, b))
	})
	data, size := map[string]string{}, 0
	if len(h.counted) > 0 {
		data[countedKey] = strings.Join(sortedUIDs(h.counted), ",")
		size += len(data[countedKey])
	}
	count := 0
	for _, name := range names {
		text, err := json.Marshal(storedOf(name, h.Groups[name], h.usedAt[name]))
		if err != nil || len(name) > maxGroupName || count == maxGroups || size+len(text) > maxGroupBytes {
			// Numbers that JSON lacks are no history.
			delete(h.Groups, name)
			delete(h.usedAt, name)
			continue
		}
		data[groupKey(name)] = string(text)
		count, size = count+1, size+len(text)
	}
	return data
}

func sortedUIDs(counted map[types.UID]bool) []string {
	var uids []string
	for uid := range counted {
		uids = append(uids, string(uid))
	}
	slices.Sort(uids)
	return uids
}

func storedOf(name string, group *allocation.Group, usedAt time.Time) *storedGroup {
	stored := &storedGroup{
		Name: name, UsedAt: usedAt.Truncate(groupUse).UTC(), Since: group.Since.UTC(), Noise: group.Noise, Bounds: group.Bounds,
		MaxObserved: group.MaxObserved, Finished: group.Finished, Useful: group.Useful,
		Totals: group.Totals.Finished, TotalsWrong: group.Totals.Wrong,
	}
	for _, o := range group.Observations[:min(len(group.Observations), allocation.MaxObservations)] {
		stored.Observations = append(stored.Observations,
			[5]float64{float64(o.Nodes), float64(o.Replicas), float64(o.Atomic), o.Step, o.Accumulate})
		stored.Devices, stored.Spans = append(stored.Devices, o.Device), append(stored.Spans, o.Span)
	}
	if !slices.ContainsFunc(stored.Spans, func(span int) bool { return span > 0 }) {
		stored.Spans = nil
	}
	if !slices.ContainsFunc(stored.Devices, func(device string) bool { return device != "" }) {
		stored.Devices = nil
	}
	return stored
}

// Decode reads the data of the ConfigMap. It ignores what it cannot read, and returns the reasons.
func Decode(data map[string]string) (h *Histories, unreadable []error) {
	h = New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if key == countedKey {
			for uid := range strings.SplitSeq(data[key], ",") {
				h.counted[types.UID(uid)] = true
			}
			continue
		}
		stored, err := decodeGroup(key, data[key])
		if err != nil {
			unreadable = append(unreadable, fmt.Errorf("key %s: %w", key, err))
			continue
		}
		h.Groups[stored.Name], h.usedAt[stored.Name] = stored.group(), stored.UsedAt
	}
	return h, unreadable
}

func decodeGroup(key, text string) (*storedGroup, error) {
	stored := &storedGroup{}
	if err := json.Unmarshal([]byte(text), stored); err != nil {
		return nil, fmt.Errorf("does not decode: %w", err)
	}
	if groupKey(stored.Name) != key {
		return nil, fmt.Errorf("name is %q, whose key would be %s", stored.Name, groupKey(stored.Name))
	}
	least := min(float64(stored.Finished), stored.Useful, float64(stored.MaxObserved), float64(stored.Totals), stored.TotalsWrong)
	if len(stored.Observations) > allocation.MaxObservations || least < 0 {
		return nil, fmt.Errorf("has %d observations, maxObserved %d, finished %d, useful %g, totals %d, totalsWrong %g: must be at most %d, and 0 or more",
			len(stored.Observations), stored.MaxObserved, stored.Finished, stored.Useful, stored.Totals, stored.TotalsWrong, allocation.MaxObservations)
	}
	return stored, stored.checkObservations()
}

// checkObservations checks the observations, and what there is for each of them.
func (s *storedGroup) checkObservations() error {
	if len(s.Devices) > 0 && len(s.Devices) != len(s.Observations) {
		return fmt.Errorf("has %d devices: must be none, or one for each of the %d observations", len(s.Devices), len(s.Observations))
	}
	isNoSpan := func(span int) bool { return span < 0 || span > model.MaxSpan }
	if len(s.Spans) > 0 && len(s.Spans) != len(s.Observations) || slices.ContainsFunc(s.Spans, isNoSpan) {
		return fmt.Errorf("has the spans %v: must be none, or one from 0 to %d for each of the %d observations", s.Spans, model.MaxSpan, len(s.Observations))
	}
	for i, o := range s.Observations {
		if o[0] < 1 || o[1] < o[0] || o[1] > math.MaxInt32 || o[2] < 1 || o[2] > 1<<53 || !(o[3] > 0) || o[4] < 0 {
			return fmt.Errorf("observations[%d] is %v: must be nodes, replicas, samples and seconds", i, o)
		}
	}
	return nil
}

func (s *storedGroup) group() *allocation.Group {
	group := &allocation.Group{
		Since: s.Since, Noise: s.Noise, Bounds: s.Bounds, MaxObserved: s.MaxObserved, Finished: s.Finished, Useful: s.Useful,
		Totals: allocation.Totals{Finished: s.Totals, Wrong: s.TotalsWrong},
	}
	for i, o := range s.Observations {
		one := model.Observation{Nodes: int(o[0]), Replicas: int(o[1]), Atomic: int(o[2]), Step: o[3], Accumulate: o[4]}
		if len(s.Devices) > 0 {
			one.Device = s.Devices[i]
		}
		if len(s.Spans) > 0 {
			one.Span = s.Spans[i]
		}
		group.Observations = append(group.Observations, one)
	}
	return group
}

// Restore adds a group as it was stored before it was dropped.
func (h *Histories) Restore(name, text string, now time.Time) error {
	stored, err := decodeGroup(groupKey(name), text)
	if err != nil {
		return err
	}
	h.Groups[name], h.usedAt[name] = stored.group(), now
	return nil
}

// Names returns the groups that decisions about a job of a group read.
func Names(group, namespace string) []string { return []string{group, totalsOf(namespace)} }

// Use records that jobs of these groups are in a round.
func (h *Histories) Use(jobs []*allocation.Job, now time.Time) {
	for _, job := range jobs {
		for _, name := range Names(job.Group, job.Name.Namespace) {
			if h.Groups[name] != nil {
				h.usedAt[name] = now
			}
		}
	}
}

// Count adds a job that has succeeded to the history of its group, once. It reports whether it did.
func (h *Histories) Count(job *v2alpha1.DIJob, group string) bool {
	if h.counted[job.UID] || group == "" {
		return false
	}
	usage := atEnd(job)
	h.group(group).Finish(&usage)
	h.usedAt[group], h.counted[job.UID] = usage.At, true
	if usage.Expected > 0 {
		all := totalsOf(job.Namespace)
		h.group(all).Totals.Finish(&usage)
		h.usedAt[all] = usage.At
	}
	return true
}

// Mark forgets that a job is counted, once the job says so.
func (h *Histories) Mark(job types.UID) { delete(h.counted, job) }

// group returns the group of a name, a new one if there is none.
func (h *Histories) group(name string) *allocation.Group {
	if h.Groups[name] == nil {
		h.Groups[name] = &allocation.Group{}
	}
	return h.Groups[name]
}

// totalsOf returns the name of the group that has only the totals of all jobs of a namespace. No job is in it.
func totalsOf(namespace string) string { return namespace + "/" }

// Totals returns how right the totals of jobs like this one have been.
func (h *Histories) Totals(group, namespace string) allocation.Totals {
	var own, all allocation.Totals
	if known := h.Groups[group]; known != nil {
		own = known.Totals
	}
	if known := h.Groups[totalsOf(namespace)]; known != nil {
		all = known.Totals
	}
	return own.Among(&all)
}

// IsUncounted reports whether a job has succeeded and the history of its group lacks its size.
func IsUncounted(job *v2alpha1.DIJob) bool {
	usage := job.Status.AllocationUsage
	return job.Spec.Preemptible && job.Status.Phase == v2alpha1.JobSucceeded && usage != nil && !usage.Counted && usage.UsefulThousandths > 0
}

// atEnd returns the usage of a job that has finished. Since it was accounted last, it has worked at its
// average rate; at most twice its work is accounted.
func atEnd(job *v2alpha1.DIJob) allocation.Usage {
	used := usage.Of(&job.Status)
	end := job.Status.CompletionTimestamp
	if end == nil || used.RunFor <= 0 || len(job.Status.Allocation) == 0 {
		return used
	}
	left := min(max(end.Sub(used.At).Seconds()-used.Restarting, 0), used.RunFor)
	used.Useful += used.Useful * left / used.RunFor
	used.At = end.Time
	return used
}
