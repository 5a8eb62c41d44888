// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("a body", func() {
	const who = `{"namespace":"n","coordinator":"c",`
	const failed, workers = "/v1alpha1/replicas/failed", "/v2alpha1/n.w/replicas"

	DescribeTable("that is malformed is answered with each field, its value and what would be right",
		func(ctx SpecContext, path, body string, want ...string) {
			methods := []string{http.MethodPost, http.MethodDelete}
			if path == failed {
				methods = methods[:1]
			}
			for _, method := range methods {
				code, answer := call(ctx, method, newServer(api.cached)+path, body)
				var envelope struct{ Message string }
				Expect(json.Unmarshal([]byte(answer), &envelope)).To(Succeed())
				Expect(fmt.Sprint(code, " ", envelope.Message)).To(Equal("400 " + strings.Join(want, "; ")))
			}
		},
		Entry("no object", replicas, `[1]`, `the body must be a JSON object, not: [1]`),
		Entry("null", replicas, `null`, `the body must be a JSON object, not: null`),
		Entry("no JSON", replicas, `{"namespace":`, `the body is no JSON: unexpected end of JSON input`),
		Entry("a number that is none", replicas, who+`"collectors":{"replicas":NaN}}`, `the body is no JSON: invalid character 'N' looking for beginning of value`),
		Entry("no caller", replicas, `{"namespace":"","collectors":{}}`, `namespace: is empty: a name is required`, `coordinator: is required`),
		Entry("a caller of another type", replicas, `{"namespace":5,"coordinator":["c"]}`, `namespace: 5 is not a string`, `coordinator: ["c"] is not a string`),
		Entry("replicas that are no object", replicas, who+`"collectors":2,"learners":[]}`, `collectors: 2 is not an object`, `learners: [] is not an object`),
		Entry("half a replica", replicas, who+`"collectors":{"replicas":1.5}}`, `collectors.replicas: 1.5 is not a whole number of at most 2147483647, such as 2`),
		Entry("a count that is a string", replicas, who+`"learners":{"replicas":"2"}}`, `learners.replicas: "2" is not a whole number of at most 2147483647, such as 2`),
		Entry("a count too large", replicas, who+`"learners":{"replicas":2147483648}}`, `learners.replicas: 2147483648 is not a whole number of at most 2147483647, such as 2`),
		Entry("a negative count", replicas, who+`"learners":{"replicas":-1}}`, `learners.replicas: -1 is negative`),
		Entry("quantities that are none", replicas, who+`"collectors":{"cpus":"NaN","gpus":"","memory":"much"},"learners":{"cpus":true,"gpus":{},"memory":[1]}}`,
			`collectors.cpus: "NaN" is not a quantity, such as 2, "500m" or "4Gi"`,
			`collectors.gpus: "" is not a quantity, such as 2, "500m" or "4Gi"`,
			`collectors.memory: "much" is not a quantity, such as 2, "500m" or "4Gi"`,
			`learners.cpus: true is not a quantity, such as 2, "500m" or "4Gi"`,
			`learners.gpus: {} is not a quantity, such as 2, "500m" or "4Gi"`,
			`learners.memory: [1] is not a quantity, such as 2, "500m" or "4Gi"`),
		Entry("negative quantities", replicas, who+`"collectors":{"cpus":-1,"memory":"-1Gi"}}`, `collectors.cpus: -1 is negative`, `collectors.memory: "-1Gi" is negative`),
		Entry("quantities that take hours to compute with", replicas, who+`"collectors":{"cpus":1e-10000000,"memory":"1e1000000000"},"learners":{"gpus":"1E10000000"}}`,
			`collectors.cpus: 1e-10000000: the exponent of a quantity must be from -18 to 18`,
			`collectors.memory: "1e1000000000": the exponent of a quantity must be from -18 to 18`,
			`learners.gpus: "1E10000000": the exponent of a quantity must be from -18 to 18`),
		Entry("half a GPU", replicas, who+`"learners":{"gpus":1.5}}`, `learners.gpus: 1500m is no whole number`),
		Entry("too many GPUs", replicas, who+`"learners":{"gpus":"5k"}}`, `learners.gpus: 5k is more than 4096`),
		Entry("a value too long to show", replicas, who+`"collectors":"`+strings.Repeat("x", 100)+`"}`, `collectors: "`+strings.Repeat("x", 63)+`... is not an object`),
		Entry("an empty pod name", failed, who+`"collectors":["a",""]}`, `collectors[1]: is empty: a name is required`),
		Entry("pod names of another type", failed, who+`"collectors":[1,null],"learners":"a"}`,
			`collectors[0]: 1 is not a string`, `collectors[1]: is required`, `learners: "a" is not a list of the names of pods`),
		Entry("more errors than are listed", failed, who+`"learners":[`+strings.Repeat("1,", 100000)+`1]}`,
			`learners[0]: 1 is not a string`, `learners[1]: 1 is not a string`, `learners[2]: 1 is not a string`, `learners[3]: 1 is not a string`,
			`learners[4]: 1 is not a string`, `learners[5]: 1 is not a string`, `learners[6]: 1 is not a string`, `learners[7]: 1 is not a string`,
			`and 99993 more`),
		Entry("no replicas of a worker-led job", workers, `{}`, `replicas: is missing, such as 2`),
		Entry("half a replica of a worker-led job", workers, `{"replicas":0.5}`, `replicas: 0.5 is not a whole number of at most 2147483647, such as 2`),
		Entry("more than a body may have", replicas, strings.Repeat(" ", 64<<10+1), `the body has 65537 bytes, more than the 65536 that it may have`),
		Entry("more than a report may have", failed, strings.Repeat(" ", 1<<20+1), `the body has 1048577 bytes, more than the 1048576 that it may have`),
	)

	It("may say quantities as numbers and as strings, and more than is known", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, api.live)
		job := newTrainer(ctx, namespace)
		code, answer := call(ctx, http.MethodPost, newServer(api.cached)+replicas, fmt.Sprintf(
			`{"namespace":%q,"coordinator":%q,"cpu":1,
			  "collectors":{"replicas":1,"cpus":0.5,"gpus":0,"memory":1073741824,"gpu":{}},
			  "learners":{"replicas":1,"cpus":"500m","gpus":"1","memory":"1Gi","cpus2":null}}`, namespace, names.CoordinatorPod(trainer)))
		Expect(code).To(Equal(http.StatusOK), answer)
		for _, member := range membershipOf(ctx, job).Spec.Members {
			Expect(member.Resources.CPUs.AsApproximateFloat64()).To(Equal(0.5))
			Expect(member.Resources.Memory.Value()).To(BeEquivalentTo(1 << 30))
		}
	})
})

var _ = Describe("an answer", func() {
	It("says how long it is, however long it is", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, api.live)
		newTrainer(ctx, namespace)
		request := specs.Must(http.NewRequestWithContext(ctx, http.MethodPost, newServer(api.cached)+replicas, strings.NewReader(fmt.Sprintf(
			`{"namespace":%q,"coordinator":%q,"collectors":{"replicas":200}}`, namespace, names.CoordinatorPod(trainer)))))
		response, err := http.DefaultClient.Do(request)
		Expect(err).NotTo(HaveOccurred())
		content := specs.Must(io.ReadAll(response.Body))
		Expect(response.Body.Close()).To(Succeed())
		Expect(len(content)).To(BeNumerically(">", 4<<10))
		Expect(response.ContentLength).To(BeEquivalentTo(len(content)))
		Expect(response.TransferEncoding).To(BeEmpty())
	})
})

// replicas is the path of the v1 protocol.
const replicas = "/v1alpha1/replicas"
