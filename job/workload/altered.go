// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// Alteration is what admission changed of a pod, in the fields on which decisions depend, or by which replicas find
// each other.
type Alteration struct {
	// Refused describes a change with which the pod could not end as the job requires, "" for none.
	Refused string
	// Noted describes the other changes, "" for none.
	Noted string
}

// comparedFields are the fields of pods that are compared. A field without a value has its default.
var comparedFields = []struct {
	path      string
	value     func(*corev1.PodSpec) string
	isRefused bool
}{
	{"spec.restartPolicy", func(s *corev1.PodSpec) string { return string(cmp.Or(s.RestartPolicy, corev1.RestartPolicyAlways)) }, true},
	{"spec.dnsPolicy", func(s *corev1.PodSpec) string { return string(cmp.Or(s.DNSPolicy, corev1.DNSClusterFirst)) }, false},
	{"spec.dnsConfig", func(s *corev1.PodSpec) string { return encoded(s.DNSConfig) }, false},
	{"spec.hostNetwork", func(s *corev1.PodSpec) string { return strconv.FormatBool(s.HostNetwork) }, false},
	{"spec.hostname", func(s *corev1.PodSpec) string { return s.Hostname }, false},
	{"spec.subdomain", func(s *corev1.PodSpec) string { return s.Subdomain }, false},
	{"spec.setHostnameAsFQDN", func(s *corev1.PodSpec) string { return strconv.FormatBool(ptr.Deref(s.SetHostnameAsFQDN, false)) }, false},
}

func encoded[T any](value T) string {
	// Fields of pods can be encoded.
	raw, _ := json.Marshal(value)
	return string(raw)
}

// Altered compares a created pod with the one that was sent.
func Altered(sent, created *corev1.Pod) Alteration {
	var refused, noted []string
	for _, field := range comparedFields {
		before, after := field.value(&sent.Spec), field.value(&created.Spec)
		if before == after {
			continue
		}
		text := fmt.Sprintf("%s from %q to %q", field.path, shortened(before), shortened(after))
		if field.isRefused {
			refused = append(refused, text)
		} else {
			noted = append(noted, text)
		}
	}
	noted = append(noted, alteredContainers(sent, created)...)
	return Alteration{Refused: strings.Join(refused, ", "), Noted: shortened(strings.Join(noted, ", "))}
}

// alteredContainers describes the containers of a pod that admission removed, and those without a variable of
// the operator's.
func alteredContainers(sent, created *corev1.Pod) []string {
	var noted []string
	for i := range sent.Spec.Containers {
		own := &sent.Spec.Containers[i]
		at := slices.IndexFunc(created.Spec.Containers, func(container corev1.Container) bool { return container.Name == own.Name })
		if at < 0 {
			noted = append(noted, fmt.Sprintf("spec.containers: %s is missing", own.Name))
			continue
		}
		for _, variable := range own.Env {
			isKept := slices.ContainsFunc(created.Spec.Containers[at].Env, func(other corev1.EnvVar) bool {
				return other.Name == variable.Name && other.Value == variable.Value
			})
			if variable.ValueFrom == nil && names.IsOurs(variable.Name) && !isKept {
				noted = append(noted, fmt.Sprintf("variable %s of container %s", variable.Name, own.Name))
			}
		}
	}
	return noted
}

// shortened truncates a text for an annotation and a message.
func shortened(text string) string {
	if len(text) <= limits.MessageLength {
		return text
	}
	return strings.ToValidUTF8(text[:limits.MessageLength], "") + "..."
}
