// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build hostile

package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// historyMemory is the default memory limit of the chart.
const historyMemory = 512 << 20

// historyRoot is the path of all recorded jobs.
const historyRoot = "/v1alpha1/history/jobs"

// startHistory starts the history with its rights, and gives each namespace a reader.
func (w *world) startHistory(ctx context.Context, binary, folder string) error {
	for _, file := range []string{"role.yaml", "binding.yaml"} {
		text, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "rbac", "history", file))
		if err != nil {
			return fmt.Errorf("reading the rights of the history: %w", err)
		}
		objects, err := testkit.Decode(text)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := w.API.Create(ctx, object); err != nil {
				return fmt.Errorf("creating the rights of the history: %w", err)
			}
		}
	}
	kubeconfig, err := w.AccountKubeconfig("history")
	if err != nil {
		return err
	}
	w.history, err = program.Start(ctx, &program.Command{
		Binary: binary, Name: "history", Folder: folder, Environment: []string{"GOMEMLIMIT=460MiB", kubeconfig},
		Flags: func(address string) []string {
			return []string{"--address", address, "--sqlite", filepath.Join(folder, "history.db")}
		},
	})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, w.history.Stop)
	w.readers = map[string]string{}
	for _, namespace := range []string{bystanders, intruders} {
		if w.readers[namespace], err = w.reader(ctx, namespace); err != nil {
			return err
		}
	}
	return nil
}

// reader returns the token of an account that may view jobs in its namespace.
func (w *world) reader(ctx context.Context, namespace string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reader"}}
	if err := w.API.Create(ctx, account); err != nil {
		return "", fmt.Errorf("creating a reader: %w", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "di-orchestrator-view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
	}
	if err := w.API.Create(ctx, binding); err != nil {
		return "", fmt.Errorf("binding a reader: %w", err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := w.API.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting the token of a reader: %w", err)
	}
	return request.Status.Token, nil
}

// readHistory is what a bystander reads of a job.
func (w *world) readHistory(ctx context.Context, number int) error {
	path := fmt.Sprintf(historyRoot+"/%s/job-%d", bystanders, number%bystanderJobs)
	if outcome := w.askHistory(ctx, "127.9.2.1", w.readers[bystanders], message{method: http.MethodGet, url: path}); outcome != "200" {
		return fmt.Errorf("GET %s: %s", path, outcome)
	}
	return nil
}

// askHistory sends a message with a token from an address.
func (w *world) askHistory(ctx context.Context, from, token string, m message) string {
	m.from, m.url = from, "https://"+w.history.Address+m.url
	m.header = http.Header{"Authorization": {"Bearer " + token}}
	return send(ctx, &m)
}

// onHistory are attacks on the history by a tenant who may view the jobs of one namespace.
func onHistory() []attack {
	as := func(m message) func(context.Context, *world, int) string {
		return func(ctx context.Context, w *world, attacker int) string {
			return w.askHistory(ctx, unusedAddress(attacker), w.readers[intruders], m)
		}
	}
	get := func(url string) func(context.Context, *world, int) string {
		return as(message{method: http.MethodGet, url: historyRoot + url})
	}
	foreign := "/" + bystanders + "/job-0"
	refused, missing, wrong := []string{"403", noAnswer}, []string{"404", noAnswer}, []string{"400", "431", noAnswer}
	return []attack{
		{name: "a tenant lists no jobs of another namespace", gets: refused, step: get("?namespace=" + bystanders)},
		{name: "a tenant lists no jobs of all namespaces", gets: refused, step: get("")},
		{name: "a text finds no jobs of other namespaces", gets: refused, step: get("?text=job-0")},
		{name: "a job of another namespace does not exist", gets: missing, step: get(foreign), holds: tellsNoExistence},
		{name: "neither do its curves", gets: missing, step: get(foreign + "/series")},
		{name: "nor its logs", gets: missing, step: get(foreign + "/tails")},
		{name: "a tenant learns no sums of another namespace", gets: refused, step: as(message{method: http.MethodGet, url: "/v1alpha1/history/sums?by=user&namespace=" + bystanders})},
		{name: "nor of all namespaces", gets: refused, step: as(message{method: http.MethodGet, url: "/v1alpha1/history/sums?by=namespace"})},
		{name: "a page of another namespace does not follow one of one's own", gets: refused, step: get("?namespace=" + bystanders + "&from=MTAwMC4x")},
		{name: "worthless tokens read no history", gets: []string{"401", noAnswer}, step: func(ctx context.Context, w *world, attacker int) string {
			return w.askHistory(ctx, unusedAddress(attacker), fmt.Sprintf("e30.e30.%d", attacker), message{method: http.MethodGet, url: historyRoot + foreign})
		}},
		{name: "queries of a megabyte are not read", gets: wrong, step: get("?namespace=" + intruders + "&text=" + strings.Repeat("x", 1<<20))},
		{name: "starts of pages that are made up are refused", gets: wrong, step: get("?namespace=" + intruders + "&from=" + strings.Repeat("A", 4000))},
		{name: "searches without a pause delay no other", gets: []string{"200", noAnswer}, step: get("?namespace=" + intruders + "&text=nothing&limit=500")},
		{name: "connections to the history that say nothing are bounded", step: func(ctx context.Context, w *world, attacker int) string {
			return holdMany(ctx, 250, func() string { return hold(ctx, unusedAddress(attacker), w.history.Address, false, nil) })
		}},
	}
}

// tellsNoExistence returns an error if the answer about a foreign job differs from that about a job that never existed.
func tellsNoExistence(ctx context.Context, w *world) error {
	answers := map[string]string{}
	for _, name := range []string{"job-0", "job-x"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.history.Address+historyRoot+"/"+bystanders+"/"+name, http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+w.readers[intruders])
		response, err := trusting(unusedAddress(0)).Do(request)
		if err != nil {
			return err
		}
		content, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			return err
		}
		answers[name] = strings.ReplaceAll(fmt.Sprint(response.StatusCode, string(content)), name, "NAME")
	}
	if answers["job-0"] != answers["job-x"] {
		return fmt.Errorf("a job that exists gets %s, one that does not %s", answers["job-0"], answers["job-x"])
	}
	return nil
}
