// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var (
	// randomObjects is the number of random objects for each round trip; a long run sets more.
	randomObjects = flag.Int("conversion.objects", 2_000, "random objects for each round trip")
	// firstSeed makes a run repeatable. Another seed generates other objects.
	firstSeed = flag.Int64("conversion.seed", 1, "seed of the first thousand random objects; each next thousand has the next")
)

// shardSize is the number of objects of one seed.
const shardSize = 1000

// decode returns JSON as plain values, with numbers as they are written.
func decode(tb testing.TB, raw []byte) map[string]any {
	tb.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	value := map[string]any{}
	if err := decoder.Decode(&value); err != nil {
		tb.Fatalf("decoding %s: %v", raw, err)
	}
	return value
}

func encode(tb testing.TB, value any) []byte {
	tb.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		tb.Fatalf("encoding %v: %v", value, err)
	}
	return raw
}

// mustConvert converts a job. It checks that metadata stays and that the result fits the type of
// the desired version.
func mustConvert(tb testing.TB, job map[string]any, apiVersion string) []byte {
	tb.Helper()
	converted, err := Convert(encode(tb, job), apiVersion)
	if err != nil {
		tb.Fatalf("converting %s to %s: %v", encode(tb, job), apiVersion, err)
	}
	var head struct {
		APIVersion, Kind string
		Metadata         json.RawMessage
	}
	if err := json.Unmarshal(converted, &head); err != nil || head.APIVersion != apiVersion || head.Kind != job["kind"] {
		tb.Fatalf("%s became %s, wanted %s: %v", encode(tb, job), converted, apiVersion, err)
	}
	metadata, ok := job["metadata"]
	if ok != (head.Metadata != nil) || ok && !bytes.Equal(encode(tb, metadata), head.Metadata) {
		tb.Fatalf("metadata changed: %s became %s", encode(tb, job), converted)
	}
	var typed any = new(v2alpha1.DIJob)
	if apiVersion == v1alpha1.GroupVersion.String() {
		typed = new(v1alpha1.DIJob)
	}
	if err := json.Unmarshal(converted, typed); err != nil {
		tb.Fatalf("%s became %s, which no typed client reads: %v", encode(tb, job), converted, err)
	}
	return converted
}

// roundTrip converts a job of the version own to the other version and back, and compares.
func roundTrip(tb testing.TB, job map[string]any, other, own string) {
	tb.Helper()
	seen := mustConvert(tb, job, other)
	back, err := Convert(seen, own)
	if err != nil {
		tb.Fatalf("converting %s back to %s: %v", seen, own, err)
	}
	if got := decode(tb, back); !reflect.DeepEqual(job, got) {
		tb.Fatalf("the round trip through %s\n%s\nchanged (-want +got):\n%s", other, seen, cmp.Diff(job, got))
	}
}

// forRandomJobs checks as many random jobs as the flag specifies, in parallel, with a thousand for
// each seed. To repeat a failed seed use -run TestName/seed=N. -v shows the progress of a long run.
func forRandomJobs(t *testing.T, check func(tb testing.TB, g *generator)) {
	t.Helper()
	var done atomic.Int64
	began := time.Now()
	for first := 0; first < *randomObjects; first += shardSize {
		seed := *firstSeed + int64(first/shardSize)
		size := min(shardSize, *randomObjects-first)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			g := newGenerator(seed)
			for range size {
				check(t, g)
			}
			all := done.Add(int64(size))
			t.Logf("%d of %d objects, %.0f a second", all, *randomObjects, float64(all)/time.Since(began).Seconds())
		})
	}
}

func TestEveryV2JobComesBackFromV1Unchanged(t *testing.T) {
	t.Parallel()
	forRandomJobs(t, func(tb testing.TB, g *generator) {
		tb.Helper()
		roundTrip(tb, g.hub(tb), v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String())
	})
}

// TestEveryV1JobComesBackFromV2Unchanged uses jobs without extended. Every fourth job has the
// extended that conversion wrote.
func TestEveryV1JobComesBackFromV2Unchanged(t *testing.T) {
	t.Parallel()
	forRandomJobs(t, func(tb testing.TB, g *generator) {
		tb.Helper()
		roundTrip(tb, g.anyV1(tb), v2alpha1.GroupVersion.String(), v1alpha1.GroupVersion.String())
	})
}

func TestNothingIsLostOfRandomJobs(t *testing.T) {
	t.Parallel()
	g := newGenerator(*firstSeed)
	for range min(*randomObjects, shardSize) {
		job := g.anyV1(t)
		if lost, err := Lost(encode(t, job)); err != nil || lost != nil {
			t.Fatalf("%s loses %v, %v", encode(t, job), lost, err)
		}
	}
}

func TestTypedHelpersAgreeBothWays(t *testing.T) {
	t.Parallel()
	fill := filler(-7)
	for range *randomObjects / 20 {
		job := &v2alpha1.DIJob{}
		fill.Fill(job)
		job.APIVersion, job.Kind = v2alpha1.GroupVersion.String(), "DIJob"
		// The typed v1alpha1 always writes a coordinator.
		job.Spec.Tasks = append([]v2alpha1.Task{{Type: v2alpha1.TaskTypeCoordinator}}, job.Spec.Tasks...)
		seen, err := FromHub(job)
		expect.NoError(t, err)
		back, err := ToHub(seen)
		expect.NoError(t, err)
		// The typed v1alpha1 drops counts of zero.
		job.Status.TaskStatus, back.Status.TaskStatus = nil, nil
		expect.MustEqual(t, "the job changed", decode(t, encode(t, job)), decode(t, encode(t, back)))
	}
}
