// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// kubelet runs pods for the Python tests. A pod that runs has a folder with its environment (env.json) and
// token. It ends with the code that a test writes to the file exit there.
type kubelet struct {
	live      client.Client
	server    string
	directory string
	addresses int
}

// follow syncs the pods until the context ends.
func (k *kubelet) follow(ctx context.Context, logf func(string, ...any)) {
	for ctx.Err() == nil {
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			logf("the kubelet retries: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (k *kubelet) sync(ctx context.Context) error {
	var pods corev1.PodList
	if err := k.live.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	var problems []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		var err error
		switch pod.Status.Phase {
		case corev1.PodPending:
			err = k.start(ctx, pod)
		case corev1.PodRunning:
			err = k.end(ctx, pod)
		case corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown:
		}
		problems = append(problems, client.IgnoreNotFound(err))
	}
	return errors.Join(problems...)
}

func (k *kubelet) folder(pod *corev1.Pod) string {
	return filepath.Join(k.directory, pod.Name)
}

// start runs a pod: first its status, then its files.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	k.addresses++
	address := fmt.Sprintf("127.9.%d.%d", k.addresses/200, k.addresses%200+1)
	pods.RunReady(pod, address)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: names.Container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	if err := k.live.Status().Update(ctx, pod); err != nil {
		return err
	}
	env, err := testkit.Environment(ctx, k.live, pod, 0)
	if err != nil {
		return err
	}
	for _, variable := range []string{names.EnvDIServerURL, names.EnvServerURL} {
		if _, has := env[variable]; has {
			env[variable] = k.server
		}
	}
	content, err := json.Marshal(env)
	if err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{names.ServerAudience}, ExpirationSeconds: ptr.To[int64](3600),
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := k.live.SubResource("token").Create(ctx, account, request); err != nil {
		return err
	}
	if err := os.MkdirAll(k.folder(pod), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(k.folder(pod), "token"), []byte(request.Status.Token), 0o600); err != nil {
		return err
	}
	// The environment comes last and as a whole: a test that finds it starts.
	temporary := filepath.Join(k.folder(pod), ".env.json")
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(k.folder(pod), "env.json"))
}

// end ends a pod if a test wants it, or if it is terminating.
func (k *kubelet) end(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		if err := os.RemoveAll(k.folder(pod)); err != nil {
			return err
		}
		return k.live.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
	written, err := os.ReadFile(filepath.Join(k.folder(pod), "exit"))
	if errors.Is(err, fs.ErrNotExist) || len(written) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	code, err := strconv.ParseInt(strings.TrimSpace(string(written)), 10, 32)
	if err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.Conditions = nil
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: names.Container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: metav1.Now()},
	}}}
	return k.live.Status().Update(ctx, pod)
}
