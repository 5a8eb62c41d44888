// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/conversion/importers"
)

// The kinds that are examined.
const (
	kindJob        = "DIJob"
	kindAggregator = "AggregatorConfig"
)

// importAdvice describes how to import jobs of v1.0.0.
const importAdvice = "save it, let 'kubectl di convert -f FILE --to v2alpha1' map it, delete it here, and submit the result after the installation"

// Rules are the rules of admission for new objects. Package webhook implements them.
type Rules interface {
	// Refusals returns why a job would be rejected if it were created unchanged.
	Refusals(raw []byte) (field.ErrorList, error)
	// AggregatorRefusals returns the same for an AggregatorConfig.
	AggregatorRefusals(raw []byte) (field.ErrorList, error)
}

// Examine returns the findings about one stored object, which is JSON: whether it belongs to
// v1.0.0, what it would lose, and whether it could be created again.
func Examine(raw []byte, rules Rules) []Finding {
	object := nameOf(raw)
	if importers.Recognizes(raw) {
		return []Finding{{
			Severity: Stop, Object: object, Message: "is a job of v1.0.0: spec.template in place of spec.tasks, which is not taken over in place", Do: importAdvice,
		}}
	}
	lost, err := Lost(raw)
	if err != nil {
		return []Finding{{Severity: Stop, Object: object, Message: "cannot be converted: " + err.Error()}}
	}
	var findings []Finding
	if len(lost) > 0 {
		findings = append(findings, Finding{
			Severity: Stop, Object: object, Message: "would lose " + strings.Join(lost, ", "),
			Do: "save the object, then remove these fields from it: no release uses them",
		})
	}
	findings = append(findings, network(raw, object)...)
	return append(findings, refused(raw, object, rules)...)
}

// network reports a coordinator of a live job that calls di-server from its node's address, which
// is not the address of one pod.
func network(raw []byte, object string) []Finding {
	if header(raw).Kind != kindJob {
		return nil
	}
	hub, err := conversion.Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		// Another finding reports an object that cannot be converted.
		return nil
	}
	var job struct {
		Spec struct {
			Tasks []struct {
				Type     v2alpha1.TaskType `json:"type"`
				Template struct {
					Spec struct {
						HostNetwork bool `json:"hostNetwork"`
					} `json:"spec"`
				} `json:"template"`
			} `json:"tasks"`
		} `json:"spec"`
		Status struct {
			Phase v2alpha1.Phase `json:"phase"`
		} `json:"status"`
	}
	// The rules of admission report values of a wrong type.
	_ = json.Unmarshal(hub, &job)
	if slices.Contains([]v2alpha1.Phase{"", v2alpha1.JobSucceeded, v2alpha1.JobFailed}, job.Status.Phase) {
		return nil
	}
	for i := range job.Spec.Tasks {
		if task := &job.Spec.Tasks[i]; task.Type == v2alpha1.TaskTypeCoordinator && task.Template.Spec.HostNetwork {
			return []Finding{{
				Severity: Warning, Object: object, Message: "its coordinator is on its node's network: di-server identifies it by the node's address, which all pods on that network share",
				Do: "until it has ended, do not set server.strictAddresses, and let its calls reach di-server without NAT",
			}}
		}
	}
	return nil
}

// refused reports that an object could not be created unchanged.
func refused(raw []byte, object string, rules Rules) []Finding {
	ask := rules.Refusals
	if header(raw).Kind == kindAggregator {
		ask = rules.AggregatorRefusals
	}
	errs, err := ask(raw)
	if err != nil {
		return []Finding{{Severity: Warning, Object: object, Message: "cannot be read: " + err.Error()}}
	}
	var findings []Finding
	for _, one := range errs {
		findings = append(findings, Finding{
			Severity: Warning, Object: object, Message: "a new object like this would be refused: " + one.Error(),
			Do: "nothing now: it continues, and its other fields may change; correct its manifest before you submit it again",
		})
	}
	return findings
}

// Lost returns the paths of the values of a stored object that would be lost. They are fields that
// our types do not know, and values that a conversion to the other version and back does not
// restore.
func Lost(raw []byte) ([]string, error) {
	head := header(raw)
	lost := unknown(raw, &head)
	if head.Kind != kindJob {
		return lost, nil
	}
	if head.APIVersion == v1alpha1.GroupVersion.String() {
		kept, err := lostFromV1(raw, lost)
		if err != nil {
			return nil, err
		}
		lost = append(lost, kept...)
	}
	if len(lost) == 0 {
		return roundTrip(raw, head.APIVersion)
	}
	slices.Sort(lost)
	return slices.Compact(lost), nil
}

// lostFromV1 returns what a job of v1alpha1 loses when it is stored, beside the losses that are
// already known. Extended may contain fields that v2alpha1 does not know. The conversion carries
// them, and the API server drops them.
func lostFromV1(raw []byte, already []string) ([]string, error) {
	lost, err := conversion.Lost(raw)
	if err != nil {
		return nil, err
	}
	hub, err := conversion.Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	head := header(hub)
	for _, path := range unknown(hub, &head) {
		if part, field, isField := strings.Cut(path, "."); isField && !slices.Contains(already, path) {
			lost = append(lost, part+".extended."+field)
		}
	}
	return lost, nil
}

// unknown returns the fields of an object that the type of its version does not have. The API
// server drops them once our schema is installed.
func unknown(raw []byte, head *head) []string {
	var typed any
	v1 := head.APIVersion == v1alpha1.GroupVersion.String()
	switch {
	case head.Kind == kindJob && v1:
		typed = &v1alpha1.DIJob{}
	case head.Kind == kindJob:
		typed = &v2alpha1.DIJob{}
	case v1:
		typed = &v1alpha1.AggregatorConfig{}
	default:
		typed = &v2alpha1.AggregatorConfig{}
	}
	// The rules of admission report values of a wrong type.
	strict, err := kjson.UnmarshalStrict(raw, typed)
	if err != nil {
		return nil
	}
	var paths []string
	for _, one := range strict {
		if path, isUnknown := strings.CutPrefix(one.Error(), "unknown field "); isUnknown {
			paths = append(paths, strings.Trim(path, `"`))
		}
	}
	return paths
}

// roundTrip returns the paths at which a conversion to the other version and back changes an
// object. Only the letter case of cleanPodPolicy may change.
func roundTrip(raw []byte, apiVersion string) ([]string, error) {
	other := v1alpha1.GroupVersion.String()
	if apiVersion == other {
		other = v2alpha1.GroupVersion.String()
	}
	converted, err := conversion.Convert(raw, other)
	if err != nil {
		return nil, err
	}
	back, err := conversion.Convert(converted, apiVersion)
	if err != nil {
		return nil, err
	}
	before, after := decode(raw), decode(back)
	canonical(before)
	var paths []string
	for _, part := range []string{"spec", "status"} {
		paths = append(paths, differences(field.NewPath(part), before[part], after[part])...)
	}
	return paths, nil
}

// canonical changes the cleanPodPolicy of a job to the spelling of the conversion.
func canonical(job map[string]any) {
	spec, _ := job["spec"].(map[string]any)
	if written, ok := spec["cleanPodPolicy"].(string); ok {
		if policy, known := conversion.CanonicalCleanPodPolicy(written); known {
			spec["cleanPodPolicy"] = string(policy)
		}
	}
}

// differences returns the innermost paths at which two values differ.
func differences(path *field.Path, before, after any) []string {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	was, isObject := before.(map[string]any)
	is, stays := after.(map[string]any)
	if !isObject || !stays {
		return []string{path.String()}
	}
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		paths = append(paths, differences(path.Child(key), was[key], is[key])...)
	}
	return paths
}

// decode returns valid JSON as plain values, with numbers as they are written.
func decode(raw []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	object := map[string]any{}
	// The conversion has already rejected a value that is not an object.
	_ = decoder.Decode(&object)
	return object
}

// head identifies an object.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
}

func header(raw []byte) head {
	var found head
	// An object that does not decode has no name, and the conversion reports it.
	_ = json.Unmarshal(raw, &found)
	return found
}

func nameOf(raw []byte) string {
	found := header(raw)
	return fmt.Sprintf("%s %s/%s", strings.ToLower(found.Kind), found.Metadata.Namespace, found.Metadata.Name)
}
