// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	both := []Version{{"v1alpha1", true}, {"v2alpha1", true}}
	stopped := []Version{{"v1alpha1", false}, {"v2alpha1", true}}
	stored := []string{"v1alpha1", "v2alpha1"}
	for name, tc := range map[string]struct {
		change func(*Observed)
		want   Step
	}{
		"all is stored as wanted":                  {func(*Observed) {}, StepRest},
		"nothing is done before the takeover":      {func(o *Observed) { o.Storage, o.TakenOver = "v1alpha1", false }, StepWait},
		"a definition without an operator is left": {func(o *Observed) { o.Storage, o.Retired = "v1alpha1", true }, StepRest},
		"one version needs nothing":                {func(o *Observed) { o.Versions = both[:1] }, StepRest},
		"another is stored":                        {func(o *Observed) { o.Storage = "v1alpha1" }, StepSwitch},
		"owners follow the way forward":            {func(o *Observed) { o.Storage, o.Misversioned = "v1alpha1", 1 }, StepSwitch},
		"owners go before the way back":            {func(o *Observed) { o.Wanted, o.Misversioned = "v1alpha1", 1 }, StepMoveOwners},
		"the way back would misrun a job":          {func(o *Observed) { o.Wanted, o.Misrun = "v1alpha1", []string{"a"} }, StepBlock},
		"an unknown version":                       {func(o *Observed) { o.Wanted = "v3" }, StepBlock},
		"a switched one begins":                    {func(o *Observed) { o.Stored = stored }, StepBegin},
		"a record of another target is of no use":  {func(o *Observed) { o.Stored, o.Record = stored, Record{Target: "v1alpha1", Phase: PhaseRewriting} }, StepBegin},
		"nor one since when it may have been another": {func(o *Observed) {
			o.Stored, o.Generation, o.Record = stored, 3, Record{Target: "v2alpha1", Generation: 1, Phase: PhaseRewriting}
		}, StepBegin},
		"nor one of a later definition": {func(o *Observed) {
			o.Stored, o.Generation, o.Record = stored, 1, Record{Target: "v2alpha1", Generation: 2, Phase: PhaseRewriting}
		}, StepBegin},
		"nor one of another definition": {func(o *Observed) {
			o.Stored, o.Definition, o.Record = stored, "new", Record{Target: "v2alpha1", Definition: "old", Phase: PhaseRewriting}
		}, StepBegin},
		"one change of something else is noted": {func(o *Observed) {
			o.Stored, o.Generation, o.Record = stored, 2, Record{Target: "v2alpha1", Generation: 1, Phase: PhaseRewriting}
		}, StepContinue},
		"a finished record neither": {func(o *Observed) { o.Stored, o.Record = stored, Record{Target: "v2alpha1", Phase: PhaseFinished} }, StepBegin},
		"API servers get time": {func(o *Observed) {
			o.Stored, o.Record = stored, Record{Target: "v2alpha1", Phase: PhaseSettling, Since: now}
		}, StepWait},
		"settled": {func(o *Observed) {
			o.Stored, o.Record = stored, Record{Target: "v2alpha1", Phase: PhaseSettling, Since: now.Add(-time.Minute)}
		}, StepRewrite},
		"pages follow": {func(o *Observed) { o.Stored, o.Record = stored, Record{Target: "v2alpha1", Phase: PhaseRewriting} }, StepRewrite},
		"all is written": {func(o *Observed) {
			o.Stored, o.Record = stored, Record{Target: "v2alpha1", Phase: PhaseRewriting, Listed: true}
		}, StepPrune},
		"what failed is left alone": {func(o *Observed) {
			o.Stored, o.Record = stored, Record{Target: "v2alpha1", Phase: PhaseRewriting, Listed: true, Failed: make([]Failure, 1), Tried: now}
		}, StepWait},
		"and tried again": {func(o *Observed) {
			o.Stored, o.Record = stored, Record{Target: "v2alpha1", Phase: PhaseRewriting, Listed: true, Failed: make([]Failure, 1), Tried: now.Add(-time.Hour)}
		}, StepRetry},
		"too much failed": {func(o *Observed) {
			o.Stored, o.Record = stored, Record{Target: "v2alpha1", Phase: PhaseRewriting, Failed: make([]Failure, MaxFailures), Tried: now.Add(-time.Hour)}
		}, StepRetry},
		"pruned":                        {func(o *Observed) { o.Record = Record{Target: "v2alpha1", Phase: PhaseRewriting, Listed: true} }, StepFinish},
		"owners are moved at the end":   {func(o *Observed) { o.Record, o.Misversioned = Record{Target: "v2alpha1", Phase: PhaseRewriting}, 1 }, StepMoveOwners},
		"a version must be stopped":     {func(o *Observed) { o.Stopped = "v1alpha1" }, StepStopServing},
		"but no owner may name it":      {func(o *Observed) { o.Stopped, o.Misversioned = "v1alpha1", 1 }, StepMoveOwners},
		"nor may it be stored":          {func(o *Observed) { o.Stopped, o.Stored = "v1alpha1", stored }, StepBegin},
		"nor wanted":                    {func(o *Observed) { o.Stopped, o.Wanted = "v1alpha1", "v1alpha1" }, StepBlock},
		"the other cannot be stopped":   {func(o *Observed) { o.Stopped = "v2alpha1" }, StepBlock},
		"a stopped version is cleaned":  {func(o *Observed) { o.Stopped, o.Versions = "v1alpha1", stopped }, StepClean},
		"and then it rests":             {func(o *Observed) { o.Stopped, o.Versions, o.Record.Cleaned = "v1alpha1", stopped, "v1alpha1" }, StepRest},
		"it is served again":            {func(o *Observed) { o.Versions, o.Record.Cleaned = stopped, "v1alpha1" }, StepServe},
		"which is recorded":             {func(o *Observed) { o.Record.Cleaned = "v1alpha1" }, StepFinish},
		"what blocked and does no more": {func(o *Observed) { o.Record.Blocked = "a reason" }, StepFinish},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &Observed{
				Resource: "dijobs", Versions: both, Storage: "v2alpha1", Stored: []string{"v2alpha1"}, Wanted: "v2alpha1",
				TakenOver: true, Now: now, Settle: time.Minute, Retry: time.Minute,
			}
			tc.change(o)
			if got := Decide(o); got.Step != tc.want {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}

func TestWhatBlocksTheWayBackIsCounted(t *testing.T) {
	t.Parallel()
	for want, jobs := range map[string][]string{
		"would not run 1 job as it is to be run: a: delete it, or let it finish":                                {"a"},
		"would not run 2 jobs as they are to be run: a; b: delete them, or let them finish":                     {"a", "b"},
		"would not run 6 jobs as they are to be run: a; b; c; d; e and 1 more: delete them, or let them finish": {"a", "b", "c", "d", "e", "f"},
	} {
		if got := misrunMessage("v1alpha1", jobs); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want it to end with %q", got, want)
		}
	}
}

func TestMisruns(t *testing.T) {
	t.Parallel()
	led := v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed, Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCoordinator}}}
	suspended, renamed, protected := led, led, led
	suspended.Suspend = ptr.To(true)
	protected.Disruption = &v2alpha1.Disruption{}
	renamed.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeCoordinator, Name: "boss"}}
	worker := v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner}}}
	scaled := worker
	scaled.Elastic = &v2alpha1.Elastic{Replicas: ptr.To[int32](4)}
	finished := v2alpha1.DIJobStatus{Phase: v2alpha1.JobSucceeded}
	for name, tc := range map[string]struct {
		job     v2alpha1.DIJob
		release Release
		want    []string
	}{
		"v0.2.2 runs what its coordinator leads": {v2alpha1.DIJob{Spec: led}, ReleaseV0, nil},
		"and not what workers lead":              {v2alpha1.DIJob{Spec: worker}, ReleaseV0, []string{"it is led by its workers"}},
		"unless that has finished":               {v2alpha1.DIJob{Spec: worker, Status: finished}, ReleaseV0, nil},
		"nor what is suspended":                  {v2alpha1.DIJob{Spec: suspended}, ReleaseV0, []string{"it does not know spec.suspend"}},
		"nor what has a budget":                  {v2alpha1.DIJob{Spec: protected}, ReleaseV0, []string{"it does not know spec.disruption"}},
		"nor names that it cannot say":           {v2alpha1.DIJob{Spec: renamed}, ReleaseV0, []string{"it does not know spec.tasks"}},
		"v1.1.3 runs what workers lead":          {v2alpha1.DIJob{Spec: worker}, ReleaseV1, nil},
		"and not what a coordinator leads":       {v2alpha1.DIJob{Spec: led}, ReleaseV1, []string{"it is led by its coordinator"}},
		"nor what was scaled": {
			v2alpha1.DIJob{Spec: scaled}, ReleaseV1, []string{"it does not know spec.elastic.replicas, which differs from the task's"},
		},
		"this one runs all": {v2alpha1.DIJob{Spec: worker}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, Misruns(&tc.job, tc.release)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestManagersOfAVersionAreTakenOut(t *testing.T) {
	t.Parallel()
	entry := func(version string) metav1.ManagedFieldsEntry { return metav1.ManagedFieldsEntry{APIVersion: version} }
	if kept, changed := WithoutManagers([]metav1.ManagedFieldsEntry{entry("b")}, "a"); changed || len(kept) != 1 {
		t.Errorf("got %v, %t", kept, changed)
	}
	if kept, changed := WithoutManagers([]metav1.ManagedFieldsEntry{entry("a"), entry("b")}, "a"); !changed || len(kept) != 1 || kept[0].APIVersion != "b" {
		t.Errorf("got %v, %t", kept, changed)
	}
	if kept, changed := WithoutManagers([]metav1.ManagedFieldsEntry{entry("a")}, "a"); !changed || len(kept) != 1 || kept[0].APIVersion != "" {
		t.Errorf("got %v, %t", kept, changed)
	}
}
