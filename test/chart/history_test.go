// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/history/serve"
)

func TestTheHistoryIsOffByDefault(t *testing.T) {
	t.Parallel()
	for _, object := range render(t, "di-system") {
		if strings.Contains(object.GetName(), "history") {
			t.Errorf("%s is rendered", identify(object))
		}
	}
}

func TestTheHistoryKeepsSQLiteInAVolume(t *testing.T) {
	t.Parallel()
	objects := render(t, "jobs", "history.enabled=true", "history.persistence.size=5Gi", "history.persistence.storageClass=fast")
	claim := read[corev1.PersistentVolumeClaim](t, find(t, objects, "PersistentVolumeClaim", "di-orchestrator-history"))
	if *claim.Spec.StorageClassName != "fast" || claim.Spec.Resources.Requests.Storage().String() != "5Gi" {
		t.Errorf("the claim is %+v", claim.Spec)
	}
	pod := podOf(t, objects, "history")
	if source := pod.Volumes[1].PersistentVolumeClaim; source == nil || source.ClaimName != claim.Name {
		t.Errorf("the volumes are %+v", pod.Volumes)
	}
	if pod.SecurityContext.FSGroup == nil || pod.Containers[0].VolumeMounts[1].MountPath != "/var/lib/di-history" {
		t.Errorf("the pod is %+v", pod)
	}
	find(t, objects, "Service", "di-history")
	find(t, objects, "ClusterRole", "di-orchestrator-history")
}

func TestTheHistoryKeepsSQLiteInThePodWhereThereAreNoVolumes(t *testing.T) {
	t.Parallel()
	objects := render(t, "jobs", "history.enabled=true", "history.persistence.enabled=false", "history.persistence.size=5Gi")
	if source := podOf(t, objects, "history").Volumes[1].EmptyDir; source == nil || source.SizeLimit.String() != "5Gi" {
		t.Errorf("the volumes are %+v", podOf(t, objects, "history").Volumes)
	}
	for _, object := range objects {
		if object.GetKind() == "PersistentVolumeClaim" {
			t.Errorf("%s is rendered", identify(object))
		}
	}
}

func TestTheHistoryUsesAPostgreSQLOfASecret(t *testing.T) {
	t.Parallel()
	objects := render(t, "jobs", "history.enabled=true", "history.replicas=2", "history.postgres.secretName=database", "history.postgres.key=url")
	pod := podOf(t, objects, "history")
	source := pod.Volumes[1].Secret
	if source == nil || source.SecretName != "database" || source.Items[0].Key != "url" {
		t.Errorf("the volumes are %+v", pod.Volumes)
	}
	if !slices.Contains(pod.Containers[0].Args, "--postgres-connection-file=/etc/di-history/connection") {
		t.Errorf("the arguments are %q", pod.Containers[0].Args)
	}
	for _, object := range objects {
		if object.GetKind() == "PersistentVolumeClaim" {
			t.Errorf("%s is rendered", identify(object))
		}
	}
}

func TestTheHistoryIsTheOptimizerAndTheAllocatorsMemoryUnlessAnotherIsNamed(t *testing.T) {
	t.Parallel()
	objects := render(t, "jobs", "history.enabled=true", "configuration.common.serviceDomain=svc.example.org")
	want := v1alpha1.Service{
		CAFile: "/var/run/secrets/di-history/ca.crt", TokenFile: "/var/run/secrets/di-history/token",
		URL: "https://di-history.jobs.svc.example.org", Timeout: v1alpha1.Defaults().Operator.Autoscaler.Optimizer.Timeout,
	}
	operator := configured(t, objects).Operator
	if got := operator.Autoscaler.Optimizer; got != want {
		t.Errorf("got the optimizer %+v, want %+v", got, want)
	}
	want.Timeout = v1alpha1.Defaults().Operator.Allocator.History.Timeout
	if got := operator.Allocator.History; got != want {
		t.Errorf("got the allocator's history %+v, want %+v", got, want)
	}
	pod := podOf(t, objects, "operator")
	sources := pod.Volumes[len(pod.Volumes)-1].Projected.Sources
	if token := sources[0].ServiceAccountToken; token == nil || token.Audience != serve.Audience {
		t.Errorf("got the token %+v, want one for %s", token, serve.Audience)
	}
	if mount := pod.Containers[0].VolumeMounts[len(pod.Containers[0].VolumeMounts)-1]; mount.MountPath != "/var/run/secrets/di-history" {
		t.Errorf("got the mount %+v", mount)
	}
	const optimizer, history = "configuration.operator.autoscaler.optimizer.url=https://mine", "configuration.operator.allocator.history.url=https://mine"
	operator = configured(t, render(t, "jobs", "history.enabled=true", optimizer, history)).Operator
	for name, got := range map[string]v1alpha1.Service{"optimizer": operator.Autoscaler.Optimizer, "history": operator.Allocator.History} {
		if got.TokenFile != "" || got.URL != "https://mine" {
			t.Errorf("got the %s %+v, want the one of the values", name, got)
		}
	}
	without := render(t, "jobs")
	operator = configured(t, without).Operator
	if operator.Autoscaler.Optimizer.URL != "" || operator.Allocator.History.URL != "" {
		t.Errorf("without the history, got %+v", operator)
	}
	if volumes := podOf(t, without, "operator").Volumes; len(volumes) != 1 {
		t.Errorf("without the history, got %+v, want the configuration only", volumes)
	}
}

func TestTheHistoryIsMonitoredAndOneOfItsReplicasStays(t *testing.T) {
	t.Parallel()
	monitored := []string{"history.enabled=true", "monitoring.serviceMonitor.enabled=true", "configuration.common.secureMetrics=true"}
	has := func(objects []*unstructured.Unstructured, kind, name string) bool {
		return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	}
	alone := render(t, "jobs", monitored...)
	find(t, alone, "ServiceMonitor", "di-orchestrator-history")
	find(t, alone, "Service", "di-orchestrator-history-metrics")
	binding := read[rbacv1.ClusterRoleBinding](t, find(t, alone, "ClusterRoleBinding", "di-orchestrator-metrics-auth"))
	if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == "di-orchestrator-history" }) {
		t.Errorf("the metrics are not guarded: %+v", binding.Subjects)
	}
	if has(alone, "PodDisruptionBudget", "di-orchestrator-history") {
		t.Error("the only replica cannot be evicted")
	}
	find(t, render(t, "jobs", append(monitored, "history.replicas=2", "history.postgres.secretName=database")...), "PodDisruptionBudget", "di-orchestrator-history")
	if off := render(t, "jobs", monitored[1:]...); has(off, "ServiceMonitor", "di-orchestrator-history") {
		t.Error("what does not run is monitored")
	}
}

func TestTheHistoryMayReadLogsOnlyIfItKeepsTheirLastLines(t *testing.T) {
	t.Parallel()
	mayRead := func(sets ...string) bool {
		role := read[rbacv1.ClusterRole](t, find(t, render(t, "jobs", append(sets, "history.enabled=true")...), "ClusterRole", "di-orchestrator-history"))
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods/log") })
	}
	if !mayRead() || !mayRead("configuration.history.logs.redact={secret}") {
		t.Error("it may not, want it by default")
	}
	if mayRead("configuration.history.logs.enabled=false") {
		t.Error("it may although it does not")
	}
}

func TestJobsWaitForTheHistoryOnlyIfItIsRequiredAndCanBeDeletedAfterwards(t *testing.T) {
	t.Parallel()
	const require = "configuration.history.require=true"
	mayPatch := func(objects []*unstructured.Unstructured, kind, name string) bool {
		role := read[rbacv1.ClusterRole](t, find(t, objects, kind, name))
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "dijobs") && slices.Contains(r.Verbs, "patch")
		})
	}
	has := func(objects []*unstructured.Unstructured, kind, name string) bool {
		return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	}
	optional := render(t, "jobs", "history.enabled=true")
	if mayPatch(optional, "ClusterRole", "di-orchestrator-history") || has(optional, "Job", "di-orchestrator-release-jobs") {
		t.Error("what nothing requires has its rights and its hook")
	}
	required := render(t, "jobs", "history.enabled=true", require)
	if !configured(t, required).History.Require || !mayPatch(required, "ClusterRole", "di-orchestrator-history") {
		t.Error("the history may not let jobs go")
	}
	watched := render(t, "jobs", "history.enabled=true", require, "configuration.common.watchNamespaces={team}")
	if mayPatch(watched, "ClusterRole", "di-orchestrator-history") || !mayPatch(watched, "Role", "di-orchestrator-history") {
		t.Error("the history may let jobs of other namespaces go, or none")
	}
	hook := find(t, required, "Job", "di-orchestrator-release-jobs")
	if on := hook.GetAnnotations()["helm.sh/hook"]; on != "post-delete" || !mayPatch(required, "ClusterRole", "di-orchestrator-release-jobs") {
		t.Errorf("the hook runs on %q", on)
	}
	policy := fmt.Sprint(find(t, required, "ValidatingAdmissionPolicy", "di-orchestrator-history").Object)
	if !strings.Contains(policy, "system:serviceaccount:jobs:di-orchestrator-history") {
		t.Errorf("the policy does not bound the history of the release: %s", policy)
	}
	find(t, required, "ValidatingAdmissionPolicyBinding", "di-orchestrator-history")
	if open := render(t, "jobs", "history.enabled=true", "policies.history=false"); has(open, "ValidatingAdmissionPolicy", "di-orchestrator-history") {
		t.Error("the policy is rendered although it is switched off")
	}
	if _, err := run(t, program(t, "HELM"), renderArgs("jobs", []string{require})...); err == nil || !strings.Contains(err.Error(), "configuration.history.require: needs history.enabled") {
		t.Errorf("without the history: %v", err)
	}
}
