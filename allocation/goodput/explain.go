// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"fmt"
	"math"
	"slices"
	"time"

	"opendilab.org/di-orchestrator/allocation"
)

// The causes of decisions (allocation.Why).
const (
	// CauseStarted and CauseGrew: the job has replicas, or more replicas, since this round.
	CauseStarted = "Started"
	CauseGrew    = "Grew"
	// CauseShrunk and CauseEvicted: other jobs make more of the capacity.
	CauseShrunk  = "Shrunk"
	CauseEvicted = "Evicted"
	// CauseMoved: it has the same replicas on other nodes.
	CauseMoved = "Moved"
	// CauseAtMost: it has all replicas that it wants.
	CauseAtMost = "AtMost"
	// CauseAtProfiledLimit: it has twice the replicas that it has measured.
	CauseAtProfiledLimit = "AtProfiledLimit"
	// CauseKeptByRestartCost: another number would pay if there was no restart.
	CauseKeptByRestartCost = "KeptByRestartCost"
	// CauseOutbid: other jobs make more of the capacity that it does not have.
	CauseOutbid = "Outbid"
	// CauseImpossible: the nodes could not hold its minimum if no other job was there.
	CauseImpossible = "Impossible"
)

// explain returns the answer about a job but for its usage. Messages do not describe the
// round, and have coarse figures, as each change is written to the job.
func (p *Policy) explain(nodes []*allocation.Node, v *view, placed []string) allocation.Placement {
	answer := allocation.Placement{Nodes: placed, Why: &allocation.Why{Price: v.decision.Price, Weight: v.decision.Weight}}
	if len(v.decision.Options) == 1 && len(placed) == 0 {
		answer.Why.Cause = CauseImpossible
		answer.Reason, answer.Message = allocation.ReasonInsufficientCapacity, impossible(nodes, v.job)
		return answer
	}
	elastic := int32(waiting)
	if len(placed) > 0 {
		elastic, _ = v.job.ElasticOf(len(placed))
	}
	chosen, smaller, larger := v.decision.around(int(elastic))
	answer.Why.Chosen, answer.Why.Smaller, answer.Why.Larger = chosen.public(), smaller.public(), larger.public()
	answer.Why.Cause = p.cause(v, placed, elastic, larger)
	if len(placed) == 0 {
		answer.Reason = allocation.ReasonInsufficientCapacity
		answer.Message = "insufficient capacity: other jobs make more of it; the job starts when its share of the capacity is worth more"
		return answer
	}
	answer.Reason = allocation.ReasonPlaced
	if v.isElastic() && elastic < v.job.Wanted {
		answer.Reason = allocation.ReasonPartiallyPlaced
	}
	answer.Message = fmt.Sprintf("%d replicas on %d nodes%s", len(placed), len(distinct(placed)), p.outlook(v, elastic, larger))
	return answer
}

// impossible says why the nodes cannot hold a job that is alone.
func impossible(nodes []*allocation.Node, job *allocation.Job) string {
	placement := allocation.NewBoard(nodes).Place(job)
	if len(placement.Nodes) > 0 {
		return "insufficient capacity for the least replicas on the nodes that accept the job"
	}
	return placement.Message
}

// outlook says what would change the number of replicas.
func (p *Policy) outlook(v *view, elastic int32, larger *Option) string {
	switch {
	case !v.isElastic() || elastic >= v.job.Wanted:
		return ""
	case larger != nil:
		gain := v.speed(int32(larger.Replicas))/v.speed(elastic) - 1
		cost := p.restartCost(v).Round(time.Second)
		return fmt.Sprintf("; %d of task %s would gain %s, less than a restart of %v or what other jobs gain",
			larger.Replicas, v.job.Tasks[v.job.Elastic].Name, percent(gain), cost)
	case v.limit(&p.settings) < v.job.Wanted && v.curve.known == nil:
		return "; the job reports no speed, so it grows slowly"
	case v.limit(&p.settings) < v.job.Wanted:
		return "; it gets at most twice the replicas that it has measured"
	}
	return "; the nodes that accept the job are full"
}

// percent returns a coarse figure: 1, 2, 5, 10, 20, 50 and so on.
func percent(gain float64) string {
	if gain < 0.01 {
		return "less than 1 %"
	}
	step := math.Pow(10, math.Floor(math.Log10(gain*100)))
	for _, times := range []float64{5, 2, 1} {
		if gain*100 >= step*times {
			return fmt.Sprintf("about %.0f %%", step*times)
		}
	}
	return fmt.Sprintf("about %.0f %%", step)
}

// cause returns what decided.
func (p *Policy) cause(v *view, placed []string, elastic int32, larger *Option) string {
	had, before := len(v.previous), len(placed)
	switch {
	case before == 0 && had > 0:
		return CauseEvicted
	case before == 0:
		return CauseOutbid
	case had == 0:
		return CauseStarted
	case before > had:
		return CauseGrew
	case before < had:
		return CauseShrunk
	case elastic != v.current || !slices.Equal(placed, v.previous):
		return CauseMoved
	case !v.isElastic() || elastic >= v.job.Wanted:
		return CauseAtMost
	case v.decision.isKept():
		return CauseKeptByRestartCost
	case larger == nil:
		return CauseAtProfiledLimit
	}
	return CauseOutbid
}

// isKept reports whether the job would have another number of replicas if a restart cost
// nothing: an option is worth more at the price of capacity.
func (d *Decision) isKept() bool {
	chosen := d.Chosen()
	for i := range d.Options[1:] {
		o := &d.Options[i+1]
		if o.Gross-d.Price*float64(o.Cost) > chosen.Gross-d.Price*float64(chosen.Cost)+1e-9 {
			return true
		}
	}
	return false
}

// around returns the option of so many replicas and the next ones by replicas, nil for none.
func (d *Decision) around(replicas int) (chosen, smaller, larger *Option) {
	for i := range d.Options {
		o := &d.Options[i]
		switch {
		case o.Replicas == replicas:
			chosen = o
		case o.Replicas < replicas && (smaller == nil || o.Replicas > smaller.Replicas):
			smaller = o
		case o.Replicas > replicas && (larger == nil || o.Replicas < larger.Replicas):
			larger = o
		}
	}
	return chosen, smaller, larger
}

// public returns the option for people.
func (o *Option) public() *allocation.Option {
	if o == nil {
		return nil
	}
	return &allocation.Option{Replicas: int32(max(o.Replicas, 0)), Value: o.Value}
}
