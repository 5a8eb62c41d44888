// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build hostile

package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// byOthers are attacks by callers who pretend to be another caller.
func byOthers() []attack {
	victim := "/v1alpha1/replicas?namespace=" + bystanders + "&coordinator=" + names.CoordinatorPod("job-0")
	flood := &tokenFlood{}
	return []attack{
		{name: "a pod of another job reads nothing", gets: refusals, step: asOwn(func(string) message {
			return message{method: "GET", url: victim}
		})},
		{name: "a pod of another job creates nothing", gets: refusals, step: asOwn(func(string) message {
			return message{method: "POST", url: "/v1alpha1/replicas", body: fmt.Appendf(nil,
				`{"namespace":%q,"coordinator":%q,"collectors":{"replicas":1}}`, bystanders, names.CoordinatorPod("job-0"))}
		})},
		{name: "a token for the API server is refused", gets: refusals, step: otherAudience(victim)},
		{name: "made-up tokens of ten addresses leave the API server alone", step: flood.step(victim), holds: flood.isPaced},
		{name: "a head of two lengths is one request of the same caller", gets: refusals, step: twoLengths(victim)},
		{name: "TLS 1.1 is refused by the webhooks", gets: []string{"refused", noAnswer}, step: oldTLS},
		{name: "what callers write forges no line of the log", gets: refusals, step: logLines, holds: isNoLine},
		{name: "an AggregatorConfig of another namespace stays there", once: true, gets: []string{"404"}, step: askForTemplate, holds: templateIsKept},
	}
}

// otherAudience returns a step that sends a valid token whose audience is the API server.
func otherAudience(url string) func(context.Context, *world, int) string {
	return func(ctx context.Context, w *world, attacker int) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: intruders, Name: fmt.Sprintf("account-%d", attacker)}}
		if err := client.IgnoreAlreadyExists(w.API.Create(ctx, account)); err != nil {
			return failed(ctx)
		}
		request := &authenticationv1.TokenRequest{}
		if err := w.API.SubResource("token").Create(ctx, account, request); err != nil {
			return failed(ctx)
		}
		return send(ctx, &message{
			method: "GET", from: unusedAddress(attacker), url: "http://" + w.server.Address + url,
			header: http.Header{"Authorization": {"Bearer " + request.Status.Token}},
		})
	}
}

// tokenFlood sends unsigned tokens with the right form and audience.
type tokenFlood struct{ cost }

// floodAddresses is the number of source addresses, all in one network. mostReviews is the maximum
// number of TokenReviews a second, in addition to a burst of burstReviews.
const floodAddresses, mostReviews, burstReviews = 10, 60, 200

func (f *tokenFlood) step(url string) func(context.Context, *world, int) string {
	return func(ctx context.Context, w *world, _ int) string {
		call, err := f.add(w)
		if err != nil {
			return err.Error()
		}
		encode := base64.RawURLEncoding.EncodeToString
		claims := fmt.Appendf(nil, `{"aud":[%q],"exp":%d,"jti":"%d"}`, names.ServerAudience, time.Now().Add(time.Hour).Unix(), call)
		return send(ctx, &message{
			method: "GET", from: fmt.Sprintf("127.9.1.%d", call%floodAddresses+1), url: "http://" + w.server.Address + url,
			header: http.Header{"Authorization": {"Bearer " + encode([]byte(`{"alg":"RS256"}`)) + "." + encode(claims) + "." + encode([]byte("s"))}},
		})
	}
}

// isPaced checks that di-server sent TokenReviews no faster than its rate limit.
func (f *tokenFlood) isPaced(_ context.Context, w *world) error {
	reviews, err := f.requests(w, func(event *controlplane.Event) bool { return event.ObjectRef.Resource == "tokenreviews" })
	seconds := f.begun(time.Second)
	if err == nil && reviews > burstReviews+seconds*mostReviews {
		err = fmt.Errorf("%d made-up tokens cost %d TokenReviews in %d seconds, more than %d and %d a second", f.calls.Load(), reviews, seconds, burstReviews, mostReviews)
	}
	return err
}

// twoLengths returns a step that sends a head with both length headers and another request in its
// body. Its outcome is that of the last answer.
func twoLengths(url string) func(context.Context, *world, int) string {
	return func(ctx context.Context, w *world, attacker int) string {
		bounded, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		from := w.kubelet.address(intruders, fmt.Sprintf("stranger-%d", attacker))
		if from == "" {
			from = unusedAddress(attacker)
		}
		conn, err := dialFrom(bounded, from, w.server.Address)
		if err != nil {
			return failed(ctx)
		}
		defer func() { _ = conn.Close() }()
		stop := context.AfterFunc(bounded, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		hidden := "GET " + url + " HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n"
		_, err = io.WriteString(conn, "POST /v1alpha1/replicas HTTP/1.1\r\nHost: s\r\nContent-Length: "+strconv.Itoa(len(hidden)+5)+
			"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+hidden)
		if err != nil {
			return failed(ctx)
		}
		return lastAnswer(ctx, conn)
	}
}

// lastAnswer returns the outcome of the last answer on a connection, or of the first answer that is
// not a refusal.
func lastAnswer(ctx context.Context, conn io.Reader) string {
	outcome := failed(ctx)
	for reader := bufio.NewReader(conn); ; {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return outcome
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if outcome = strconv.Itoa(response.StatusCode); err != nil || response.StatusCode < http.StatusBadRequest {
			return outcome
		}
	}
}

func oldTLS(ctx context.Context, w *world, attacker int) string {
	conn, err := dialFrom(ctx, unusedAddress(attacker), w.webhooks.Address)
	if err != nil {
		return failed(ctx)
	}
	defer func() { _ = conn.Close() }()
	old := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true}) //nolint:gosec // an intruder wants it weak
	if err := old.HandshakeContext(ctx); err == nil {
		return "accepted"
	} else if ctx.Err() != nil {
		return outOfTime
	}
	return "refused"
}

// forgedLine is a log line that only an intruder writes.
const forgedLine = `{"level":"error","msg":"forged by an intruder"}`

func logLines(ctx context.Context, w *world, attacker int) string {
	body, err := json.Marshal(map[string]any{"namespace": bystanders, "coordinator": "a\n" + forgedLine + "\n", "collectors": map[string]any{"replicas": 1}})
	if err != nil {
		return err.Error()
	}
	return w.fromPod(ctx, fmt.Sprintf("stranger-%d", attacker), message{
		method: "POST", url: "/v1alpha1/replicas?x=%0Aforged",
		header: http.Header{"User-Agent": {"a " + forgedLine}, "Idempotency-Key": {"a " + forgedLine}}, body: body,
	})
}

// isNoLine checks that every line of the log is a JSON object that di-server wrote.
func isNoLine(_ context.Context, w *world) error {
	content, err := w.server.Log()
	if err != nil {
		return err
	}
	for line := range bytes.Lines(content) {
		var entry struct {
			Message string `json:"msg"`
		}
		if err := json.Unmarshal(line, &entry); err != nil || bytes.HasPrefix(line, []byte(forgedLine)) {
			return fmt.Errorf("the log has the line %.200q: %w", line, err)
		}
	}
	return nil
}

// secretImage is the image in the template of a bystander's AggregatorConfig.
const secretImage = "secret-of-the-bystanders"

func askForTemplate(ctx context.Context, w *world, _ int) string {
	template := jobs.Raw(`{"spec":{"containers":[{"name":"di-container","image":"` + secretImage + `"}]}}`)
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: bystanders, Name: "theirs"}}
	config.Spec.Aggregator.Template = template
	if err := client.IgnoreAlreadyExists(w.API.Create(ctx, config)); err != nil {
		return err.Error()
	}
	job := ledJob("curious", v2alpha1.TaskTypeLearner)
	job.Spec.AggregatorConfig = &v2alpha1.AggregatorConfigReference{Namespace: bystanders, Name: config.Name}
	if _, err := w.running(ctx, job); err != nil {
		return err.Error()
	}
	pod := names.CoordinatorPod(job.Name)
	return w.sendAs(ctx, pod, message{
		method: "POST", url: "/v1alpha1/replicas",
		body: fmt.Appendf(nil, `{"namespace":%q,"coordinator":%q,"learners":{"replicas":1,"gpus":"2"}}`, intruders, pod),
	})
}

func templateIsKept(ctx context.Context, w *world) error {
	var pods corev1.PodList
	if err := w.API.List(ctx, &pods, client.InNamespace(intruders)); err != nil {
		return fmt.Errorf("listing pods of the intruders: %w", err)
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.Containers[0].Image == secretImage {
			return fmt.Errorf("pod %s has the template of a bystander", pods.Items[i].Name)
		}
	}
	return nil
}
