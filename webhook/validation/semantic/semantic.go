// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package semantic compares templates and volumes by what they decode to. It is pure.
package semantic

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/internal/quantity"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// Two templates are equal if they decode to the same pods. The CRDs of earlier
// releases wrote defaults into templates, and typed clients write empty members.
// The comparison uses canonical quantities and ignores
//   - unknown fields and members that are null or empty, except selectors: an empty
//     one selects everything,
//   - metadata that the operator does not copy: all but labels, annotations and
//     finalizers,
//   - values that the API server defaults in a pod.

// normalizeTask returns a task's template in normal form.
func normalizeTask(spec *v2alpha1.DIJobSpec, task *v2alpha1.Task) any {
	if !isModest[corev1.PodTemplateSpec](task.Template.Raw) || quantity.CheckTemplate(task.Template.Raw) != nil {
		return untyped(task.Template.Raw)
	}
	template := decodeRest[corev1.PodTemplateSpec](task.Template.Raw)
	kept := corev1.PodTemplateSpec{Spec: template.Spec}
	kept.Labels, kept.Annotations, kept.Finalizers = template.Labels, template.Annotations, template.Finalizers
	pod := &kept.Spec
	if policy := restartPolicy(spec, task); pod.RestartPolicy == policy || spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		pod.RestartPolicy = ""
	}
	if pod.DeprecatedServiceAccount == pod.ServiceAccountName {
		pod.DeprecatedServiceAccount = ""
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			dropContainerDefaults(&containers[i])
		}
	}
	return plain(kept)
}

// normalize returns an object of another API in normal form. The check fails if the
// object is too expensive to decode.
func normalize[T any](raw []byte, check func([]byte) error) any {
	if !isModest[T](raw) || check(raw) != nil {
		return untyped(raw)
	}
	return plain(decodeRest[T](raw))
}

// isModest reports whether no list of an object takes too much memory once decoded. An
// object of few values has no such list.
func isModest[T any](raw []byte) bool {
	const few = 4096
	if netlimit.Values(raw) < few {
		return true
	}
	return !slices.ContainsFunc(jsontype.Compare(raw, reflect.TypeFor[T](), nil).Mistyped, func(err *field.Error) bool {
		return err.Type == field.ErrorTypeTooMany
	})
}

// untyped decodes JSON without its type: a stored job may have a quantity that is too
// expensive to decode.
func untyped(raw []byte) any {
	// The check has decoded it already.
	value, _ := jsontype.DecodeAny(raw)
	return value
}

// decodeRest decodes the values that fit the type. No pod gets the others.
func decodeRest[T any](raw []byte) *T {
	decoded := new(T)
	// A value that does not fit was rejected, or belongs to a stored job.
	_ = kjson.UnmarshalCaseSensitivePreserveInts(raw, decoded)
	return decoded
}

// restartPolicy returns the policy of a task's pods whose template has none.
func restartPolicy(spec *v2alpha1.DIJobSpec, task *v2alpha1.Task) corev1.RestartPolicy {
	if spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed && task.Type != v2alpha1.TaskTypeCoordinator {
		return corev1.RestartPolicyAlways
	}
	return corev1.RestartPolicyNever
}

// dropContainerDefaults drops the defaults that depend on other fields.
func dropContainerDefaults(container *corev1.Container) {
	if container.ImagePullPolicy == defaultPullPolicy(container.Image) {
		container.ImagePullPolicy = ""
	}
	for name, limit := range container.Resources.Limits {
		if request, ok := container.Resources.Requests[name]; ok && request.Cmp(limit) == 0 {
			delete(container.Resources.Requests, name)
		}
	}
}

// defaultPullPolicy returns Always for an image whose tag is latest, explicitly or by default.
func defaultPullPolicy(image string) corev1.PullPolicy {
	name, _, digested := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tagged && tag != "latest" || !tagged && digested {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

// apiDefault is a value that the API server defaults in a pod.
type apiDefault struct {
	// in names the objects, or the lists of objects, that have the member.
	in []string
	// member is its name, value its JSON.
	member, value string
}

func apiDefaults() []apiDefault {
	containers := []string{"containers", "initContainers"}
	probes := []string{"livenessProbe", "readinessProbe", "startupProbe"}
	return []apiDefault{
		{[]string{"spec"}, "dnsPolicy", `"ClusterFirst"`},
		{[]string{"spec"}, "schedulerName", `"default-scheduler"`},
		{[]string{"spec"}, "terminationGracePeriodSeconds", `30`},
		{[]string{"spec"}, "enableServiceLinks", `true`},
		{containers, "terminationMessagePath", `"/dev/termination-log"`},
		{containers, "terminationMessagePolicy", `"File"`},
		{[]string{"ports"}, "protocol", `"TCP"`},
		{probes, "timeoutSeconds", `1`},
		{probes, "periodSeconds", `10`},
		{probes, "successThreshold", `1`},
		{probes, "failureThreshold", `3`},
		{[]string{"httpGet"}, "scheme", `"HTTP"`},
		{[]string{"httpGet"}, "path", `"/"`},
		{[]string{"fieldRef"}, "apiVersion", `"v1"`},
		{[]string{"configMap", "secret", "downwardAPI", "projected"}, "defaultMode", `420`},
		{[]string{"serviceAccountToken"}, "expirationSeconds", `3600`},
		{[]string{"iscsi"}, "iscsiInterface", `"default"`},
	}
}

// plain returns an object as JSON values, without empty members and without the API
// server's defaults.
func plain(object any) any {
	// A decoded object encodes and decodes again.
	raw, _ := json.Marshal(object)
	value, _ := jsontype.DecodeAny(raw)
	return withoutDefaults(value, "", apiDefaults())
}

// withoutDefaults drops the defaults and empty members of a value. The value is the member with
// that name, or an item of the member.
func withoutDefaults(value any, in string, defaults []apiDefault) any {
	switch value := value.(type) {
	case map[string]any:
		for _, d := range defaults {
			if !slices.Contains(d.in, in) {
				continue
			}
			// A member of decoded JSON encodes.
			if raw, _ := json.Marshal(value[d.member]); string(raw) == d.value {
				delete(value, d.member)
			}
		}
		for key, member := range value {
			value[key] = withoutDefaults(member, key, defaults)
			if jsontype.IsEmpty(value[key]) && !strings.HasSuffix(key, "elector") {
				delete(value, key)
			}
		}
	case []any:
		for i := range value {
			value[i] = withoutDefaults(value[i], in, defaults)
		}
	}
	return value
}

// SameTemplate reports whether the templates of two tasks are semantically equal.
func SameTemplate(spec *v2alpha1.DIJobSpec, a, b *v2alpha1.Task) bool {
	return bytes.Equal(a.Template.Raw, b.Template.Raw) ||
		reflect.DeepEqual(normalizeTask(spec, a), normalizeTask(spec, b))
}

// SamePods reports whether two pod templates of any origin are semantically equal.
func SamePods(a, b []byte) bool {
	return reflect.DeepEqual(normalize[corev1.PodTemplateSpec](a, quantity.CheckTemplate), normalize[corev1.PodTemplateSpec](b, quantity.CheckTemplate))
}

// SameVolumes reports whether two lists of volumes are semantically equal.
func SameVolumes(a, b []v2alpha1.RawObject) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].Raw, b[i].Raw) &&
			!reflect.DeepEqual(normalize[corev1.Volume](a[i].Raw, quantity.CheckVolume), normalize[corev1.Volume](b[i].Raw, quantity.CheckVolume)) {
			return false
		}
	}
	return true
}
