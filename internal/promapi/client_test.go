// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package promapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAQueryHasOneValue(t *testing.T) {
	t.Parallel()
	vector := `{"status":"success","data":{"resultType":"vector","result":[%s]}}`
	for name, each := range map[string]struct {
		status         int
		answer, failed string
		want           float64
	}{
		"one series":     {200, fmt.Sprintf(vector, `{"metric":{},"value":[1,"12.5"]}`), "", 12.5},
		"a scalar":       {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"3"]}}`, "", 3},
		"no series":      {200, fmt.Sprintf(vector, ""), "the query has 0 series: must be one", 0},
		"two series":     {200, fmt.Sprintf(vector, `{"value":[1,"1"]},{"value":[1,"2"]}`), "the query has 2 series", 0},
		"a matrix":       {200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, `of type "matrix"`, 0},
		"an error":       {400, `{"status":"error","errorType":"execution","error":"secret"}`, "Prometheus cannot execute the query (execution)", 0},
		"a slow query":   {503, `{"status":"error","errorType":"timeout","error":"secret"}`, "takes Prometheus too long", 0},
		"another error":  {500, `{"status":"error","errorType":"secret","error":"secret"}`, "cannot answer now", 0},
		"a login page":   {200, "<html>", "is no JSON of its API", 0},
		"a long answer":  {200, strings.Repeat(" ", maxAnswer+1), "more than 65536 bytes", 0},
		"a value's lack": {200, fmt.Sprintf(vector, `{"value":[1]}`), "cannot be read", 0},
		"a redirect":     {302, "", "with status 302", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.URL.Path + " " + r.FormValue("query"); got != "/prom/api/v1/query sum(x)" {
					t.Errorf("got %s", got)
				}
				w.Header().Set("Location", "http://169.254.169.254/")
				w.WriteHeader(each.status)
				_, _ = w.Write([]byte(each.answer))
			}))
			defer server.Close()
			client, err := New(server.URL + "/prom/")
			expect.NoError(t, err)
			got, err := client.Query(t.Context(), "sum(x)")
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats Prometheus: %v", err)
			}
			if each.failed == "" && (err != nil || got != each.want) || each.failed != "" && (err == nil || !strings.Contains(err.Error(), each.failed)) {
				t.Errorf("got %g and error %v, want %g and %q", got, err, each.want, each.failed)
			}
		})
	}
}

func TestTheAddressIsThatOfAServer(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "prometheus:9090", "ftp://prometheus", "http://", "http://a?b=c"} {
		if _, err := New(address); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"12.5"]}]}}`, `{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`,
		`{"status":"error","errorType":"execution","error":"a series of others"}`, `{"status":"success","data":{"resultType":"vector","result":null}}`,
		`{"status":"success","data":{"resultType":"scalar","result":null}}`, `null`, ``,
	} {
		f.Add(seed, 200)
	}
	f.Fuzz(func(t *testing.T, content string, status int) {
		if _, err := read([]byte(content), status); err != nil && len(err.Error()) > 200 {
			t.Fatalf("the author of a query sees %d bytes of the answer: %v", len(err.Error()), err)
		}
	})
}

// minute is a minute with five points.
func minute() Span {
	start := time.Unix(1_800_000_000, 0).UTC()
	return Span{Start: start, End: start.Add(time.Minute), Step: 15 * time.Second}
}

func TestARangeHasBoundedCurves(t *testing.T) {
	t.Parallel()
	matrix := `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`
	point := `[1800000015.5,"2.5"],`
	for name, each := range map[string]struct {
		answer, failed string
		want           []Curve
	}{
		"a curve": {
			answer: fmt.Sprintf(matrix, `{"metric":{"role":"learner"},"values":[[1800000000,"NaN"],[1800000015.5,"2.5"],[1800000030,"+Inf"]]}`),
			want:   []Curve{{Labels: map[string]string{"role": "learner"}, Points: []Point{{time.UnixMilli(1_800_000_015_500).UTC(), 2.5}}}},
		},
		"no curve":        {answer: fmt.Sprintf(matrix, ""), want: []Curve{}},
		"too many curves": {answer: fmt.Sprintf(matrix, `{},{},{}`), failed: "the query has 3 series: must be at most 2"},
		"too many points": {
			answer: fmt.Sprintf(matrix, `{"values":[`+strings.TrimSuffix(strings.Repeat(point, 6), ",")+`]}`), failed: "has 6 points: must be at most 5",
		},
		"a vector":        {answer: `{"status":"success","data":{"resultType":"vector","result":[]}}`, failed: `of type "vector"`},
		"an error":        {answer: `{"status":"error","errorType":"timeout","error":"secret"}`, failed: "takes Prometheus too long"},
		"no number":       {answer: fmt.Sprintf(matrix, `{"values":[[1800000000,"x"]]}`), failed: "must be a number"},
		"no time":         {answer: fmt.Sprintf(matrix, `{"values":[["x","1"]]}`), failed: "a time in the answer"},
		"another time":    {answer: fmt.Sprintf(matrix, `{"values":[[1e300,"1"]]}`), failed: "must be in the span"},
		"a time's lack":   {answer: fmt.Sprintf(matrix, `{"values":[[]]}`), failed: "cannot be read"},
		"far too much":    {answer: strings.Repeat(" ", maxRange+1), failed: "more than 2097152 bytes"},
		"another's pages": {answer: "<html>", failed: "is no JSON of its API"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got := r.URL.Path + " " + r.FormValue("query") + " " + r.FormValue("start") + " " + r.FormValue("end") + " " + r.FormValue("step")
				if want := "/prom/api/v1/query_range sum(x) 1800000000.000 1800000060.000 15"; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				_, _ = w.Write([]byte(each.answer))
			}))
			defer server.Close()
			client, err := New(server.URL + "/prom/")
			expect.NoError(t, err)
			got, err := client.Curves(t.Context(), "sum(x)", minute(), 2)
			if each.failed != "" && (err == nil || !strings.Contains(err.Error(), each.failed)) || each.failed == "" && err != nil {
				t.Errorf("got error %v, want %q", err, each.failed)
			}
			if diff := cmp.Diff(each.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func FuzzCurves(f *testing.F) {
	f.Add(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"role":"a"},"values":[[1800000000,"2"],[1e300,"3"]]}]}}`, 200)
	f.Add(`{"status":"success","data":{"resultType":"matrix","result":null}}`, 200)
	f.Add(`{"status":"error","errorType":"execution","error":"a series of others"}`, 422)
	f.Fuzz(func(t *testing.T, content string, status int) {
		curves, err := readCurves([]byte(content), status, minute(), 2)
		if err != nil {
			return
		}
		if _, err := json.Marshal(curves); err != nil || len(curves) > 2 {
			t.Fatalf("%d curves that the page cannot send: %v", len(curves), err)
		}
	})
}
