// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/internal/quantity"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// maxima returns the maximums in the schemas by resource, version and path.
func maxima() map[string]int64 {
	return map[string]int64{
		"dijobs v2alpha1 .spec.activeDeadlineSeconds":                    Seconds,
		"dijobs v2alpha1 .spec.aggregatorConfig.name":                    NameLength,
		"dijobs v2alpha1 .spec.aggregatorConfig.namespace":               LabelLength,
		"dijobs v2alpha1 .spec.cleanPodPolicy":                           LabelLength,
		"dijobs v2alpha1 .spec.clusterSpec":                              ClusterSpecs,
		"dijobs v2alpha1 .spec.disruption.maxUnavailable":                LabelLength,
		"dijobs v2alpha1 .spec.disruption.minAvailable":                  LabelLength,
		"dijobs v2alpha1 .spec.elastic.maxReplicas":                      Replicas,
		"dijobs v2alpha1 .spec.elastic.minReplicas":                      Replicas,
		"dijobs v2alpha1 .spec.elastic.replicas":                         Replicas,
		"dijobs v2alpha1 .spec.elastic.task":                             LabelLength,
		"dijobs v2alpha1 .spec.failurePolicy.rules":                      FailureRules,
		"dijobs v2alpha1 .spec.failurePolicy.rules[].onExitCodes.values": ExitCodes,
		"dijobs v2alpha1 .spec.failurePolicy.rules[].tasks":              TaskNames,
		"dijobs v2alpha1 .spec.failurePolicy.rules[].tasks[]":            LabelLength,
		"dijobs v2alpha1 .spec.group":                                    FreeTextLength,
		"dijobs v2alpha1 .spec.managedBy":                                LabelLength,
		"dijobs v2alpha1 .spec.mpi.slotsPerWorker":                       SlotsPerWorker,
		"dijobs v2alpha1 .spec.mpi.sshAuthMountPath":                     NameLength,
		"dijobs v2alpha1 .spec.priorityClassName":                        FreeTextLength,
		"dijobs v2alpha1 .spec.scheduling.gang.minAvailable":             Replicas,
		"dijobs v2alpha1 .spec.scheduling.queue":                         NameLength,
		"dijobs v2alpha1 .spec.scheduling.schedulerName":                 NameLength,
		"dijobs v2alpha1 .spec.successPolicy.targetTasks":                TaskNames,
		"dijobs v2alpha1 .spec.successPolicy.targetTasks[]":              LabelLength,
		"dijobs v2alpha1 .spec.tasks":                                    Tasks,
		"dijobs v2alpha1 .spec.tasks[].replicas":                         Replicas,
		"dijobs v2alpha1 .spec.volumes":                                  Volumes,
		"dijobs v2alpha1 .status.allocation":                             Replicas,
		"dijobs v2alpha1 .status.allocation[]":                           NameLength,
		"dijobs v2alpha1 .status.completedRanks":                         RanksLength,
		"dijobs v2alpha1 .status.conditions":                             Conditions,
		"dijobs v2alpha1 .status.replicaRestarts":                        Replicas,
		"dijobs v2alpha1 .status.membershipAcks.ranks":                   RanksLength,
		"dijobs v2alpha1 .status.membershipAcks.refused":                 Refusals,
		"dijobs v2alpha1 .status.membershipAcks.refused[].pod":           NameLength,
		"dijobs v2alpha1 .status.membershipAcks.refused[].reason":        FreeTextLength,
		"dijobs v2alpha1 .status.scaling.growth.alone":                   RanksLength,
		"dijobs v2alpha1 .status.scaling.growth.groups":                  GrowthGroups,
		"dijobs v2alpha1 .status.scaling.growth.groups[].ranks":          RanksLength,
		"dijobs v2alpha1 .status.scaling.growth.start":                   LabelLength,
		"dijobs v2alpha1 .status.scaling.membership.active":              RanksLength,
		"dijobs v2alpha1 .status.scaling.membership.pods":                RanksLength,
		"dijobs v2alpha1 .status.scaling.membership.kept":                RanksLength,
		"dijobs v2alpha1 .status.scaling.membership.keptFor":             FreeTextLength,
		"dijobs v2alpha1 .status.scaling.membership.leaving":             RanksLength,
		"dijobs v2alpha1 .status.scaling.ranks":                          Replicas,
		"dijobs v2alpha1 .status.scaling.specReplicas":                   Replicas,
		"dijobs v2alpha1 .status.taskStatus":                             Replicas,
		"dijobs v2alpha1 .status.taskStatus{}":                           Counted,
		"dijobs v2alpha1 .status.replicas":                               Replicas,
		"dijobs v2alpha1 .status.requests":                               Requests,
		"dijobs v2alpha1 .status.requests[].collectors":                  RecordedURLs,
		"dijobs v2alpha1 .status.requests[].collectors[]":                FreeTextLength,
		"dijobs v2alpha1 .status.allocationUsage.policy":                 LabelLength,
		"dijobs v2alpha1 .status.rates":                                  Rates,
		"dijobs v2alpha1 .status.rates[].role":                           LabelLength,
		"dijobs v2alpha1 .status.rates[].server":                         LabelLength,
		"dijobs v2alpha1 .status.requests[].id":                          NameLength,
		"dijobs v2alpha1 .status.requests[].key":                         NameLength,
		"dijobs v2alpha1 .status.requests[].learners":                    RecordedURLs,
		"dijobs v2alpha1 .status.requests[].learners[]":                  FreeTextLength,
		"dijobs v1alpha1 .spec.volumes":                                  Volumes,
		"dijobs v1alpha1 .status.conditions":                             Conditions,
		"dijobs v1alpha1 .status.replicaStatus":                          Counted,
		"memberships v2alpha1 .spec.coordinatorInstance":                 NameLength,
		"memberships v2alpha1 .spec.retainedPods":                        LostListed,
		"memberships v2alpha1 .spec.retainedPods[].podName":              NameLength,
		"memberships v2alpha1 .spec.retainedPods[].port":                 65535,
		"memberships v2alpha1 .spec.members":                             Members,
		"memberships v2alpha1 .spec.members[].ddpGPUs":                   GPUs,
		"memberships v2alpha1 .spec.members[].ddpGPUs[]":                 GPUs,
		"memberships v2alpha1 .spec.members[].ddpPodNames":               GPUs,
		"memberships v2alpha1 .spec.members[].ddpPodNames[]":             NameLength,
		"memberships v2alpha1 .spec.members[].withdrawn":                 LostListed,
		"memberships v2alpha1 .spec.members[].advertisedFrom":            2 * Losses,
		"memberships v2alpha1 .spec.members[].podName":                   NameLength,
		"memberships v2alpha1 .spec.members[].failureReports":            Losses,
		"memberships v2alpha1 .spec.members[].resources.memory":          quantity.MaxLength,
		"memberships v2alpha1 .spec.members[].resources.gpus":            quantity.MaxLength,
		"memberships v2alpha1 .spec.members[].resources.cpus":            quantity.MaxLength,
		"memberships v2alpha1 .spec.members[].slot":                      NameLength,
		"memberships v2alpha1 .spec.requests":                            Requests,
		"memberships v2alpha1 .spec.requests[].collectors":               RecordedURLs,
		"memberships v2alpha1 .spec.requests[].collectors[]":             FreeTextLength,
		"memberships v2alpha1 .spec.requests[].id":                       NameLength,
		"memberships v2alpha1 .spec.requests[].key":                      NameLength,
		"memberships v2alpha1 .spec.requests[].learners":                 RecordedURLs,
		"memberships v2alpha1 .spec.requests[].learners[]":               FreeTextLength,
		"memberships v2alpha1 .status.groups":                            GrowthGroups,
		"memberships v2alpha1 .status.groups[].free":                     Members,
		"memberships v2alpha1 .status.groups[].free[]":                   LabelLength,
		"memberships v2alpha1 .status.slots[].shape":                     LabelLength,
		"memberships v2alpha1 .status.slots":                             Members,
		"memberships v2alpha1 .status.slots[].observedPod":               NameLength,
		"memberships v2alpha1 .status.slots[].losses":                    Losses,
		"memberships v2alpha1 .status.slots[].ports":                     Ports,
		"memberships v2alpha1 .status.slots[].slot":                      NameLength,

		"dijobs v2alpha1 .spec.autoscale.memory.growthPercent":              GrowthPercent,
		"dijobs v2alpha1 .spec.autoscale.memory.max":                        quantity.MaxLength,
		"dijobs v2alpha1 .spec.autoscale.optimizer.limit.cpu":               quantity.MaxLength,
		"dijobs v2alpha1 .spec.autoscale.optimizer.limit.memory":            quantity.MaxLength,
		"dijobs v2alpha1 .spec.autoscale.pending.afterSeconds":              PendingSeconds,
		"dijobs v2alpha1 .spec.autoscale.pending.min.cpu":                   quantity.MaxLength,
		"dijobs v2alpha1 .spec.autoscale.pending.min.memory":                quantity.MaxLength,
		"dijobs v2alpha1 .spec.autoscale.pending.shrinkPercent":             ShrinkPercent,
		"dijobs v2alpha1 .spec.autoscale.ratio.consumer":                    LabelLength,
		"dijobs v2alpha1 .spec.autoscale.ratio.maxStaleness":                Staleness,
		"dijobs v2alpha1 .spec.autoscale.ratio.producers":                   Producers,
		"dijobs v2alpha1 .spec.autoscale.ratio.producers[].maxReplicas":     Replicas,
		"dijobs v2alpha1 .spec.autoscale.ratio.producers[].minReplicas":     Replicas,
		"dijobs v2alpha1 .spec.autoscale.ratio.producers[].task":            LabelLength,
		"dijobs v2alpha1 .spec.autoscale.ratio.prometheus.batch":            FreeTextLength,
		"dijobs v2alpha1 .spec.autoscale.ratio.prometheus.consumerCapacity": FreeTextLength,
		"dijobs v2alpha1 .spec.autoscale.ratio.prometheus.producerCapacity": FreeTextLength,
		"dijobs v2alpha1 .spec.autoscale.ratio.prometheus.queue":            FreeTextLength,
		"dijobs v2alpha1 .spec.tasks[].drain.timeoutSeconds":                ScalingSeconds,
		"dijobs v2alpha1 .status.autoscaling.optimizer.message":             MessageLength,
		"dijobs v2alpha1 .status.autoscaling.optimizer.peaks":               Tasks,
		"dijobs v2alpha1 .status.autoscaling.optimizer.peaks[].task":        LabelLength,
		"dijobs v2alpha1 .status.autoscaling.optimizer.plan":                NameLength,
		"dijobs v2alpha1 .status.autoscaling.optimizer.stage":               LabelLength,
		"dijobs v2alpha1 .status.autoscaling.ratio.message":                 MessageLength,
		"dijobs v2alpha1 .status.autoscaling.ratio.reason":                  LabelLength,
		"dijobs v2alpha1 .status.autoscaling.ratio.replicas":                Producers,
		"dijobs v2alpha1 .status.summary.duration":                          LabelLength,
		"dijobs v2alpha1 .status.summary.ready":                             LabelLength,
		"dijobs v2alpha1 .status.summary.reason":                            NameLength,
		"dijobs v2alpha1 .status.scaling.plan.message":                      PlanMessageLength,
		"dijobs v2alpha1 .status.scaling.indexes":                           Replicas,
		"dijobs v2alpha1 .status.scaling.plan.indexes":                      Tasks,
		"dijobs v2alpha1 .status.scaling.plan.replicas":                     Tasks,
		"dijobs v2alpha1 .status.scaling.plan.migrations":                   PlanPods,
		"dijobs v2alpha1 .status.scaling.plan.migrations[].pod":             NameLength,
		"dijobs v2alpha1 .status.scaling.plan.migrations[].uid":             NameLength,
		"dijobs v2alpha1 .status.scaling.plan.migrations[].node":            NameLength,
		"dijobs v2alpha1 .status.scaling.plan.name":                         NameLength,
		"dijobs v2alpha1 .status.scaling.plan.phase":                        LabelLength,
		"dijobs v2alpha1 .status.scaling.plan.uid":                          NameLength,
		"dijobs v2alpha1 .status.scaling.resources":                         ResourceOverrides,
		"dijobs v2alpha1 .status.scaling.resources[].reason":                LabelLength,
		"dijobs v2alpha1 .status.scaling.resources[].index":                 Replicas,
		"dijobs v2alpha1 .status.scaling.resources[].resources.cpu":         quantity.MaxLength,
		"dijobs v2alpha1 .status.scaling.resources[].resources.memory":      quantity.MaxLength,
		"dijobs v2alpha1 .status.scaling.resources[].task":                  LabelLength,
		"dijobs v2alpha1 .status.scaling.resources[].slot":                  NameLength,

		"memberships v2alpha1 .status.slots[].rank":            Replicas,
		"memberships v2alpha1 .status.groups[].pods":           Replicas,
		"scaleplans v2alpha1 .spec.deadlineSeconds":            ScalingSeconds,
		"scaleplans v2alpha1 .spec.job":                        NameLength,
		"scaleplans v2alpha1 .spec.launch":                     PlanPods,
		"scaleplans v2alpha1 .spec.launch[]":                   NameLength,
		"scaleplans v2alpha1 .spec.migrate":                    PlanPods,
		"scaleplans v2alpha1 .spec.migrate[].pod":              NameLength,
		"scaleplans v2alpha1 .spec.migrate[].resources.cpu":    quantity.MaxLength,
		"scaleplans v2alpha1 .spec.migrate[].resources.memory": quantity.MaxLength,
		"scaleplans v2alpha1 .spec.reason":                     FreeTextLength,
		"scaleplans v2alpha1 .spec.remove":                     PlanPods,
		"scaleplans v2alpha1 .spec.remove[]":                   NameLength,
		"scaleplans v2alpha1 .spec.tasks":                      Tasks,
		"scaleplans v2alpha1 .spec.tasks[].name":               LabelLength,
		"scaleplans v2alpha1 .spec.tasks[].replicas":           Replicas,
		"scaleplans v2alpha1 .spec.tasks[].resources.cpu":      quantity.MaxLength,
		"scaleplans v2alpha1 .spec.tasks[].resources.memory":   quantity.MaxLength,
		"scaleplans v2alpha1 .spec.ttlSecondsAfterFinished":    Seconds,
		"scaleplans v2alpha1 .status.conditions":               PlanConditions,
		"scaleplans v2alpha1 .status.message":                  PlanMessageLength,
		"scaleplans v2alpha1 .status.phase":                    LabelLength,
		// metav1.Condition has these itself.
		"scaleplans v2alpha1 .status.conditions[].message": 32768,
		"scaleplans v2alpha1 .status.conditions[].reason":  1024,
		"scaleplans v2alpha1 .status.conditions[].type":    316,
	}
}

func TestTheSchemasHoldTheMaximaOfThisPackage(t *testing.T) {
	t.Parallel()
	want := maxima()
	unbounded, met := withoutMaximum(), map[string]bool{}
	for _, resource := range []string{"aggregatorconfigs", "dijobs", "memberships", "scaleplans"} {
		crd := readDefinition(t, resource)
		for i := range crd.Spec.Versions {
			version := &crd.Spec.Versions[i]
			each(resource+" "+version.Name+" ", version.Schema.OpenAPIV3Schema, func(path string, props *apiextensionsv1.JSONSchemaProps) {
				most, isHeld := maximum(props)
				if wanted := want[path]; isHeld && most != wanted {
					t.Errorf("%s: the schema holds %d, and this package %d", path, most, wanted)
				}
				_, name, _ := strings.Cut(path, " ")
				_, isExcepted := unbounded[name]
				if !isHeld && !isExcepted && (want[path] > 0 || isSized(props) || resource == "scaleplans" && isFreeText(name, props)) {
					t.Errorf("%s has no maximum in the schema", path)
				}
				delete(want, path)
				met[name] = met[name] || !isHeld
			})
		}
	}
	for path := range want {
		t.Errorf("the schemas have no %s", path)
	}
	for path := range unbounded {
		if !met[path] {
			t.Errorf("the schemas have no %s, or it has a maximum", path)
		}
	}
}

func readDefinition(t *testing.T, resource string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "diengine.opendilab.org_"+resource+".yaml"))
	expect.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	expect.NoError(t, yaml.Unmarshal(raw, crd))
	return crd
}

// withoutMaximum returns the objects with arbitrary fields that have no maximum of their own, by version
// and path, with the reason.
func withoutMaximum() map[string]string {
	const (
		standard = "the API server holds the metadata itself"
		template = "is of another API, whose own lists have no maximum; etcd and the webhooks bound its bytes"
		view     = "is v2alpha1's part of the job, whose fields have their maxima there"
	)
	return map[string]string{
		"v1alpha1 .metadata":                  standard,
		"v2alpha1 .metadata":                  standard,
		"v1alpha1 .spec.aggregator.template":  template,
		"v2alpha1 .spec.aggregator.template":  template,
		"v1alpha1 .spec.collector.template":   template,
		"v1alpha1 .spec.coordinator.template": template,
		"v1alpha1 .spec.learner.template":     template,
		"v2alpha1 .spec.tasks[].template":     template,
		"v1alpha1 .spec.volumes[]":            template,
		"v2alpha1 .spec.volumes[]":            template,
		"v1alpha1 .spec.extended":             view,
		"v1alpha1 .status.extended":           view,
		"v2alpha1 .status.profilings":         "di-server bounds its bytes",
	}
}

// isSized reports whether the writer of a value chooses its size.
func isSized(props *apiextensionsv1.JSONSchemaProps) bool {
	isMap := props.Type == "object" && len(props.Properties) == 0 || props.AdditionalProperties != nil || props.XPreserveUnknownFields != nil
	return props.Type == "array" || props.XIntOrString || isMap
}

// isFreeText reports whether a field of the spec or status is a text of any content.
func isFreeText(path string, props *apiextensionsv1.JSONSchemaProps) bool {
	isStandard := path == "v2alpha1 .apiVersion" || path == "v2alpha1 .kind"
	return props.Type == "string" && len(props.Enum) == 0 && props.Format == "" && !isStandard
}

// maximum returns the maximum of a field, if it has one.
func maximum(props *apiextensionsv1.JSONSchemaProps) (int64, bool) {
	switch {
	case props.MaxItems != nil:
		return *props.MaxItems, true
	case props.MaxProperties != nil:
		return *props.MaxProperties, true
	case props.MaxLength != nil:
		return *props.MaxLength, true
	case props.Maximum != nil:
		return int64(*props.Maximum), true
	}
	return 0, false
}

// each calls back with every field of a schema.
func each(path string, props *apiextensionsv1.JSONSchemaProps, found func(string, *apiextensionsv1.JSONSchemaProps)) {
	found(path, props)
	names := make([]string, 0, len(props.Properties))
	for name := range props.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		property := props.Properties[name]
		each(path+"."+name, &property, found)
	}
	if props.Items != nil && props.Items.Schema != nil {
		each(path+"[]", props.Items.Schema, found)
	}
	if props.AdditionalProperties != nil && props.AdditionalProperties.Schema != nil {
		each(path+"{}", props.AdditionalProperties.Schema, found)
	}
}
