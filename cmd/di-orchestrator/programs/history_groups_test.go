// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/serve"
	"opendilab.org/di-orchestrator/internal/names"
)

func TestTheHistoryHasTheGroupsThatTheAllocatorDropped(t *testing.T) {
	r := newRemembered(t)
	r.reader(t)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{serve.Audience}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}}
	if err := r.api.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	stored := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: names.AllocationGroups},
		Data:       map[string]string{"group-1": `{"name":"default/pong","usedAt":"2026-03-01T10:00:00Z","finished":3}`},
	}
	if err := r.api.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	program := start(t, r.kubeconfigs, nil, "history", "--address=127.0.0.1:0", "--metrics-address=0", "--probe-address=0", "--sqlite="+filepath.Join(t.TempDir(), "history.db"))
	isKnown := func(ctx context.Context) error {
		found := servingLine.FindStringSubmatch(program.log())
		if found == nil {
			return errors.New("no line says that it is served")
		}
		answer, err := r.ask(ctx, http.MethodPost, found[1], request.Status.Token, record.PathGroups, `{"names":["default/pong"]}`)
		if err == nil && !strings.Contains(answer, `"finished":3`) {
			err = errors.New(answer)
		}
		return err
	}
	await(t, "the group is known", isKnown)
	stored.Data = nil
	if err := r.api.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	await(t, "it is still known", isKnown)
}
