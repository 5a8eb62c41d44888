// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func usual() []string {
	return []string{
		"0", "1", "+1", "-1", "0.5", ".5", "5.", "100m", "1n", "1u", "1k", "12M", "12E", "12Ei", "1Gi", "1.5Ti", "1e3", "1E3", "12e-3", "1e+09", "1e18",
		"9223372036854775807", "-9223372036854775808", "0.1000000000000000055511151231257827", " 1Gi ",
	}
}

func TestEveryFormThatUsersWriteIsAccepted(t *testing.T) {
	for _, text := range usual() {
		if err := Check(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := resource.ParseQuantity(strings.TrimSpace(text)); err != nil {
			t.Errorf("%q is no example: %v", text, err)
		}
	}
}

func TestWhatCostsIsRefusedWithItsReason(t *testing.T) {
	const exponent, length = "the exponent of a quantity must be from -18 to 18", "a quantity must have at most 40 characters, and this has 41"
	for text, want := range map[string]string{
		"1e-10000000":                 exponent,
		"1e30000000":                  exponent,
		"1E-2147483648":               exponent,
		"1e4294967297":                exponent,
		"1e99999999999999999999":      exponent,
		"1e19":                        exponent,
		"1e-19":                       exponent,
		strings.Repeat("1", 41):       length,
		"." + strings.Repeat("1", 40): length,
	} {
		if err := Check(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzQuantity(f *testing.F) {
	for _, text := range append(usual(), "1e-10000000", "1e19", "1e1e1", "Ee", "1e18Ei", "", "e", "1e", "1E+") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if Check(text) != nil {
			return
		}
		parsed, err := resource.ParseQuantity(strings.TrimSpace(text))
		if err != nil {
			return
		}
		// 40 digits and a power of 2^60 are less than 256 bits.
		if bits, scale := parsed.AsDec().UnscaledBig().BitLen(), parsed.AsDec().Scale(); bits > 256 || scale < -64 || scale > 64 {
			t.Fatalf("%q has %d bits at scale %d", text, bits, scale)
		}
		canonical, err := resource.ParseQuantity(text)
		if _, exact := canonical.AsInt64(); err == nil && exact && Check(canonical.String()) != nil {
			t.Fatalf("%q is accepted, and its canonical form %q is not", text, canonical.String())
		}
	})
}

// placed returns a pod template for each position of a quantity, by its path.
func placed(value string) map[string]string {
	container := func(field, below string) string {
		return fmt.Sprintf(`{"spec":{"restartPolicy":"Never","%s":[{"name":"a"},{"name":"b",%s}]}}`, field, fmt.Sprintf(below, value))
	}
	volume := func(below string) string {
		return fmt.Sprintf(`{"metadata":{},"spec":{"volumes":[{"name":"v",%s}]}}`, fmt.Sprintf(below, value))
	}
	return map[string]string{
		"spec.containers[1].resources.limits[memory]":                                        container("containers", `"resources":{"limits":{"cpu":1,"memory":%s}}`),
		"spec.containers[1].resources.requests[a.b/c]":                                       container("containers", `"resources":{"requests":{"a.b/c":%s}}`),
		"spec.initContainers[1].resources.limits[cpu]":                                       container("initContainers", `"resources":{"limits":{"cpu":%s}}`),
		"spec.ephemeralContainers[1].resources.limits[cpu]":                                  container("ephemeralContainers", `"resources":{"limits":{"cpu":%s}}`),
		"spec.containers[1].env[0].valueFrom.resourceFieldRef.divisor":                       container("containers", `"env":[{"valueFrom":{"resourceFieldRef":{"divisor":%s}}}]`),
		"spec.overhead[cpu]":                                                                 fmt.Sprintf(`{"spec":{"overhead":{"cpu":%s}}}`, value),
		"spec.resources.limits[cpu]":                                                         fmt.Sprintf(`{"spec":{"resources":{"limits":{"cpu":%s}}}}`, value),
		"spec.volumes[0].emptyDir.sizeLimit":                                                 volume(`"emptyDir":{"sizeLimit":%s}`),
		"spec.volumes[0].downwardAPI.items[0].resourceFieldRef.divisor":                      volume(`"downwardAPI":{"items":[{"resourceFieldRef":{"divisor":%s}}]}`),
		"spec.volumes[0].projected.sources[0].downwardAPI.items[0].resourceFieldRef.divisor": volume(`"projected":{"sources":[{"downwardAPI":{"items":[{"resourceFieldRef":{"divisor":%s}}]}}]}`),
		"spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]":     volume(`"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":%s}}}}}`),
		"spec.containers[1].Resources.LIMITS[cpu]":                                           container("containers", `"Resources":{"LIMITS":{"cpu":%s}}`),
		"spec.containers[1].resources.limits[memory ]":                                       container("containers", `"re\u0073ources" : { "limits" : {"memory ": %s } }`),
		"spec.containers[1].resources.limits[twice]":                                         container("containers", `"resources":{"limits":{"twice":%s}},"resources":{}`),
	}
}

func TestAQuantityOfATemplateIsRefusedByItsPath(t *testing.T) {
	for _, value := range []string{`1e-10000000`, `"1e30000000"`, `"1\u0065-10000000"`, `" 1e99 "`} {
		for path, template := range placed(value) {
			if err := CheckTemplate([]byte(template)); err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), ": the exponent") {
				t.Errorf("%s: %v, want %s", template, err, path)
			}
		}
	}
}

func TestTheQuantitiesOfATemplateThatUsersWriteAreAccepted(t *testing.T) {
	for _, value := range []string{`1`, `"1Gi"`, `1e3`, `null`, `"no quantity"`, `{"a":"1e99"}`, `["1e99"]`, `true`} {
		for path, template := range placed(value) {
			if err := CheckTemplate([]byte(template)); err != nil {
				t.Errorf("%s: %s: %v", path, template, err)
			}
		}
	}
}

func TestTextThatIsNoQuantityIsTheUsersOwn(t *testing.T) {
	for _, template := range []string{
		`{"metadata":{"annotations":{"sizeLimit":"1e999999999","limits":"1e-999999999"}}}`,
		`{"spec":{"containers":[{"args":["1e999999999","--lr=1e-999999999"],"image":"a@sha256:1e999999999","env":[{"name":"limits","value":"1e999999999"}]}]}}`,
		`{"spec":{"unknown":{"resources":{"limits":{"cpu":1e999999999}}},"limits":1e999999999}}`,
		`{"spec":{"containers":{"resources":1e999999999}}}`,
		`{"spec":[1,[2,{"a":"]\\\""}]],"x":"}"}`,
		``, `1e999999999`, `"`, `{"spec":{"overhead":{"cpu":1e999999999}}`,
	} {
		if err := CheckTemplate([]byte(template)); err != nil {
			t.Errorf("%s: %v", template, err)
		}
	}
}

func TestAVolumeIsCheckedAsOneOfATemplate(t *testing.T) {
	err := CheckVolume([]byte(`{"name":"v","emptyDir":{"sizeLimit":"1e-10000000"}}`))
	if err == nil || !strings.HasPrefix(err.Error(), "emptyDir.sizeLimit: 1e-10000000: the exponent") {
		t.Error(err)
	}
}

// TestEveryPlaceOfAQuantityIsKnown fails if a new release of Kubernetes adds a position, so that it
// is reviewed.
func TestEveryPlaceOfAQuantityIsKnown(t *testing.T) {
	known := map[string]bool{}
	for path := range placed("1") {
		var general strings.Builder
		for _, part := range strings.FieldsFunc(strings.ToLower(path), func(r rune) bool { return r == '[' || r == '.' }) {
			if !strings.HasSuffix(part, "]") && !strings.HasPrefix(part, "b/c") {
				general.WriteString("." + part)
			}
		}
		known[general.String()] = true
	}
	var found []string
	var collect func(*position, string)
	collect = func(at *position, path string) {
		if at.quantity {
			found = append(found, path)
		}
		if at.every != nil {
			collect(at.every, path)
		}
		for _, name := range slices.Sorted(maps.Keys(at.members)) {
			collect(at.members[name], path+"."+strings.ToLower(name))
		}
	}
	collect(podTemplate, "")
	for _, path := range found {
		// Containers of all kinds have the same fields.
		alike := strings.NewReplacer("initcontainers", "containers", "ephemeralcontainers", "containers", "requests", "limits").Replace(path)
		if !known[path] && !known[alike] && !known[strings.ReplaceAll(alike, "limits", "requests")] {
			t.Errorf("no test writes a quantity at %s", path)
		}
	}
	if len(found) < 15 {
		t.Errorf("only %q are found", found)
	}
}

// FuzzTemplateQuantities decodes every accepted template. Decoding an expensive one would not end.
func FuzzTemplateQuantities(f *testing.F) {
	for _, value := range []string{`1`, `"1Gi"`, `"1e-10000000"`, `"1\u0065-10000000"`, `1e99`} {
		for _, template := range placed(value) {
			f.Add([]byte(template))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		refused := CheckTemplate(raw)
		if refused != nil {
			if !json.Valid(raw) {
				t.Fatalf("%s is no JSON, and %v", raw, refused)
			}
			return
		}
		template := &corev1.PodTemplateSpec{}
		if json.Unmarshal(raw, template) != nil {
			return
		}
		for i := range template.Spec.Containers {
			for name, limit := range template.Spec.Containers[i].Resources.Limits {
				if bits := limit.AsDec().UnscaledBig().BitLen(); bits > 256 {
					t.Fatalf("%s: the limit %s has %d bits", raw, name, bits)
				}
			}
		}
	})
}
