// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build conformance

package conformance

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// image is the image of all pods. It must be in the cluster, or be pulled by its nodes.
var image = flag.String("conformance.image", "cartpole:dev", "image of test/workload/cartpole")

const (
	// patience is the timeout of every expectation about the cluster, and poll its interval.
	patience = 3 * time.Minute
	poll     = 250 * time.Millisecond
)

// world is the cluster under test.
type world struct {
	config  *rest.Config
	api     client.Client
	kubectl string
	// folder has the kubeconfigs of the users.
	folder string
	// users is the namespace of the users' service accounts.
	users string
	// tokens are the users' tokens for di-server.
	tokens map[Caller]string
	// server is the URL of di-server.
	server string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	w := &world{folder: t.TempDir(), tokens: map[Caller]string{}}
	var err error
	w.config, err = config.GetConfig()
	expect.NoError(t, err)
	w.config.QPS, w.config.Burst, w.config.WarningHandler = 100, 200, rest.NoWarnings{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, v2alpha1.AddToScheme} {
		expect.NoError(t, add(scheme))
	}
	w.api, err = client.New(w.config, client.Options{Scheme: scheme})
	expect.NoError(t, err)
	w.kubectl, err = exec.LookPath("kubectl")
	expect.NoError(t, err)
	_, err = exec.LookPath("kubectl-di")
	expect.NoError(t, err)
	w.users = w.namespace(t, "users")
	for _, user := range []Caller{Admin, Edit, View} {
		w.addUser(t, user)
	}
	w.server = w.forward(t)
	return w
}

// must ends the test if there is an error.

// namespace creates a namespace, and deletes it after the test without waiting.
func (w *world) namespace(t *testing.T, purpose string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-" + purpose + "-"}}
	expect.NoError(t, w.api.Create(t.Context(), namespace))
	t.Cleanup(func() {
		if err := w.api.Delete(context.Background(), namespace); err != nil {
			t.Logf("deleting namespace %s: %v", namespace.Name, err)
		}
	})
	return namespace.Name
}

// addUser creates the service account of a user, with its kubeconfig and its token for di-server.
func (w *world) addUser(t *testing.T, user Caller) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.users, Name: string(user)}}
	expect.NoError(t, w.api.Create(t.Context(), account))
	w.tokens[user] = w.token(t, account, nil, names.ServerAudience)
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{
		Server: w.config.Host, CertificateAuthority: w.config.CAFile, CertificateAuthorityData: w.config.CAData, InsecureSkipTLSVerify: w.config.Insecure,
	}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: w.token(t, account, nil)}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "x"
	expect.NoError(t, clientcmd.WriteToFile(*kubeconfig, w.kubeconfig(user)))
}

func (w *world) kubeconfig(user Caller) string { return filepath.Join(w.folder, string(user)) }

// token returns a token of a service account, which is bound to a pod if there is one.
func (w *world) token(t *testing.T, account *corev1.ServiceAccount, pod *corev1.Pod, audiences ...string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: ptr.To[int64](3600)}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	expect.NoError(t, w.api.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

// grant gives a user the role of its name in a namespace, and returns when the API server knows.
func (w *world) grant(t *testing.T, namespace string, user Caller) {
	t.Helper()
	expect.NoError(t, w.api.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(user)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: string(user)},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.users, Name: string(user)}},
	}))
	eventually(t, func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + w.users + ":" + string(user),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Group: v2alpha1.GroupName, Resource: "dijobs"},
		}}
		if err := w.api.Create(t.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("%s may not get jobs: %s", user, review.Status.Reason)
		}
		return nil
	})
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

// forward forwards a port to di-server until the test ends, and returns its URL.
func (w *world) forward(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), w.kubectl, "-n", names.SystemNamespace, "port-forward", "service/"+names.ServerService, ":8080")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	expect.NoError(t, err)
	expect.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Wait() })
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if found := forwarding.FindStringSubmatch(lines.Text()); found != nil {
			go func() {
				// kubectl writes a line for each connection.
				for lines.Scan() {
				}
			}()
			return "http://" + found[1]
		}
	}
	t.Fatal("kubectl port-forward to di-server ended")
	return ""
}

// eventually repeats a check until it succeeds. It ends the test after patience.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %s: %v", patience, err)
		case <-ticker.C:
		}
	}
}
