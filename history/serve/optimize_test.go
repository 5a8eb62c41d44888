// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/serve"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/internal/service"
)

const gi = 1 << 30

func onPlans(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"scaleplans"}, Verbs: verbs}
}

// train records a running job of group pong, and five finished ones whose workers used that memory.
func (f *fixture) train(namespace string, memory int64) {
	f.t.Helper()
	var changes []store.Change
	for i := range 6 {
		job := &record.Job{
			UID: fmt.Sprintf("%s-%d", namespace, i), Namespace: namespace, Name: fmt.Sprintf("pong-%d", i), Group: "pong", Version: "v2alpha1", Phase: "Running",
			Created: at(100 * i), Peaks: []record.Peak{{Task: "worker", CPU: 1000, Memory: memory}},
			Manifest: []byte(`{"spec": {"tasks": [{"name": "worker", "template": {"spec": {"containers": [{"name": "di-container", "image": "train:v1"}]}}}]}}`),
		}
		if i < 5 {
			job.Phase, job.Ended = "Succeeded", at(100*i+50)
		}
		changes = append(changes, store.Change{UID: job.UID, Job: job})
	}
	f.Expect(f.database.Write(f.t.Context(), changes)).To(Succeed())
}

// asked returns a request for the first plan of the running job.
func asked(namespace string) *remote.Request {
	requests := optimizer.Resources{CPU: 4000, Memory: 8 * gi}
	pod := optimizer.Replica{Task: "worker", Pod: "pong-5-worker-0", Requests: requests}
	task := optimizer.Task{Name: "worker", Role: optimizer.RoleOther, Replicas: 1, Min: 1, Max: 1, Requests: requests, Template: requests, Pods: []optimizer.Replica{pod}}
	return &remote.Request{Version: remote.Version, Operation: remote.OperationGenerate, Stage: optimizer.StageCreate, Job: &optimizer.Job{
		Namespace: namespace, Name: "pong-5", UID: types.UID(namespace + "-5"), Now: at(600), Tasks: []optimizer.Task{task},
		Samples: []optimizer.Sample{{Time: at(600), Usage: []optimizer.Usage{{Task: "worker", Used: optimizer.Resources{CPU: 10, Memory: gi / 4}, Requests: requests}}}},
	}}
}

// post returns the code and the body of an answer.
func (f *fixture) post(token, body string) (int, string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.url+remote.Path, strings.NewReader(body))
	f.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	f.Expect(err).NotTo(HaveOccurred())
	answer, err := io.ReadAll(response.Body)
	f.Expect(errors.Join(err, response.Body.Close())).To(Succeed())
	return response.StatusCode, string(answer)
}

func (f *fixture) ask(token string, request *remote.Request) (remote.Answer, int) {
	f.t.Helper()
	body, err := json.Marshal(request)
	f.Expect(err).NotTo(HaveOccurred())
	code, text := f.post(token, string(body))
	var answer remote.Answer
	if code == http.StatusOK {
		f.Expect(json.Unmarshal([]byte(text), &answer)).To(Succeed())
	}
	return answer, code
}

func (f *fixture) program(namespace string, rules ...rbacv1.PolicyRule) string {
	f.t.Helper()
	return f.tokenFor([]string{serve.Audience}, namespace, rules...)
}

func TestAPlanIsByFinishedJobsOfTheNamespace(t *testing.T) {
	f := setUp(t)
	f.train(f.own, gi)
	f.train(f.other, 5*gi)
	token := f.program("", onPlans("create"), onJobs("list"))

	request := asked(f.own)
	request.Job.UID = "unknown"
	answer, _ := f.ask(token, request)
	f.Expect(answer.Plan.Empty()).To(BeTrue())
	f.Expect(answer.Plan.Reason).To(HaveSuffix("the history has not recorded the job yet"))

	for namespace, want := range map[string]int64{f.own: 1096 << 20, f.other: 5479 << 20} {
		request := asked(namespace)
		answer, _ := f.ask(token, request)
		f.Expect(answer.Namespace).To(Equal(namespace))
		f.Expect(answer.Plan.Reason).To(Equal("CREATE: by 5 similar jobs at distance 0.00: pong-4, pong-3, pong-2, pong-1, pong-0"))
		f.Expect(answer.Plan.Tasks).To(HaveLen(1))
		f.Expect(answer.Plan.Tasks[0].Requests).To(Equal(optimizer.Resources{CPU: 1070, Memory: want}))
	}

	request = asked(f.own)
	request.Job.UID = types.UID(f.other + "-5")
	answer, _ = f.ask(token, request)
	f.Expect(answer.Plan.Empty()).To(BeTrue(), "the job is of another namespace")
}

// localPlan is what the operator decides by if the service does not help.
type localPlan struct{}

func (localPlan) Generate(context.Context, optimizer.Stage, *optimizer.Job) (optimizer.Plan, error) {
	return optimizer.Plan{Reason: "local"}, nil
}

func (localPlan) RecoverOOM(context.Context, []optimizer.Replica, *optimizer.Job) (optimizer.Plan, error) {
	return optimizer.Plan{Reason: "local"}, nil
}

func TestTheHistoryIsTheRemoteOptimizerOfTheOperator(t *testing.T) {
	f := setUp(t)
	f.train(f.own, gi)
	served := httptest.NewTLSServer(f.handler)
	t.Cleanup(served.Close)
	folder := t.TempDir()
	settings := service.Settings{URL: served.URL, Timeout: 30 * time.Second, TokenFile: filepath.Join(folder, "token"), CAFile: filepath.Join(folder, "ca.crt")}
	f.Expect(os.WriteFile(settings.TokenFile, []byte(f.program("", onPlans("create"), onJobs("list"))), 0o600)).To(Succeed())
	f.Expect(os.WriteFile(settings.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw}), 0o600)).To(Succeed())
	operator, err := remote.New(settings, localPlan{})
	f.Expect(err).NotTo(HaveOccurred())

	job := asked(f.own).Job
	plan, err := operator.Generate(t.Context(), optimizer.StageCreate, job)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(plan.Reason).To(HavePrefix("CREATE: by 5 similar jobs"))
	f.Expect(plan.Tasks).To(HaveLen(1))

	killed := job.Tasks[0].Pods
	killed[0].Requests.Memory = gi / 2
	plan, err = operator.RecoverOOM(t.Context(), killed, job)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(plan.Reason).To(HavePrefix("OutOfMemory: "))
	f.Expect(plan.Migrate).To(HaveLen(1))
	f.Expect(plan.Migrate[0].Requests.Memory).To(BeEquivalentTo(8*gi), "that of the template")
}

func TestOnlyProgramsThatMayPlanAreAnswered(t *testing.T) {
	f := setUp(t)
	f.train(f.own, gi)
	for name, one := range map[string]struct {
		token string
		code  int
	}{
		"no token":                 {"", http.StatusUnauthorized},
		"a token of a user":        {f.token(f.own, onPlans("create"), onJobs("list")), http.StatusUnauthorized},
		"no plans":                 {f.program(f.own, onJobs("list")), http.StatusForbidden},
		"no jobs":                  {f.program(f.own, onPlans("create")), http.StatusForbidden},
		"rights in another one":    {f.program(f.other, onPlans("create"), onJobs("list")), http.StatusForbidden},
		"rights in this namespace": {f.program(f.own, onPlans("create"), onJobs("list")), http.StatusOK},
	} {
		_, code := f.ask(one.token, asked(f.own))
		f.Expect(code).To(Equal(one.code), name)
	}
	code, _ := f.get(f.program(f.own, onJobs("get")), "/"+f.own+"/pong-1")
	f.Expect(code).To(Equal(http.StatusUnauthorized), "tokens of programs read nothing")
}

func TestWhatIsNoRequestForAPlanIsRefused(t *testing.T) {
	f := setUp(t)
	token := f.program(f.own, onPlans("create"), onJobs("list"))
	for want, change := range map[string]func(*remote.Request){
		"version is 2":            func(r *remote.Request) { r.Version = 2 },
		"operation is":            func(r *remote.Request) { r.Operation = "guess" },
		"job: must have":          func(r *remote.Request) { r.Job = nil },
		"257 tasks":               func(r *remote.Request) { r.Job.Tasks = make([]optimizer.Task, 257) },
		"241 samples":             func(r *remote.Request) { r.Job.Samples = make([]optimizer.Sample, 241) },
		"2001 killed":             func(r *remote.Request) { r.Killed = make([]optimizer.Replica, 2001) },
		"job.tasks[0]: -1":        func(r *remote.Request) { r.Job.Tasks[0].Replicas = -1 },
		"job.tasks[0]: 200000000": func(r *remote.Request) { r.Job.Tasks[0].Replicas = 2_000_000_000 },
		"job.tasks: 200000": func(r *remote.Request) {
			r.Job.Tasks[0].Replicas = 100_000
			r.Job.Tasks = append(r.Job.Tasks, r.Job.Tasks[0])
		},
	} {
		request := asked(f.own)
		change(request)
		body, err := json.Marshal(request)
		f.Expect(err).NotTo(HaveOccurred())
		code, text := f.post(token, string(body))
		f.Expect(code).To(Equal(http.StatusBadRequest), want)
		f.Expect(text).To(ContainSubstring(want))
	}
	for _, body := range []string{"", "{", `{"job": 1}`, `{"job": {"name": "` + strings.Repeat("a", 9<<20) + `"}}`} {
		code, text := f.post(token, body)
		f.Expect(code).To(Equal(http.StatusBadRequest), text)
		f.Expect(text).To(ContainSubstring("the body does not decode"))
	}
}
