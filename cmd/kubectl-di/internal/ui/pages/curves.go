// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

const (
	// mostPoints and mostCurves bound what is stored of a job.
	mostPoints = 64
	mostCurves = 8
	// mostSteps bounds the points of throughput by replicas.
	mostSteps = 64
)

// The kinds of curves, the most important first.
const (
	// KindReward is the kind of the reward, and of what a report names as its curve.
	KindReward     = "reward"
	kindThroughput = "throughput"
	kindStaleness  = "staleness"
	// KindUsage is the kind of what pods used.
	KindUsage = "usage"
	// KindOther is the kind of all others.
	KindOther = "other"
)

// History is what a job reported since it is observed. The zero value is empty.
type History struct {
	curves []curve
	report []byte
	rates  map[string]counter
}

// curve is a curve of thousands of jobs with several each, so that its points are small.
type curve struct {
	name, kind, unit string
	begun            time.Time
	points           []point
}

// point is a value at a time after the curve has begun. Its seven digits suffice to draw it.
type point struct {
	tenths uint32 // of a second; the last is 13 years later
	value  float32
}

// counter is the last report of a role.
type counter struct {
	at      time.Time
	samples int64
}

// Record adds what a job reports now, unless it is the same as before.
func (h *History) Record(job *v2alpha1.DIJob, now time.Time) {
	if report := job.Status.Profilings; report != nil && !bytes.Equal(report.Raw, h.report) {
		h.report = report.Raw
		for _, number := range numbersOf(report.Raw) {
			h.add(number.name, number.kind, number.unit, now, number.value)
		}
	}
	for i := range job.Status.Rates {
		h.recordRates(&job.Status.Rates[i])
	}
}

// recordRates adds the samples per second of a role, between two of its reports.
func (h *History) recordRates(rates *v2alpha1.RoleRates) {
	key := rates.Server + "/" + rates.Role
	before, isKnown := h.rates[key]
	passed := rates.UpdatedAt.Sub(before.at)
	if isKnown && passed <= 0 {
		return
	}
	if h.rates == nil {
		h.rates = map[string]counter{}
	}
	if len(h.rates) < mostCurves || isKnown {
		h.rates[key] = counter{rates.UpdatedAt.Time, rates.Samples}
	}
	at := rates.UpdatedAt.Time
	if isKnown && rates.Samples >= before.samples {
		h.add(rates.Role+" samples/s", kindThroughput, "samples/s", at, float64(rates.Samples-before.samples)/passed.Seconds())
	}
	if rates.StalenessMeanThousandths > 0 {
		h.add(rates.Role+" staleness", kindStaleness, "versions", at, float64(rates.StalenessMeanThousandths)/1000)
	}
}

func (h *History) add(name, kind, unit string, at time.Time, value float64) {
	if math.IsNaN(value) || math.Abs(value) > math.MaxFloat32 {
		return
	}
	index := slices.IndexFunc(h.curves, func(known curve) bool { return known.name == name })
	if index < 0 {
		if len(h.curves) == mostCurves {
			return
		}
		index, h.curves = len(h.curves), append(h.curves, curve{name: name, kind: kind, unit: unit, begun: at})
	}
	// A later report may name another curve.
	h.curves[index].kind = kind
	h.curves[index].add(at, value)
}

func (c *curve) add(at time.Time, value float64) {
	if len(c.points) == mostPoints {
		// Half of the points cover the whole time.
		for i := range mostPoints / 2 {
			c.points[i] = c.points[2*i]
		}
		c.points = c.points[:mostPoints/2]
	}
	tenths := at.Sub(c.begun).Milliseconds() / 100
	c.points = append(c.points, point{uint32(min(max(0, tenths), math.MaxUint32)), float32(value)}) //nolint:gosec // it is within the bounds
}

// shown returns the curve as the page gets it.
func (c *curve) shown() api.Curve {
	shown := api.Curve{Name: c.name, Kind: c.kind, Unit: c.unit, Points: make([][2]float64, 0, len(c.points))}
	for _, one := range c.points {
		at := float64(c.begun.UnixMilli() + 100*int64(one.tenths))
		shown.Points = append(shown.Points, [2]float64{at, widened(one.value)})
	}
	return shown
}

// widened returns the shortest number that is stored as value, such as 0.1.
func widened(value float32) float64 {
	number, err := strconv.ParseFloat(strconv.FormatFloat(float64(value), 'g', -1, 32), 64)
	if err != nil {
		return float64(value)
	}
	return number
}

// Best returns the most important curve; nil without any.
func (h *History) Best() *api.Curve {
	if best := h.best(); best != nil {
		return ptr.To(best.shown())
	}
	return nil
}

// Last returns the last value of the most important curve; 0 without any.
func (h *History) Last() float64 {
	if best := h.best(); best != nil {
		return float64(best.points[len(best.points)-1].value)
	}
	return 0
}

func (h *History) best() *curve {
	var best *curve
	for i := range h.curves {
		if best == nil || Place(h.curves[i].kind) < Place(best.kind) {
			best = &h.curves[i]
		}
	}
	return best
}

// Place returns where a curve of a kind is among others.
func Place(kind string) int {
	return slices.Index([]string{KindReward, kindThroughput, kindStaleness, KindUsage, KindOther}, kind)
}

// Curves returns all curves, and the throughput by replicas of the last report.
func (h *History) Curves() []api.Curve {
	all := make([]api.Curve, 0, len(h.curves)+1)
	for i := range h.curves {
		all = append(all, h.curves[i].shown())
	}
	slices.SortStableFunc(all, func(a, b api.Curve) int { return cmp.Compare(Place(a.Kind), Place(b.Kind)) })
	if points := byReplicas(h.report); len(points) > 0 {
		all = append(all, api.Curve{Name: "throughput", Kind: kindThroughput, Unit: "1/s", X: "replicas", Points: points})
	}
	return all
}

// Report returns the last report as indented JSON.
func (h *History) Report() string {
	var text bytes.Buffer
	if len(h.report) == 0 || json.Indent(&text, h.report, "", "  ") != nil {
		return ""
	}
	return text.String()
}

type number struct {
	name, kind, unit string
	value            float64
}

// numbersOf returns the numbers at the top of a report, and its progress, the most important first. The one that the report names as
// its curve counts as the reward. The order of its fields tells nothing: the API server sorts them.
func numbersOf(raw []byte) []number {
	var report map[string]json.RawMessage
	if json.Unmarshal(raw, &report) != nil {
		return nil
	}
	var named string
	if json.Unmarshal(report["curve"], &named) != nil {
		named = ""
	}
	var found []number
	for name, value := range report {
		var parsed float64
		if name != "version" && name != "role" && len(name) <= 63 && json.Unmarshal(value, &parsed) == nil && string(value) != "null" {
			kind, unit := KindOf(name)
			found = append(found, number{name, kind, unit, parsed})
		}
	}
	var progress struct {
		Done *float64
		Unit string
	}
	if json.Unmarshal(report["progress"], &progress) == nil && progress.Done != nil {
		found = append(found, number{"progress", KindOther, short(progress.Unit), *progress.Done})
	}
	if points := byReplicas(raw); len(points) > 0 {
		// The newest measurement is the last one.
		found = append(found, number{"throughput", kindThroughput, "1/s", lastMeasured(raw)})
	}
	return sorted(found, named)
}

// sorted returns each number once, the most important first. The named one counts as a reward that is before others.
func sorted(found []number, named string) []number {
	place := func(of *number) int {
		if of.name == named {
			return -1
		}
		return Place(of.kind)
	}
	slices.SortFunc(found, func(a, b number) int {
		return cmp.Or(cmp.Compare(place(&a), place(&b)), cmp.Compare(a.name, b.name))
	})
	for i := range found {
		if found[i].name == named {
			found[i].kind = KindReward
		}
	}
	return slices.CompactFunc(found, func(a, b number) bool { return a.name == b.name })
}

// KindOf returns the kind of what is reported by a name, and its unit.
func KindOf(name string) (kind, unit string) {
	lower := strings.ToLower(name)
	contains := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(lower, text) })
	}
	switch {
	case contains("reward", "return", "score"):
		return KindReward, ""
	case contains("throughput", "per_second", "fps", "samples_per"):
		return kindThroughput, "1/s"
	case contains("staleness"):
		return kindStaleness, "versions"
	}
	return KindOther, ""
}

// measured is the part of docs/profilings.md that measures throughput.
type measured struct {
	Steps []struct {
		Replicas, Samples, Seconds float64
	}
	Throughput []struct {
		Replicas  float64
		PerSecond float64 `json:"per_second"`
	}
}

// points returns the measurements, the newest last, as replicas and rates.
func (m *measured) points() [][2]float64 {
	var points [][2]float64
	for _, step := range m.Steps {
		if step.Seconds > 0 && step.Replicas > 0 {
			points = append(points, [2]float64{step.Replicas, step.Replicas * step.Samples / step.Seconds})
		}
	}
	for _, rate := range m.Throughput {
		if len(m.Steps) == 0 && rate.Replicas > 0 {
			points = append(points, [2]float64{rate.Replicas, rate.PerSecond})
		}
	}
	return points[max(0, len(points)-mostSteps):]
}

func measuredOf(raw []byte) [][2]float64 {
	var report measured
	if len(raw) == 0 || json.Unmarshal(raw, &report) != nil {
		return nil
	}
	return report.points()
}

// byReplicas returns the newest rate of each number of replicas.
func byReplicas(raw []byte) [][2]float64 {
	newest := map[float64]float64{}
	for _, point := range measuredOf(raw) {
		newest[point[0]] = point[1]
	}
	points := make([][2]float64, 0, len(newest))
	for replicas, rate := range newest {
		points = append(points, [2]float64{replicas, rate})
	}
	slices.SortFunc(points, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
	return points
}

func lastMeasured(raw []byte) float64 {
	points := measuredOf(raw)
	return points[len(points)-1][1]
}
