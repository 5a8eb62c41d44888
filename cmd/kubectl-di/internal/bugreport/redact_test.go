// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bugreport

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestSecretValuesAreReplacedInAllTheirForms(t *testing.T) {
	t.Parallel()
	r := &redactor{values: map[string]bool{}}
	r.learn(&corev1.Secret{Data: map[string][]byte{
		"password": []byte("hunter2\"x\n"), "key": []byte("-----BEGIN KEY-----\nMIIEvQIBADANBg\nabc\n-----END KEY-----\n"), "short": []byte("yes"),
	}})
	for text, want := range map[string]string{
		`login with hunter2"x failed`: "login with <redacted> failed",
		`{"password":"hunter2\"x"}`:   `{"password":"<redacted>"}`,
		"aHVudGVyMiJ4":                "<redacted>",
		"line: MIIEvQIBADANBg.":       "line: <redacted>.",
		"yes, it trains":              "yes, it trains",
	} {
		expect.Equal(t, "text", want, r.clean(text))
	}
}

func TestTheSecretsOfAPodAreFound(t *testing.T) {
	t.Parallel()
	var pod any
	expect.NoError(t, yaml.Unmarshal([]byte(`
spec:
  imagePullSecrets: [{name: pull}]
  containers:
  - env:
    - {name: A, valueFrom: {secretKeyRef: {name: by-key, key: a}}}
    - {name: WANDB_API_KEY, value: abcdef}
    - {name: STEPS, value: "1000"}
    envFrom: [{secretRef: {name: all}}, {configMapRef: {name: other}}]
  volumes:
  - {name: a, secret: {secretName: mounted}}
  - {name: b, projected: {sources: [{secret: {name: projected}}]}}
status: {containerStatuses: [{state: {terminated: {message: it says abcdef}}}]}
`), &pod))
	expect.Equal(t, "names", []string{"all", "by-key", "mounted", "projected", "pull"}, secretsOf(pod))

	r := &redactor{values: map[string]bool{}}
	r.takeVariables(pod)
	written, err := yaml.Marshal(r.cleaned(pod))
	expect.NoError(t, err)
	text := string(written)
	if strings.Contains(text, "abcdef") || !strings.Contains(text, `value: "1000"`) || !strings.Contains(text, "it says <redacted>") {
		t.Errorf("the pod is\n%s", text)
	}
	r.isBlind = true
	r.hideMessages(pod)
	written, err = yaml.Marshal(pod)
	expect.NoError(t, err)
	if strings.Contains(string(written), "it says") {
		t.Errorf("the pod is\n%s", written)
	}
}
