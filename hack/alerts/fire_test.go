// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// situation contains the series that Prometheus scrapes once a minute, in the notation of
// promtool's tests, and the minutes after which an alert must fire, or must not fire yet.
type situation struct {
	series  string
	minutes int
	fires   bool
}

// situations returns the situations for each alert.
func situations() map[string]map[string]situation {
	return map[string]map[string]situation{
		"DIOrchestratorOperatorAbsent": {
			"no operator tells of jobs":   {`up 1x20`, 6, true},
			"one was away for a moment":   {`di_orchestrator_jobs{phase="Running"} 1x2 _ _ 1x20`, 10, false},
			"it has been gone for longer": {`di_orchestrator_jobs{phase="Running"} 1x2 _x20`, 18, true},
		},
		"DIOrchestratorConversionFails": {
			"some fail":        {`di_orchestrator_conversions_total{from="v1alpha1",to="v2alpha1",result="failed"} 0+3x20`, 10, true},
			"none fails":       {`di_orchestrator_conversions_total{from="v1alpha1",to="v2alpha1",result="converted"} 0+3x20`, 10, false},
			"some failed once": {`di_orchestrator_conversions_total{from="v1alpha1",to="v2alpha1",result="failed"} 0 5x20`, 18, false},
		},
		"DIOrchestratorConversionPanics": {
			"one panics":  {`di_orchestrator_conversion_panics_total 0x5 1x20`, 10, true},
			"none panics": {`di_orchestrator_conversion_panics_total 0x30`, 10, false},
		},
		"DIOrchestratorConversionSlow": {
			"reviews take six seconds": {histogram("di_orchestrator_conversion_review_duration_seconds", `code="200"`, "2.5", "6"), 25, true},
			"reviews take one":         {histogram("di_orchestrator_conversion_review_duration_seconds", `code="200"`, "0.5", "1"), 25, false},
		},
		"DIOrchestratorReconcileFails": {
			"the controller fails all the time": {`controller_runtime_reconcile_errors_total{controller="dijob"} 0+60x60`, 40, true},
			"it fails now and then":             {`controller_runtime_reconcile_errors_total{controller="dijob"} 0+1x60`, 40, false},
			"another one fails":                 {`controller_runtime_reconcile_errors_total{controller="other"} 0+60x60`, 40, false},
		},
		"DIOrchestratorQueueGrows": {
			"hundreds wait":           {`workqueue_depth{name="dijob",controller="dijob",priority="0"} 300x30`, 20, true},
			"hundreds wait briefly":   {`workqueue_depth{name="dijob",controller="dijob",priority="0"} 300x5 3x30`, 20, false},
			"a few wait all the time": {`workqueue_depth{name="dijob",controller="dijob",priority="0"} 20x30`, 20, false},
		},
		"DIOrchestratorJobsRestart": {
			"one reason restarts many": {`di_orchestrator_job_restarts_total{lifecycle="WorkerLed",reason="OOMKilled"} 0+1x80`, 60, true},
			"each reason restarts few": {`
				di_orchestrator_job_restarts_total{lifecycle="WorkerLed",reason="OOMKilled"} 0x40 10x40
				di_orchestrator_job_restarts_total{lifecycle="WorkerLed",reason="Error"} 0x40 15x40`, 60, false},
		},
		"DIOrchestratorServerRefusesCalls": {
			"somebody is refused all the time": {`di_orchestrator_server_calls_total{identity="none",decision="refused"} 0+2x60`, 40, true},
			"all are let in":                   {`di_orchestrator_server_calls_total{identity="token",decision="allowed"} 0+2x60`, 40, false},
		},
		"DIOrchestratorProbeFails": {
			"no probe comes through": {probes("0x30", "0+2x30"), 10, true},
			"they did a minute ago":  {probes("0+2x30", "0x28 2 4"), 30, false},
			"one in ten fails":       {probes("0+9x30", "0+1x30"), 20, false},
			"nothing is probed":      {`up 1x30`, 20, false},
		},
		"DIOrchestratorTakeoverStalled": {
			"a pod of the earlier operator does not end": {`di_orchestrator_takeover_waiting_seconds{step="AwaitOperator"} 0+60x20`, 5, true},
			"it takes its time":                          {`di_orchestrator_takeover_waiting_seconds{step="AwaitServer"} 0 45 0 45 0x20`, 10, false},
			"it went on":                                 {`di_orchestrator_takeover_waiting_seconds{step="AwaitOperator"} 0+60x5 stale`, 20, false},
			"nothing is taken over":                      {`up 1x20`, 10, false},
		},
		"DIOrchestratorServerFails": {
			"a route fails half the time": {requests("fault", "0+10x30", "0+10x30"), 20, true},
			"it can do nothing now":       {requests("later", "0+10x30", "0+10x30"), 20, true},
			"a policy denies its writes":  {requests("refused", "0+10x30", "0+10x30"), 20, true},
			"one request in a hundred":    {requests("fault", "0+99x30", "0+1x30"), 20, false},
			"callers ask for nonsense":    {requests("400", "0+1x30", "0+99x30"), 20, false},
		},
		"DIOrchestratorServerWatchBroken": {
			"one of two servers does not watch": {`
				di_orchestrator_server_watch_open{resource="pods",pod="a"} 1x20
				di_orchestrator_server_watch_open{resource="pods",pod="b"} 0x20`, 5, true},
			"it opens the watch again": {`di_orchestrator_server_watch_open{resource="pods"} 1x5 0 1x20`, 10, false},
		},
		"DIOrchestratorAllocatorFails": {
			"rounds fail":               {rounds("0x40", "0+5x40"), 30, true},
			"a few fail":                {rounds("0+9x40", "0+1x40"), 30, false},
			"there is nothing to place": {rounds("0x40", "0x40"), 30, false},
		},
		"DIOrchestratorJobsLaunchSlowly": {
			"first pods take half an hour": {histogram("di_orchestrator_job_first_pod_ready_delay_seconds", `lifecycle="WorkerLed"`, "600", "1800"), 100, true},
			"first pods take a minute":     {histogram("di_orchestrator_job_first_pod_ready_delay_seconds", `lifecycle="WorkerLed"`, "30", "60"), 100, false},
			"no job is made":               {`up 1x120`, 100, false},
		},
		"DIOrchestratorJobsStuck": {
			"an image is missing for an hour":       {`di_orchestrator_stalled_job_seconds{job_namespace="team-a",reason="ImagePull"} 0+60x80`, 40, true},
			"it came after twenty minutes":          {`di_orchestrator_stalled_job_seconds{job_namespace="team-a",reason="ImagePull"} 0+60x20 stale`, 60, false},
			"one job after the other waits briefly": {`di_orchestrator_stalled_job_seconds{job_namespace="other",reason="Unschedulable"} 0 600 0 600 0 600x3 0x60`, 60, false},
			"no job is stalled":                     {`up 1x80`, 60, false},
		},
		"DIOrchestratorHistoryLags": {
			"changes wait for minutes":  {`di_orchestrator_history_lag_seconds 0+60x20`, 10, true},
			"they are recorded at once": {`di_orchestrator_history_lag_seconds 1x20`, 10, false},
			"they waited once":          {`di_orchestrator_history_lag_seconds 0 0 90 0x20`, 10, false},
			"there is no history":       {`up 1x20`, 10, false},
		},
		"DIOrchestratorHistoryFails": {
			"the database is away":          {`di_orchestrator_history_failures_total{step="record"} 0+2x30`, 15, true},
			"it was away for a moment":      {`di_orchestrator_history_failures_total{step="record"} 0 3x30`, 15, false},
			"it answers":                    {`di_orchestrator_history_failures_total{step="record"} 0x30`, 15, false},
			"the limits are not kept":       {`di_orchestrator_history_failures_total{step="upkeep"} 0+1x30`, 15, true},
			"another program does not work": {`up 1x30`, 15, false},
		},
		"DIOrchestratorHistoryFull": {
			"it is almost full": {`
				di_orchestrator_history_database_bytes 95x90
				di_orchestrator_history_database_limit_bytes 100x90`, 80, true},
			"half of it is used": {`
				di_orchestrator_history_database_bytes 50x90
				di_orchestrator_history_database_limit_bytes 100x90`, 80, false},
			"there is no limit": {`di_orchestrator_history_database_bytes 95x90`, 80, false},
		},
	}
}

// histogram returns the series of a histogram whose observations all lie between two bounds.
func histogram(name, label, above, upTo string) string {
	return fmt.Sprintf(`
		%[1]s_bucket{%[2]s,le="%[3]s"} 0x120
		%[1]s_bucket{%[2]s,le="%[4]s"} 0+5x120
		%[1]s_bucket{%[2]s,le="+Inf"} 0+5x120`, name, label, above, upTo)
}

func probes(good, bad string) string {
	return fmt.Sprintf(`
		di_orchestrator_probes_total{result="ok"} %s
		di_orchestrator_probes_total{result="webhook"} %s`, good, bad)
}

func requests(code, good, bad string) string {
	return fmt.Sprintf(`
		di_orchestrator_server_requests_total{route="/v1alpha1/replicas",method="GET",code="200"} %s
		di_orchestrator_server_requests_total{route="/v1alpha1/replicas",method="GET",code="%s"} %s`, good, code, bad)
}

func rounds(good, bad string) string {
	return fmt.Sprintf(`
		di_orchestrator_allocator_rounds_total{result="done"} %s
		di_orchestrator_allocator_rounds_total{result="failed"} %s`, good, bad)
}

func TestEachAlertFiresWhenItShouldAndNotOtherwise(t *testing.T) {
	t.Parallel()
	all := situations()
	for name, rule := range alerts(t) {
		fires := map[bool]bool{}
		for when, each := range all[name] {
			fires[each.fires] = true
			t.Run(name+": "+when, func(t *testing.T) {
				t.Parallel()
				expression, err := newParser().ParseExpr(rule.Expr)
				if err != nil {
					t.Fatal(err)
				}
				alert := rules.NewAlertingRule(rule.Alert, expression, time.Duration(rule.For), 0,
					labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
				if got := state(t, alert, each); (got == rules.StateFiring) != each.fires {
					t.Errorf("after %d minutes it is %s", each.minutes, got)
				}
			})
		}
		if !fires[true] || !fires[false] {
			t.Errorf("%s is not shown both when it fires and when it does not", name)
		}
		delete(all, name)
	}
	for name := range all {
		t.Errorf("there is no alert %s", name)
	}
}

// state evaluates an alert each minute and returns its last state.
func state(t *testing.T, alert *rules.AlertingRule, in situation) rules.AlertState {
	t.Helper()
	// A blank line would end the list of series.
	var load strings.Builder
	load.WriteString("load 1m")
	for series := range strings.Lines(in.series) {
		if series = strings.TrimSpace(series); series != "" {
			load.WriteString("\n  " + series)
		}
	}
	storage := promqltest.LoadedStorage(t, load.String())
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, 1_000_000), storage)
	for minute := range in.minutes + 1 {
		at := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute)
		if _, err := alert.Eval(t.Context(), 0, at, query, &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
		// A rule group sets it too. Without it the state is unknown.
		alert.SetEvaluationTimestamp(at)
	}
	return alert.State()
}
