// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
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
)

// Two templates mean the same when they decode to the same pods. The CRDs of
// earlier releases wrote defaults into templates, and typed clients write empty
// members; so what is compared is what was decoded, with quantities in their
// canonical form, without
//   - unknown fields and members that are null or empty; but for selectors, of
//     which an empty one selects all,
//   - what the operator does not take over from a template: of its metadata all
//     but labels, annotations and finalizers,
//   - values that the API server writes into a pod that lacks them.

// meaningOfTemplate returns a task's template for comparison.
func meaningOfTemplate(spec *v2alpha1.DIJobSpec, task *v2alpha1.Task) any {
	if !isModest[corev1.PodTemplateSpec](task.Template.Raw) || quantity.CheckTemplate(task.Template.Raw) != nil {
		return literally(task.Template.Raw)
	}
	template := decodeRest[corev1.PodTemplateSpec](task.Template.Raw)
	kept := corev1.PodTemplateSpec{Spec: template.Spec}
	kept.Labels, kept.Annotations, kept.Finalizers = template.Labels, template.Annotations, template.Finalizers
	pod := &kept.Spec
	if policy := restartPolicy(spec, task); pod.RestartPolicy == policy || !coordinatorLed(spec) {
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
	return plainForm(kept)
}

// meaningOf returns an object of another API for comparison. The check says
// whether it costs too much to decode.
func meaningOf[T any](raw []byte, check func([]byte) error) any {
	if !isModest[T](raw) || check(raw) != nil {
		return literally(raw)
	}
	return plainForm(decodeRest[T](raw))
}

// isModest reports whether an object of another API has no list that takes too much memory
// once it is decoded. What has few values has none.
func isModest[T any](raw []byte) bool {
	const few = 4096
	if netlimit.Values(raw) < few {
		return true
	}
	return !slices.ContainsFunc(compare(raw, reflect.TypeFor[T](), nil).mistyped, func(err *field.Error) bool {
		return err.Type == field.ErrorTypeTooMany
	})
}

// literally returns JSON for comparison that is not decoded as its type: a stored
// job may have a quantity that costs too much.
func literally(raw []byte) any {
	// The check has read it, so it decodes.
	value, _ := decodeAny(raw)
	return value
}

// decodeRest decodes what fits the type. The rest reaches no pod.
func decodeRest[T any](raw []byte) *T {
	decoded := new(T)
	// What does not fit was refused, or is that of a stored job.
	_ = kjson.UnmarshalCaseSensitivePreserveInts(raw, decoded)
	return decoded
}

// restartPolicy is the one that a task's pods get where the template has none.
func restartPolicy(spec *v2alpha1.DIJobSpec, task *v2alpha1.Task) corev1.RestartPolicy {
	if coordinatorLed(spec) && task.Type != v2alpha1.TaskTypeCoordinator {
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

// defaultPullPolicy is Always for an image whose tag is latest, also where that
// is implied.
func defaultPullPolicy(image string) corev1.PullPolicy {
	name, _, digested := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tagged && tag != "latest" || !tagged && digested {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

// apiDefault is a value that the API server writes where a pod has none.
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

// plainForm returns an object as JSON values, without empty members and
// without the API server's defaults.
func plainForm(object any) any {
	// What was decoded encodes, and decodes again.
	raw, _ := json.Marshal(object)
	value, _ := decodeAny(raw)
	return withoutDefaults(value, "", apiDefaults())
}

// withoutDefaults drops the defaults and empty members from a value that is the member, or an
// item of the member, of that name.
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
			if isEmpty(value[key]) && !strings.HasSuffix(key, "elector") {
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
