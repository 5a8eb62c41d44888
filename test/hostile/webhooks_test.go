// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build hostile

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/webhook"
)

const mebi = 1 << 20

// onWebhooks are attacks by clients that reach the webhooks' port. Without NetworkPolicies, every
// pod reaches it.
func onWebhooks() []attack {
	slow := func(path string, announced int) func(context.Context, *world, int) string {
		return func(ctx context.Context, w *world, attacker int) string {
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", path, announced)
			return hold(ctx, unusedAddress(attacker), w.webhooks.Address, true, []byte(head))
		}
	}
	post := func(path string, body []byte) func(context.Context, *world, int) string {
		return func(ctx context.Context, w *world, attacker int) string {
			return send(ctx, &message{
				method: http.MethodPost, url: "https://" + w.webhooks.Address + path, from: unusedAddress(attacker), body: body,
				header: http.Header{"Content-Type": {"application/json"}},
			})
		}
	}
	return []attack{
		{name: "reviews of 6 MiB do not exhaust the webhooks", step: post(webhook.PathValidateV2, review("CREATE", v2Job(envOf(6*mebi)), nil))},
		{name: "reviews of 2.5 MiB do not exhaust the webhooks", step: post(webhook.PathValidateV2, review("CREATE", v2Job(envOf(5*mebi/2)), nil))},
		{name: "announcing a conversion of 6 MiB reserves nothing", step: slow(webhook.PathConvert, 6*mebi)},
		{name: "announcing a conversion of 100 MiB reserves nothing", step: slow(webhook.PathConvert, 100*mebi)},
		{name: "announcing a review of 6 MiB reserves nothing", step: slow(webhook.PathValidateV2, 6*mebi)},
		{name: "a conversion of 60,000 keys of status is linear", step: post(webhook.PathConvert, conversionOf(manyStatusKeys()))},
		{name: "a conversion of deep templates is linear", step: post(webhook.PathConvert, conversionOf(deepTemplate()))},
		{name: "a quantity of ten million digits is refused by the webhooks", step: post(webhook.PathValidateAggregatorConfig, review("CREATE", aggregatorConfig("1e-10000000"), nil))},
		{name: "a quantity of ten million digits in a job is refused", step: post(webhook.PathValidateV2, review("CREATE", v2Job(memoryOf("1e-10000000")), nil))},
		{name: "8,000 tasks and 1,280 references to none are refused", step: post(webhook.PathValidateV2, review("CREATE", manyReferences(), nil))},
		{name: "100,000 tasks that are numbers are refused", step: post(webhook.PathMutateV2, review("CREATE", v2Raw(`{"tasks":[1`+strings.Repeat(",1", 99_999)+`]}`), nil))},
		{name: "100,000 tasks without containers are refused", step: post(webhook.PathValidateV2, review("CREATE", v2Raw(`{"tasks":[{}`+strings.Repeat(",{}", 99_999)+`]}`), nil))},
		{name: "a million empty containers are refused", step: post(webhook.PathValidateV2, review("CREATE", v2Raw(`{"tasks":[{"type":"learner","template":{"spec":{"containers":[{}`+
			strings.Repeat(",{}", 1_000_000)+`]}}}]}`), nil))},
		{name: "130,000 empty containers are refused", step: post(webhook.PathValidateV2, review("CREATE", v2Raw(`{"tasks":[{"type":"learner","template":{"spec":{"containers":[{}`+
			strings.Repeat(",{}", 130_000)+`]}}}]}`), nil))},
		{name: "a conversion of two million empty tasks is refused", step: post(webhook.PathConvert, conversionOf(v1Job(`{`+v1Coordinator+`,"extended":{"tasks":[{}`+
			strings.Repeat(",{}", 1_900_000)+`]}}`, `{}`)))},
		{name: "a conversion of as many values as etcd takes is linear", step: post(webhook.PathConvert, conversionOf(v1Job(`{`+v1Coordinator+`,"extended":{"volumes":[{}`+
			strings.Repeat(",{}", 520_000)+`]}}`, `{}`)))},
		{name: "a conversion of an object of 30 MiB is refused", step: post(webhook.PathConvert, conversionOf(v1Job(`{`+v1Coordinator+`,"extended":{"tasks":[{}`+
			strings.Repeat(",{}", 10_000_000)+`]}}`, `{}`)))},
		{name: "an update of 60,000 unknown fields is linear", step: post(webhook.PathValidateV2, review("UPDATE", v2Job(unknownFields(60_000)), v2Job(unknownFields(60_001))))},
		{name: "2,000 tasks are judged in time", step: post(webhook.PathValidateV2, review("CREATE", manyTasks(2_000), nil))},
		{name: "many empty objects in extended are refused", step: post(webhook.PathValidateV1, review("CREATE", v1Extended(), nil))},
		{name: "a dry run of pods by a stranger is not answered", gets: []string{"404"}, step: post(webhook.PathCheckPods, review("CREATE", v2Job(""), nil))},
		{name: "a guessed token is not answered", gets: []string{"404"}, step: post(webhook.PathCheckPods+"/0123456789abcdef0123456789abcdef", review("CREATE", v2Job(""), nil))},
		{name: "a stranger does not learn of a job by scaling it", gets: []string{"404"}, step: post(webhook.PathValidateScale, review("UPDATE", scaleOf(3), scaleOf(2)))},
		{name: "a stranger does not learn of a job by planning for it", gets: []string{"404"}, step: post(webhook.PathValidatePlannedJob, review("CREATE", planFor("job-0"), nil))},
		{name: "heads that never end are cut off at the webhooks", step: func(ctx context.Context, w *world, attacker int) string {
			return holdMany(ctx, 100, func() string {
				return hold(ctx, unusedAddress(attacker), w.webhooks.Address, true, []byte("GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 60_000)))
			})
		}},
		{name: "connections that say nothing are bounded at the webhooks", step: func(ctx context.Context, w *world, attacker int) string {
			return holdMany(ctx, 100, func() string { return hold(ctx, unusedAddress(attacker), w.webhooks.Address, false, nil) })
		}},
	}
}

// review returns an AdmissionReview of a job or AggregatorConfig.
func review(operation string, object, old []byte) []byte {
	kind := "DIJob"
	if bytes.Contains(object[:100], []byte("AggregatorConfig")) {
		kind = "AggregatorConfig"
	}
	if old == nil {
		old = []byte("null")
	}
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":%q,"version":"v2alpha1","kind":%q},`+
		`"resource":{"group":%q,"version":"v2alpha1","resource":"dijobs"},"namespace":"n","name":"j","operation":%q,"object":%s,"oldObject":%s}}`,
		v2alpha1.GroupName, kind, v2alpha1.GroupName, operation, object, old)
}

// scaleOf returns the scale subresource of a job.
func scaleOf(replicas int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"job-0","namespace":%q},"spec":{"replicas":%d}}`, bystanders, replicas)
}

// planFor returns a ScalePlan for a job.
func planFor(job string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"ScalePlan","metadata":{"name":"p","namespace":%q},"spec":{"job":%q,"remove":["%s-collector-0"]}}`,
		v2alpha1.GroupVersion.String(), bystanders, job, job)
}

// conversionOf returns a ConversionReview of an object of v1alpha1.
func conversionOf(object []byte) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":%q,"objects":[%s]}}`,
		v2alpha1.GroupVersion.String(), object)
}

func v2Raw(spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":%s}`, v2alpha1.GroupVersion.String(), spec)
}

// v2Job returns a job of one task whose container has additional fields.
func v2Job(members string) []byte {
	return v2Raw(`{"tasks":[{"type":"learner","template":{"spec":{"containers":[{"name":"di-container","image":"i"` + members + `}]}}}]}`)
}

func memoryOf(quantity string) string {
	return `,"resources":{"requests":{"memory":"` + quantity + `"}}`
}

// envOf returns small environment variables with the given total size in bytes.
func envOf(size int) string {
	const one = `,{"name":"a","value":"b"}`
	return `,"env":[{"name":"a","value":"b"}` + strings.Repeat(one, size/len(one)) + `]`
}

func unknownFields(count int) string {
	var fields strings.Builder
	for i := range count {
		fmt.Fprintf(&fields, `,"x%d":1`, i)
	}
	return fields.String()
}

func aggregatorConfig(quantity string) []byte {
	return []byte(`{"apiVersion":"` + v2alpha1.GroupVersion.String() + `","kind":"AggregatorConfig","metadata":{"name":"a","namespace":"n"},"spec":{"aggregator":{"template":` +
		`{"spec":{"containers":[{"name":"di-container","image":"i"` + memoryOf(quantity) + `}]}}}}}`)
}

// manyTasks returns a job with the given number of named tasks.
func manyTasks(count int) []byte {
	return v2Raw(`{"tasks":[` + tasks(count) + `]}`)
}

func tasks(count int) string {
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf(`{"type":"none","name":"t%d","template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`, i)
	}
	return strings.Join(all, ",")
}

// manyReferences returns a job whose failure policy names tasks that it does not have.
func manyReferences() []byte {
	names := make([]string, 64)
	for i := range names {
		names[i] = fmt.Sprintf(`"none%d"`, i)
	}
	rule := `{"action":"FailJob","tasks":[` + strings.Join(names, ",") + `]}`
	return v2Raw(`{"failurePolicy":{"rules":[` + rule + strings.Repeat(","+rule, 19) + `]},"tasks":[` + tasks(8_000) + `]}`)
}

func v1Job(spec, status string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":%s,"status":%s}`, v1alpha1.GroupVersion.String(), spec, status)
}

const v1Coordinator = `"coordinator":{"template":{"spec":{"containers":[{"name":"di-container","image":"i"}]}}}`

// manyStatusKeys returns a job of v1alpha1 with a replicaStatus of 60,000 roles.
func manyStatusKeys() []byte {
	keys := make([]string, 60_000)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"k%d":{"active":1}`, i)
	}
	return v1Job(`{`+v1Coordinator+`}`, `{"replicaStatus":{`+strings.Join(keys, ",")+`}}`)
}

// deepTemplate returns a job of v1alpha1 whose template has 9,900 levels and differs from that in
// extended at the deepest level.
func deepTemplate() []byte {
	nested := func(deepest string) string {
		const levels = 4_900
		return `{"spec":` + strings.Repeat(`{"a":`, levels) + deepest + strings.Repeat(`}`, levels) + `}`
	}
	return v1Job(`{"coordinator":{"template":`+nested("1")+`},"extended":{"tasks":[{"type":"coordinator","name":"coordinator","template":`+nested("2")+`}]}}`, `{}`)
}

func v1Extended() []byte {
	return v1Job(`{`+v1Coordinator+`,"extended":{"volumes":[{}`+strings.Repeat(",{}", 900_000)+`]}}`, `{}`)
}
