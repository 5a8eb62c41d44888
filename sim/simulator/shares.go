// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

// Hour is what tenants had while all of them wanted their whole share.
type Hour struct {
	// Seconds is how long it lasted, at most an hour.
	Seconds int
	// GPUSeconds are those that each tenant had.
	GPUSeconds map[string]float64
}

// FirstHour returns the first hour in which each tenant has at least as many jobs as GPUs that it is entitled to, so that it
// wants them all even if each job wants one. Rounds in which one has fewer jobs do not count.
func (r *Result) FirstHour(entitled map[string]int, interval int) Hour {
	hour := Hour{GPUSeconds: map[string]float64{}}
	gpus, next := make([]int, len(r.Jobs)), 0
	for now := 0; hour.Seconds < 3600; now += interval {
		for next < len(r.Changes) && r.Changes[next].At <= now {
			gpus[r.Changes[next].Job] = r.Changes[next].GPUs
			next++
		}
		// Jobs that were submitted since the last round are not known to it.
		active, held, isOver := map[string]int{}, map[string]int{}, true
		for i := range r.Jobs {
			job := &r.Jobs[i]
			isOver = isOver && job.Completed <= now
			if job.Submitted <= now && job.Completed > now {
				active[job.Tenant]++
				held[job.Tenant] += gpus[i]
			}
		}
		if isOver {
			break
		}
		wantAll := true
		for tenant, count := range entitled {
			wantAll = wantAll && active[tenant] >= count
		}
		if !wantAll {
			continue
		}
		hour.Seconds += interval
		for tenant, count := range held {
			hour.GPUSeconds[tenant] += float64(count * interval)
		}
	}
	return hour
}
