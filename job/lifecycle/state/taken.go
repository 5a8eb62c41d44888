// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"
)

// leavingGracePeriod is the grace period of a terminating object whose name the job needs. It
// starts when the job was created, or when the object should have been gone.
const leavingGracePeriod = time.Minute

// Taken is a name that the job needs and that an object of another owner has.
type Taken struct {
	// Message describes the owner. It is "" for an object that is deleted anyway: the object is
	// terminating, or the garbage collector deletes it with an earlier job of the name.
	Message string
	// Until is when to try the name again; the zero time if a watch covers it.
	Until time.Time
	// Leaving is when the object should be gone, the zero time if that is unknown.
	Leaving time.Time
}

// IsTaken reports whether another owner has a name that the job needs, so that the job waits for
// it. An object that is deleted anyway is a conflict only after its grace period.
func (p *Plan) IsTaken(kind, name string, all map[string]Taken) bool {
	taken, found := all[name]
	if !found {
		return false
	}
	if !taken.Until.IsZero() {
		left := taken.Until.Sub(p.in.Now)
		if left <= 0 {
			return false
		}
		p.RequeueAfter(left)
	}
	if taken.Message != "" {
		p.Decision.Conflicts = append(p.Decision.Conflicts, taken.Message)
		return true
	}
	p.Decision.Waits = true
	since := p.in.Job.CreationTimestamp.Time
	if taken.Leaving.After(since) {
		since = taken.Leaving
	}
	if left := since.Add(leavingGracePeriod).Sub(p.in.Now); left > 0 {
		p.RequeueAfter(left)
	} else {
		p.Decision.Conflicts = append(p.Decision.Conflicts, kind+" "+name+" must be deleted and still exists")
	}
	return true
}

// IsPodTaken reports whether another owner has the name of a pod.
func (p *Plan) IsPodTaken(name string) bool {
	return p.IsTaken("pod", name, p.in.TakenPods)
}

// IsConfigMapTaken reports whether another owner has the name of a ConfigMap.
func (p *Plan) IsConfigMapTaken(name string) bool {
	return p.IsTaken("ConfigMap", name, p.in.TakenConfigMaps)
}

func (p *Plan) isServiceTaken(name string) bool {
	return p.IsTaken("service", name, p.in.TakenServices)
}
