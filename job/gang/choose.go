// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Setting is the gang scheduler of an installation.
type Setting string

const (
	// Auto selects the first known scheduler whose API is served, or the scheduler that a job
	// names.
	Auto Setting = "auto"
	// None selects no scheduler: a job that requests a gang waits.
	None Setting = "none"
	// Volcano selects the scheduler of that name.
	Volcano Setting = "volcano"
	// Coscheduling selects the plugin of that name in scheduler-plugins.
	Coscheduling Setting = "coscheduling"
	// Kubernetes selects kube-scheduler itself.
	Kubernetes Setting = "kubernetes"
)

// Settings returns all settings.
func Settings() []Setting {
	return []Setting{Auto, None, Volcano, Coscheduling, Kubernetes}
}

// ParseSetting parses a setting.
func ParseSetting(text string) (Setting, error) {
	if setting := Setting(text); slices.Contains(Settings(), setting) {
		return setting, nil
	}
	var known []string
	for _, setting := range Settings() {
		known = append(known, string(setting))
	}
	return "", fmt.Errorf("%q is no setting for gangs: must be one of %s", text, strings.Join(known, ", "))
}

// Providers returns the known schedulers with their versions, in order of preference. A scheduler
// that was installed for gangs precedes one that a cluster may serve by default. A newer version
// precedes an older one. A new version of the same shape is an entry here; one of another shape
// needs a dialect.
func Providers() []Provider {
	of := func(name Setting, scheduler, group, version string, own dialect) Provider {
		gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: Kind}
		return Provider{Name: name, GVK: gvk, SchedulerName: scheduler, dialect: own}
	}
	return []Provider{
		of(Volcano, "volcano", "scheduling.volcano.sh", "v1beta1", volcano{}),
		of(Coscheduling, "scheduler-plugins-scheduler", "scheduling.x-k8s.io", "v1alpha1", coscheduling{}),
		of(Kubernetes, "", kubernetesGroup, "v1beta1", kubernetes{isMutable: true}),
		of(Kubernetes, "", kubernetesGroup, "v1alpha3", kubernetes{isMutable: true}),
		of(Kubernetes, "", kubernetesGroup, "v1alpha2", kubernetes{}),
	}
}

// ProviderOf returns the provider of an object's type, nil if it is not among the served ones.
func ProviderOf(served []Provider, gvk schema.GroupVersionKind) *Provider {
	for i := range served {
		if served[i].GVK == gvk {
			return &served[i]
		}
	}
	return nil
}

// UsualNames returns the names of the schedulers that a job of a gang usually names.
func UsualNames() string {
	var usual []string
	for _, provider := range Providers() {
		if provider.SchedulerName != "" {
			usual = append(usual, provider.SchedulerName)
		}
	}
	return strings.Join(usual, " or ")
}

// Choose returns the scheduler for a job's gang. It depends on the setting, the scheduler that the
// job names, and the served APIs, in the order of Providers. If there is none, Choose returns why,
// and a remedy.
func Choose(setting Setting, schedulerName string, served []Provider) (provider *Provider, why string) {
	if setting == None {
		return nil, "operator.gangs.scheduler is none: set it to auto or to a scheduler that is installed, or take spec.scheduling.gang out of the job"
	}
	if setting == Auto || setting == "" {
		return chooseByJob(schedulerName, served)
	}
	if provider := first(served, setting); provider != nil {
		return provider, ""
	}
	return nil, fmt.Sprintf("operator.gangs.scheduler is %s, and the API server serves no %s: %s", setting, groupsOf(setting), remedy(setting))
}

// chooseByJob returns the scheduler that the job names if that is known, else the first served one.
func chooseByJob(schedulerName string, served []Provider) (provider *Provider, why string) {
	named := settingOf(schedulerName)
	if named == "" {
		if len(served) > 0 {
			return &served[0], ""
		}
		return nil, "the API server serves no PodGroup of any gang scheduler: install Volcano or scheduler-plugins, or turn on " +
			"the feature gates GenericWorkload and GangScheduling of Kubernetes, or take spec.scheduling.gang out of the job"
	}
	if provider := first(served, named); provider != nil {
		return provider, ""
	}
	return nil, fmt.Sprintf("the job names scheduler %q, and the API server serves no %s: %s", schedulerName, groupsOf(named), remedy(named))
}

// settingOf returns the setting of the scheduler with a name, "" if that is unknown.
func settingOf(schedulerName string) Setting {
	for _, provider := range Providers() {
		if provider.SchedulerName != "" && provider.SchedulerName == schedulerName {
			return provider.Name
		}
	}
	if schedulerName == defaultScheduler {
		return Kubernetes
	}
	return ""
}

func first(served []Provider, name Setting) *Provider {
	for i := range served {
		if served[i].Name == name {
			return &served[i]
		}
	}
	return nil
}

// groupsOf returns the resource of a scheduler's PodGroups.
func groupsOf(name Setting) string {
	for _, provider := range Providers() {
		if provider.Name == name {
			return "podgroups." + provider.GVK.Group
		}
	}
	return ""
}

// remedy describes how to have a scheduler's API served.
func remedy(name Setting) string {
	switch name {
	case Volcano:
		return "install Volcano"
	case Coscheduling:
		return "install scheduler-plugins with its CRDs"
	case Kubernetes:
		return "turn on the feature gates GenericWorkload and GangScheduling, and the API version, of Kubernetes 1.36 or later"
	case Auto, None:
	}
	return ""
}
