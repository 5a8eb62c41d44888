// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"fmt"
	"math"
	"time"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/allocation"
)

// explain returns the answer about a job but for its usage. Messages do not describe the
// round, and have coarse figures, as each change is written to the job.
func (p *Policy) explain(nodes []*allocation.Node, v *view, placed []string) allocation.Placement {
	answer := allocation.Placement{Nodes: placed}
	if len(v.decision.Options) == 1 && len(placed) == 0 {
		answer.Reason, answer.Message = allocation.ReasonInsufficientCapacity, impossible(nodes, v.job)
		return answer
	}
	if len(placed) == 0 {
		answer.Reason = allocation.ReasonInsufficientCapacity
		answer.Message = "insufficient capacity: other jobs make more of it; the job starts when its share of the capacity is worth more"
		return answer
	}
	elastic, _ := v.job.ElasticOf(len(placed))
	answer.Reason = allocation.ReasonPlaced
	if v.isElastic() && elastic < v.job.Wanted {
		answer.Reason = allocation.ReasonPartiallyPlaced
	}
	answer.Message = fmt.Sprintf("%s on %s%s", english.Plural(len(placed), "replica", ""), english.Plural(len(distinct(placed)), "node", ""),
		p.outlook(v, elastic, v.decision.larger(int(elastic), v.kind))+p.faster(v, elastic))
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
		return fmt.Sprintf("; %d of task %s would gain %s, less than %s", larger.Replicas, v.job.Tasks[v.job.Elastic].Name, percent(gain), p.price(v, v.job.ResizesLive))
	case v.limit(&p.settings) < v.job.Wanted && v.curve.known == nil:
		return "; the job reports no speed, so it grows slowly"
	case v.limit(&p.settings) < v.job.Wanted:
		return "; it gets at most twice the replicas that it has measured"
	}
	return "; the nodes that accept the job are full"
}

// price says what a gain is less than.
func (p *Policy) price(v *view, isLive bool) string {
	if isLive {
		return "what other jobs gain"
	}
	return fmt.Sprintf("a restart of %v or what other jobs gain", p.restartCost(v).Round(time.Second))
}

// fasterBy is how many times as fast another type of devices must be to be worth a word.
const fasterBy = 1.2

// faster says what the same replicas would gain on the fastest other type of devices.
func (p *Policy) faster(v *view, elastic int32) string {
	kind, most := v.kind, fasterBy
	for i := range v.decision.Options {
		option := &v.decision.Options[i]
		if option.Kind == v.kind || int32(option.Replicas) != elastic || v.curves[option.Kind].isGuess {
			continue
		}
		if times := v.on(option.Kind).speed(elastic) / v.speed(elastic); times > most {
			kind, most = option.Kind, times
		}
	}
	if kind == v.kind || v.names[kind] == "" {
		return ""
	}
	return fmt.Sprintf("; the same on %s would gain %s, less than %s", v.names[kind], percent(most-1), p.price(v, false))
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

// larger returns the option of the next larger number of replicas, nil for none.
func (d *Decision) larger(replicas, kind int) *Option {
	var next *Option
	for i := range d.Options {
		if o := &d.Options[i]; o.Replicas > replicas && o.Kind == kind && (next == nil || o.Replicas < next.Replicas) {
			next = o
		}
	}
	return next
}
