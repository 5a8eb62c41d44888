// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/allocation/topology"
	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/controllers/dijob/jobmetrics"
	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/internal/configfile"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/upgrade/storagemigration"
	"opendilab.org/di-orchestrator/upgrade/takeover"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

func TestWrongFlagsAreRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"a log level that is none": {
			[]string{"server", "--log-level", "loud"},
			[]string{"--log-level", `"loud"`, "debug, info, warn or error"},
		},
		"shards without an election": {
			[]string{"operator", configured(t, "operator: {shards: 2}")},
			[]string{"operator.shards: 2 shards", "need --leader-elect", "configuration-"},
		},
		"a policy that is none": {
			[]string{"operator", configured(t, "operator: {allocator: {policy: pollux}}")},
			[]string{`operator.allocator.policy: "pollux"`, "fit, goodput, mine"},
		},
		"a token without TLS": {
			[]string{"operator", configured(t, "operator: {autoscaler: {optimizer: {url: \"http://optimizer\", tokenFile: token}}}")},
			[]string{"operator.autoscaler.optimizer", "https"},
		},
		"a field that is none, of the webhooks": {
			[]string{"webhook", configured(t, "common: {identity: enforce}")},
			[]string{"--config", "common.identity: Forbidden", "configuration-"},
		},
		"a file that is none": {
			[]string{"server", "--config", "none.yaml"},
			[]string{"--config", "none.yaml"},
		},
		"a flag that is a field now": {
			[]string{"operator", "--kube-api-qps=1000"},
			[]string{"--kube-api-qps is no flag any longer", "--config", "common.kubeAPIQPS"},
		},
		"a flag without a value that is a field now": {
			[]string{"server", "--metrics-secure"},
			[]string{"--metrics-secure", "common.secureMetrics"},
		},
		"a flag that is gone": {
			[]string{"webhook", "--webhook-service=mine"},
			[]string{"--webhook-service", "remove it"},
		},
		"a flag that was never one": {
			[]string{"operator", "--shard=2"},
			[]string{"unknown flag: --shard"},
		},
		"a command that is none": {
			[]string{"serve"},
			[]string{`"serve"`, "server"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := newCommand("dev", Policies{"mine": fit.Fit{}})
			command.SetArgs(tc.args)
			command.SetOut(&bytes.Buffer{})
			command.SetErr(&bytes.Buffer{})
			err := command.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("got no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %q, want it to say %s", err, part)
				}
			}
		})
	}
}

func TestALinkedPolicyHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	choose := func(configured string, linked Policies) (operatorOptions, error) {
		options := operatorOptions{processOptions: processOptions{config: configv1alpha1.Defaults()}, linked: linked}
		options.config.Operator.Allocator.Policy = configured
		err := options.choosePolicy()
		return options, err
	}
	for _, name := range []string{"fit", "goodput", ""} {
		if _, err := choose("fit", Policies{name: fit.Fit{}}); err == nil || !strings.Contains(err.Error(), "fit, goodput") {
			t.Errorf("a linked policy may have the name %q: %v", name, err)
		}
	}
	mine := fit.Fit{GrowAfter: time.Hour}
	if options, err := choose("mine", Policies{"mine": mine}); err != nil || options.policy != mine {
		t.Errorf("the linked policy is not found: %v, %v", options.policy, err)
	}
}

func TestEveryFlagThatMovedNamesAField(t *testing.T) {
	t.Parallel()
	programs := newCommand("dev", nil)
	for name, where := range configfile.FormerFlags() {
		for _, program := range []string{"operator", "webhook", "server"} {
			command, _, err := programs.Find([]string{program})
			if err != nil || command.Flags().Lookup(name) != nil {
				t.Errorf("%s still has flag --%s: %v", program, name, err)
			}
		}
		path, _, _ := strings.Cut(where, ",")
		if path != "" && !isField(reflect.TypeFor[configv1alpha1.Configuration](), strings.Split(path, ".")) {
			t.Errorf("--%s has moved to %s, which is no field", name, path)
		}
	}
}

// isField reports whether a path leads to a field of a type.
func isField(of reflect.Type, path []string) bool {
	for _, name := range path {
		if of.Kind() != reflect.Struct {
			return false
		}
		found := false
		for field := range of.Fields() {
			if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
				of, found = field.Type, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

func TestTheAllocatorHasTheSettingsOfTheFile(t *testing.T) {
	t.Parallel()
	config, err := configfile.Parse([]byte("apiVersion: config.diengine.opendilab.org/v1alpha1\nkind: Configuration\n" +
		"operator: {allocator: {cycle: 7s, topology: [zone, rack], tenants: [{name: vision}]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := &operatorOptions{processOptions: processOptions{config: config, namespace: names.SystemNamespace}}
	got := o.allocatorOptions()
	want := allocator.Options{
		PolicyName: "fit", Cycle: 7 * time.Second, MaxPods: 5000, Topology: []string{"zone", "rack"}, Tenants: []shares.Tenant{{Name: "vision"}},
		Groups: types.NamespacedName{Namespace: names.SystemNamespace, Name: names.AllocationGroups},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-file +allocator):\n%s", diff)
	}
	if model.MaxSpan != topology.MaxLevels+1 {
		t.Errorf("a model has %d spans: must be one more than the %d levels", model.MaxSpan, topology.MaxLevels)
	}
	for count, isFine := range map[int]bool{topology.MaxLevels: true, topology.MaxLevels + 1: false} {
		_, err := configfile.Parse([]byte("apiVersion: config.diengine.opendilab.org/v1alpha1\nkind: Configuration\n" +
			"operator: {allocator: {topology: [" + strings.Join(strings.Split("abcdefgh"[:count], ""), ",") + "]}}\n"))
		if (err == nil) != isFine {
			t.Errorf("%d levels: got %v", count, err)
		}
	}
}

// The file has defaults and bounds of packages that it cannot import.
func TestTheDefaultsAndBoundsOfTheFileAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	defaults := configv1alpha1.Defaults()
	o := &operatorOptions{processOptions: processOptions{config: defaults, namespace: names.SystemNamespace}}
	settings := workload.Settings{}.Defaults()
	settings.PriorityClasses, settings.JobVersion, settings.InlineNodes = o.settings().PriorityClasses, "", 0
	if diff := cmp.Diff(settings, o.settings()); diff != "" {
		t.Errorf("settings of pods (-code +file):\n%s", diff)
	}
	if diff := cmp.Diff(server.DefaultLimits(), limitsOf(&defaults.Server.Limits), cmpopts.IgnoreFields(server.Limits{}, "ConnectionsPerAddress")); diff != "" {
		t.Errorf("limits of di-server (-code +file):\n%s", diff)
	}
	operator := &defaults.Operator
	for what, same := range map[string]bool{
		"workers":   int(operator.Workers) == dijob.DefaultWorkers,
		"cycle":     operator.Allocator.Cycle.Duration == allocator.DefaultCycle,
		"fairness":  operator.Allocator.Fairness == goodput.DefaultSettings().Fairness,
		"devices":   operator.Allocator.DeviceLabel == goodput.DefaultSettings().DeviceKey,
		"timeout":   operator.Autoscaler.Optimizer.Timeout.Duration == remote.DefaultTimeout,
		"probes":    operator.ProbeInterval.Duration == admissionprobe.DefaultInterval,
		"memory":    operator.AutoscaleMaxMemory.Equal(state.DefaultMaxMemory()),
		"resize":    operator.PodResizeTimeout.Duration == state.DefaultResizeTimeout,
		"history":   defaults.History.RequireTimeout.Duration == state.DefaultHistoryTimeout,
		"settle":    operator.StorageMigration.Settle.Duration == storagemigration.DefaultSettle,
		"takeover":  operator.TakeoverSettle.Duration == takeover.DefaultSettle,
		"namespace": defaults.Common.AggregatorConfig == names.AggregatorConfig,
	} {
		if !same {
			t.Errorf("the file has another default of %s", what)
		}
	}
	for field, maximum := range map[string]int{"shards": shards.Max, "metricsNamespaces": jobmetrics.MaxNamespaces} {
		for more, isFine := range map[int]bool{0: true, 1: false} {
			_, err := configfile.Parse(fmt.Appendf(nil, "apiVersion: %s\nkind: %s\noperator: {%s: %d}", defaults.APIVersion, defaults.Kind, field, maximum+more))
			if (err == nil) != isFine {
				t.Errorf("%s: %d: got %v", field, maximum+more, err)
			}
		}
	}
	for _, setting := range gang.Settings() {
		if _, err := configfile.Parse(fmt.Appendf(nil, "apiVersion: %s\nkind: %s\noperator: {gangs: {scheduler: %s}, forceDeleteAfter: %s}",
			defaults.APIVersion, defaults.Kind, setting, upkeep.MinForceDeleteAfter)); err != nil {
			t.Error(err)
		}
	}
}
