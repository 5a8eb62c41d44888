// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"
)

// Span is a time and the distance of its points.
type Span struct {
	Start, End time.Time
	Step       time.Duration
}

// points returns how many points a curve may have.
func (s Span) points() int { return int(s.End.Sub(s.Start)/s.Step) + 1 }

// Curve is a series over a span. Values that are no numbers are left out.
type Curve struct {
	Labels map[string]string
	Points []Point
}

// Point is a value at a time.
type Point struct {
	At    time.Time
	Value float64
}

// Curves returns the series of a query over a span, at most so many.
func (c *Client) Curves(ctx context.Context, query string, over Span, most int) ([]Curve, error) {
	content, status, err := c.post(ctx, "query_range", url.Values{
		"query": {query}, "start": {seconds(over.Start)}, "end": {seconds(over.End)}, "step": {strconv.FormatFloat(over.Step.Seconds(), 'f', -1, 64)},
	}, maxRange)
	if err != nil {
		return nil, err
	}
	return readCurves(content, status, over, most)
}

// seconds returns a time as the API takes it.
func seconds(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
}

// readCurves returns the curves of an answer with a status.
func readCurves(content []byte, status int, over Span, most int) ([]Curve, error) {
	got, err := decode(content, status)
	if err != nil {
		return nil, err
	}
	if got.Data.Type != "matrix" {
		return nil, fmt.Errorf("the query has a result of type %.20q: must be curves", got.Data.Type)
	}
	var series []struct {
		Metric map[string]string `json:"metric"`
		Values []value           `json:"values"`
	}
	if err := json.Unmarshal(got.Data.Result, &series); err != nil {
		return nil, errors.New("the matrix in the answer of Prometheus cannot be read")
	}
	if len(series) > most {
		return nil, fmt.Errorf("the query has %d series: must be at most %d, such as by sum()", len(series), most)
	}
	curves := make([]Curve, 0, len(series))
	for _, one := range series {
		if len(one.Values) > over.points() {
			return nil, fmt.Errorf("a series in the answer of Prometheus has %d points: must be at most %d", len(one.Values), over.points())
		}
		curve := Curve{Labels: one.Metric}
		if curve.Points, err = pointsOf(one.Values, over); err != nil {
			return nil, err
		}
		curves = append(curves, curve)
	}
	return curves, nil
}

func pointsOf(values []value, over Span) ([]Point, error) {
	points := make([]Point, 0, len(values))
	for _, one := range values {
		var at float64
		if err := json.Unmarshal(one[0], &at); err != nil {
			return nil, errors.New("a time in the answer of Prometheus cannot be read")
		}
		if at < float64(over.Start.Unix()) || at > float64(over.End.Unix()+1) {
			return nil, fmt.Errorf("a time in the answer of Prometheus is %g: must be in the span that was asked for", at)
		}
		number, err := one.number()
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(number) && !math.IsInf(number, 0) {
			points = append(points, Point{At: time.UnixMilli(int64(at * 1000)).UTC(), Value: number})
		}
	}
	return points, nil
}
