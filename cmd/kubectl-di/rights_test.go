// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// grant grants a user, or a service account, rights in a namespace.
func (w *world) grant(t *testing.T, namespace string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "role-"}, Rules: rules}
	expect.NoError(t, w.live.Create(t.Context(), role))
	expect.NoError(t, w.live.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "binding-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{to},
	}))
	name := to.Name
	if to.Kind == rbacv1.ServiceAccountKind {
		name = "system:serviceaccount:" + to.Namespace + ":" + to.Name
	}
	for i := range rules {
		w.waitAllowed(t, namespace, name, &rules[i])
	}
}

// waitAllowed waits until the API server, which watches roles, grants a user the rights of a rule.
func (w *world) waitAllowed(t *testing.T, namespace, user string, rule *rbacv1.PolicyRule) {
	t.Helper()
	for _, verb := range rule.Verbs {
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		wanted := &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
		}
		if len(rule.ResourceNames) > 0 {
			wanted.Name = rule.ResourceNames[0]
		}
		expect.NoError(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: wanted},
			}
			err := w.live.Create(ctx, review)
			return review.Status.Allowed, err
		}))
	}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func rule(group, resource, verb string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
}

// readyServer creates a Service with a ready pod, on a node or without one.
func (w *world) readyServer(t *testing.T, namespace, node string) {
	t.Helper()
	labels := map[string]string{"control-plane": "di-server"}
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.ServerService},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: names.ServerPortV1}}},
	}))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "server", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "server", Image: "di"}}},
	}
	expect.NoError(t, w.live.Create(t.Context(), pod))
	pods.Ready(pod)
	expect.NoError(t, w.live.Status().Update(t.Context(), pod))
}

// TestAMissingRightIsNamed creates each role that the command reports as missing by kubectl, and
// grants it to the user, until none is missing.
func TestAMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	w.readyServer(t, ns, "")
	for _, want := range []string{
		"kubectl -n NS create role kubectl-di-get-dijobs --verb=get --resource=dijobs.diengine.opendilab.org\n",
		"kubectl -n NS create role kubectl-di-get-pods --verb=get --resource=pods\n",
		"kubectl -n NS create role kubectl-di-create-token --verb=create --resource=serviceaccounts/token --resource-name=trainer\n",
		"kubectl -n NS create role kubectl-di-get-services --verb=get --resource=services --resource-name=di-server\n",
		"kubectl -n NS create role kubectl-di-list-pods --verb=list --resource=pods\n",
		"kubectl -n NS create role kubectl-di-create-portforward --verb=create --resource=pods/portforward\n",
	} {
		got := w.run(t, ns, "add", "collector", "cartpole", "--as", "jane", "--server-namespace", ns)
		if got.code != cli.Failed || !strings.Contains(plain(got.stderr, ns), want) {
			t.Fatalf("got %+v, want %s", got, want)
		}
		w.kubectl(t, strings.Fields(strings.ReplaceAll(want, "NS", ns))[1:]...)
		role := strings.Fields(want)[5]
		w.kubectl(t, "-n", ns, "create", "rolebinding", role, "--role", role, "--user", "jane")
		var made rbacv1.Role
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: role}, &made))
		w.waitAllowed(t, ns, "jane", &made.Rules[0])
	}
	got := w.run(t, ns, "add", "collector", "cartpole", "--as", "jane", "--server-namespace", ns)
	if !strings.Contains(got.stderr, "does not have a host assigned") || strings.Contains(got.stderr, "create role") {
		t.Errorf("got %+v", got)
	}
	if members := w.members(t, job, v2alpha1.TaskTypeCollector); len(members) > 0 {
		t.Errorf("%+v came of nothing", members)
	}
}

// TestEveryCommandNamesTheRightThatItLacks grants each user only some of a command's rights.
func TestEveryCommandNamesTheRightThatItLacks(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.scalable(t, ns, "pong", nil)
	k := w.newLogKubelet(t, job)
	k.start(t, k.worker(t, 0), names.Container, "one")
	jobs, pods := rule(v2alpha1.GroupName, "dijobs", "get"), rule("", "pods", "list")
	for i, tc := range []struct {
		args, want string
		granted    []rbacv1.PolicyRule
	}{
		{"suspend pong", "patch-dijobs --verb=patch --resource=dijobs.diengine.opendilab.org", []rbacv1.PolicyRule{jobs}},
		{"scale pong --replicas=4", "get-scale --verb=get --resource=dijobs.diengine.opendilab.org/scale", []rbacv1.PolicyRule{jobs}},
		{"scale pong --replicas=4", "update-scale --verb=update --resource=dijobs.diengine.opendilab.org/scale", []rbacv1.PolicyRule{jobs, rule(v2alpha1.GroupName, "dijobs/scale", "get")}},
		{"submit -f -", "create-dijobs --verb=create --resource=dijobs.diengine.opendilab.org", nil},
		{"submit -f - --watch", "list-watch-dijobs --verb=list,watch --resource=dijobs.diengine.opendilab.org", []rbacv1.PolicyRule{rule(v2alpha1.GroupName, "dijobs", "create")}},
		{"logs pong", "get-dijobs --verb=get --resource=dijobs.diengine.opendilab.org", nil},
		{"logs pong", "list-pods --verb=list --resource=pods", []rbacv1.PolicyRule{jobs}},
		{"logs pong", "get-log --verb=get --resource=pods/log", []rbacv1.PolicyRule{jobs, pods}},
		{"logs pong -f", "list-watch-", []rbacv1.PolicyRule{jobs, pods, rule("", "pods/log", "get")}},
	} {
		name := fmt.Sprintf("user-%d-%s", i, ns)
		w.grant(t, ns, user(name), tc.granted...)
		got := w.fed(t, ns, manifest("submitted"), append(strings.Fields(tc.args), "--as", name)...)
		if want := "kubectl -n NS create role kubectl-di-" + tc.want; got.code != cli.Failed || !strings.Contains(plain(got.stderr, ns), want) {
			t.Errorf("%s: got %+v, want %s", tc.args, got, want)
		}
	}
}

// kubectl runs the real kubectl.
func (w *world) kubectl(t *testing.T, args ...string) {
	t.Helper()
	path := filepath.Join(os.Getenv(testkit.AssetsVariable), "kubectl")
	output, err := exec.CommandContext(t.Context(), path, append(args, "--kubeconfig", w.kubeconfig)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v: %s", args, err, output)
	}
}

// editor grants a user role edit of a namespace, as the installation extends it. Kubernetes aggregates the
// parts, which are bound here one by one, because no controller runs.
func (w *world) editor(t *testing.T, namespace, name string) {
	t.Helper()
	parts := strings.Split(readFile(t, filepath.Join(testkit.Root(), "config", "rbac", "users", "roles.yaml")), "---\n")
	for _, part := range parts {
		var role rbacv1.ClusterRole
		expect.NoError(t, yaml.UnmarshalStrict([]byte(part), &role))
		w.grant(t, namespace, user(name), role.Rules...)
	}
	for _, role := range []string{"system:aggregate-to-view", "system:aggregate-to-edit"} {
		w.kubectl(t, "-n", namespace, "create", "rolebinding", name+strings.ReplaceAll(role, ":", "-"), "--clusterrole", role, "--user", name)
	}
	w.waitAllowed(t, namespace, name, &rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}})
}

// TestATenantResizesAndRestartsHisJobs runs the commands as a user with role edit of one namespace, who
// has no right in the namespace of di-server.
func TestATenantResizesAndRestartsHisJobs(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns, system := w.namespace(t), w.namespace(t)
	w.readyServer(t, system, "")
	job := w.trainer(t, ns, "cartpole")
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.did(t, ns, "add", "collector", "cartpole", "--replicas", "2")
	pod := w.members(t, job, v2alpha1.TaskTypeCollector)[0].PodName
	w.editor(t, ns, "tenant")
	for _, tc := range []struct{ args, want string }{
		{"add collector cartpole --replicas 3", `{"job":"cartpole","tasks":[{"name":"collector","replicas":5}],"origin":"Manual","reason":"+3 by kubectl di"}`},
		{"delete collector cartpole", `{"job":"cartpole","tasks":[{"name":"collector","replicas":1}],"origin":"Manual","reason":"-1 by kubectl di"}`},
		{"delete collector cartpole --replicas 9", `{"job":"cartpole","tasks":[{"name":"collector","replicas":0}],"origin":"Manual","reason":"-2 by kubectl di"}`},
		{"restart cartpole " + pod, `{"job":"cartpole","migrate":[{"pod":"` + pod + `"}],"origin":"Manual","reason":"replaced by kubectl di restart"}`},
		{"add collector pong", `{"job":"pong","tasks":[{"name":"collector","replicas":4}],"origin":"Manual","reason":"+1 by kubectl di"}`},
	} {
		got := w.run(t, ns, append(strings.Fields(tc.args), "--as", "tenant", "--server-namespace", system)...)
		name := strings.TrimSuffix(got.stdout[strings.Index(got.stdout, "scaleplan ")+len("scaleplan "):], " created\n")
		if got.code != 0 || !strings.Contains(got.stderr, "you may not reach di-server in namespace "+system) {
			t.Fatalf("%s: got %+v", tc.args, got)
		}
		var plan v2alpha1.ScalePlan
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &plan))
		if spec, err := json.Marshal(plan.Spec); err != nil || string(spec) != tc.want {
			t.Errorf("%s: the plan is %s, %v, want %s", tc.args, spec, err, tc.want)
		}
	}
	// A plan gives new replicas the resources of the others.
	got := w.run(t, ns, "add", "collector", "cartpole", "--cpus", "4", "--as", "tenant", "--server-namespace", system)
	if got.code != cli.Failed || !strings.Contains(got.stderr, "services") {
		t.Errorf("got %+v", got)
	}
}

// TestTheDocumentedRolesAreEnough grants users the documented roles in namespaces of the test.
func TestTheDocumentedRolesAreEnough(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns, system := w.namespace(t), w.namespace(t)
	job := w.trainer(t, ns, "cartpole")
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.readyServer(t, system, "")
	w.editor(t, ns, "jane")
	for block, who := range []string{"jane", "john"} {
		w.grantDocumented(t, block, who, ns, system)
	}
	w.isEnoughForJobs(t, ns, system)
	for _, args := range [][]string{
		{"add", "collector", "cartpole"}, {"add", "learner", "cartpole"}, {"delete", "learner", "cartpole"}, {"add", "collector", "pong"},
	} {
		w.did(t, ns, append(args, "--as", "john")...)
	}
	w.did(t, ns, "restart", "cartpole", w.members(t, job, v2alpha1.TaskTypeCollector)[0].PodName, "--as", "john")
	got := w.run(t, ns, "add", "collector", "cartpole", "--as", "john", "--server-namespace", system)
	if got.code != cli.Failed || !strings.Contains(got.stderr, "does not have a host assigned") || strings.Contains(got.stderr, "you may not") {
		t.Errorf("got %+v", got)
	}
	if got := w.run(t, ns, "__complete", "add", "--as", "john", "learner", ""); got.stdout != "cartpole\npong\n:4\n" {
		t.Errorf("got %+v", got)
	}
}

// grantDocumented grants a user the roles of a block of the documentation.
func (w *world) grantDocumented(t *testing.T, block int, who, ns, system string) {
	t.Helper()
	documentation := readFile(t, filepath.Join(testkit.Root(), "docs", "kubectl-di.md"))
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(documentation, -1)
	for _, document := range strings.Split(blocks[block][1], "---\n") {
		var role rbacv1.Role
		expect.NoError(t, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(document, "[default]", "["+account+"]")), &role))
		w.grant(t, map[string]string{"rl": ns, names.SystemNamespace: system}[role.Namespace], user(who), role.Rules...)
	}
}

// isEnoughForJobs runs all commands that the role for jobs covers.
func (w *world) isEnoughForJobs(t *testing.T, ns, system string) {
	t.Helper()
	for _, args := range [][]string{
		{"suspend", "pong"}, {"resume", "-l", "!nope"},
	} {
		if got := w.run(t, ns, append(args, "--as", "jane")...); got.code != 0 {
			t.Errorf("%v: got %+v", args, got)
		}
	}
	if page := w.ranWell(t, ns, "describe", "cartpole", "pong", "--as", "jane"); strings.Contains(page, "may not") {
		t.Errorf("the page is not whole: %s", page)
	}
	watching := w.start(t, ns, manifest("submitted"), "submit", "-f", "-", "--watch", "--as", "jane")
	watching.out.shows(t, "not observed by the operator yet")
	job := w.operated(t, ns, "submitted", func(*v2alpha1.DIJobStatus) {})
	w.event(t, job, corev1.EventTypeNormal, "Seen", "an event that may be watched")
	watching.out.shows(t, "an event that may be watched")
	w.operated(t, ns, "submitted", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	if code := watching.ended(t); code != 0 {
		t.Errorf("exit code %d: %s%s", code, watching.out, watching.report)
	}
	expect.NoError(t, w.live.Delete(t.Context(), job))
	got := w.run(t, ns, "version", "--server-namespace", system, "--as", "jane")
	if !strings.Contains(got.stderr, "has no deployment of DI Orchestrator") {
		t.Errorf("got %+v", got)
	}
}

func TestAGivenTokenIsAuthorizedByItsRoles(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	holder := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "caller"}}
	expect.NoError(t, w.live.Create(t.Context(), holder))
	token := func(audience string) string {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
		expect.NoError(t, w.live.SubResource("token").Create(t.Context(), holder, request))
		path := filepath.Join(t.TempDir(), "token")
		writeFile(t, path, request.Status.Token+"\n")
		return path
	}
	w.grant(t, ns, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "caller"}, rule(v2alpha1.GroupName, "dijobs/replicas", "create"))
	w.did(t, ns, "add", "collector", "cartpole", "--token-file", token(names.ServerAudience))
	for want, args := range map[string][]string{
		"di-server refuses: user \"system:serviceaccount:NS:caller\" may not delete dijobs/replicas": {"delete", "collector", "cartpole", "--token-file", token(names.ServerAudience)},
		"di-server refuses: the token is not valid: it must be a current one of audience di-server":  {"add", "collector", "cartpole", "--token-file", token("another")},
	} {
		if got := w.di(t, ns, args...); got.code != cli.Failed || !strings.Contains(plain(got.stderr, ns), want) {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	if members := w.members(t, job, v2alpha1.TaskTypeCollector); len(members) != 1 {
		t.Errorf("the collectors became %+v", members)
	}
}

func TestWrongUseIsReportedBeforeAnyCall(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"the type of replicas is missing: want collector or learner":                    {"add"},
		`type of replicas "worker": want collector or learner`:                          {"add", "worker", "cartpole"},
		"JOB is missing: name a DIJob":                                                  {"add", "collector"},
		`JOB "pod/x": want the name of a DIJob`:                                         {"add", "collector", "pod/x"},
		`"b": one job at a time`:                                                        {"add", "collector", "a", "b"},
		`"a": one job at a time`:                                                        {"add", "collector", "a", "--coordinator-name", "b-coordinator"},
		`--coordinator-name "b": want the name of a coordinator's pod, JOB-coordinator`: {"add", "collector", "--coordinator-name", "b"},
		"--replicas 0: want 1 or more":                                                  {"add", "collector", "a", "--replicas", "0"},
		"--replicas -1: want 1 or more":                                                 {"delete", "collector", "a", "--replicas", "-1"},
		`--cpus "two": want a number of CPUs such as 2, 0.5 or 500m`:                    {"add", "collector", "a", "--cpus", "two"},
		`--memory "1e-2000000000": want an amount of bytes such as 4Gi or 512Mi: the exponent of a quantity must be from -18 to 18`: {
			"add", "collector", "a", "--memory", "1e-2000000000"},
		`--cpus "": want a number of CPUs such as 2, 0.5 or 500m`:                                      {"add", "collector", "a", "--cpus", ""},
		`--gpus "0.5": want a whole number of GPUs`:                                                    {"add", "learner", "a", "--gpus", "0.5"},
		`--gpus "-1": want a whole number of GPUs`:                                                     {"add", "learner", "a", "--gpus", "-1"},
		`--memory "4GB": want an amount of bytes such as 4Gi or 512Mi`:                                 {"add", "learner", "a", "--memory", "4GB"},
		"unknown flag: --cpus":                                                                         {"delete", "learner", "a", "--cpus", "1"},
		`--output "xml": want one of json, yaml`:                                                       {"add", "learner", "a", "-o", "xml"},
		`--server "ftp://x": want a URL such as http://localhost:8080`:                                 {"add", "learner", "a", "--server", "ftp://x"},
		"--server and --server-service exclude each other":                                             {"add", "learner", "a", "--server", "x", "--server-service", "y"},
		`POD "A_b": want the name of a pod`:                                                            {"restart", "a", "A_b"},
		"name one of --to, --stop-serving and --serve; kubectl di migrate status reports the progress": {"migrate"},
		"name one of --to, --stop-serving and --serve; kubectl di migrate status":                      {"migrate", "--to", "v2alpha1", "--serve", "v1alpha1"},
		`--to "v3": want one of v1alpha1, v2alpha1`:                                                    {"migrate", "--to", "v3"},
		`--stop-serving "v2alpha1": want one of v1alpha1`:                                              {"migrate", "--stop-serving", "v2alpha1"},
		`--serve "v3": want one of v1alpha1`:                                                           {"migrate", "--serve", "v3"},
		"--for-release goes with --to":                                                                 {"migrate", "--serve", "v1alpha1", "--for-release", "v0.2.2"},
		`--for-release "v1.0.0": want one of v0.2.2, v1.1.3`:                                           {"migrate", "--to", "v2alpha1", "--for-release", "v1.0.0"},
		"release v0.2.2 stores objects in v1alpha1":                                                    {"migrate", "--to", "v2alpha1", "--for-release", "v0.2.2"},
		"release v1.1.3 stores objects in v2alpha1":                                                    {"migrate", "--to", "v1alpha1", "--for-release", "v1.1.3"},
		`--output "xml": want one of json, yaml` + "\n":                                                {"migrate", "status", "-o", "xml"},
	} {
		got := kubectlDI(t, "", append(args, "--kubeconfig", "/nope")...)
		if got.code != cli.Usage || got.stdout != "" || !strings.HasPrefix(got.stderr, "kubectl-di: "+want) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
	if got := kubectlDI(t, "", "add", "collector", "a", "--kubeconfig", "/nope"); got.code != cli.Failed ||
		!strings.Contains(got.stderr, "reading the kubeconfig: stat /nope: no such file or directory") {
		t.Errorf("got %+v", got)
	}
}

// TestWhatIsWrongIsReported runs commands that fail before or after they read the cluster.
func TestWhatIsWrongIsReported(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.trainer(t, ns, "cartpole")
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"logs nope", cli.Failed, `dijobs.diengine.opendilab.org "nope" not found` + "\nnamespace NS has cartpole, pong\n"},
		{"logs cartpole --task actor", cli.Failed, "--task actor: job NS/cartpole has no such task, but coordinator, collector, learner, aggregator, ddp-learner\n"},
		{"logs cartpole learner-x", cli.Failed, "--pod learner-x: job NS/cartpole has no such pod, but cartpole-coordinator\n"},
		{"logs cartpole -c x", cli.Failed, "--container x: no pod has such a container, but di-container\n"},
		{"logs", cli.Usage, "JOB is missing"},
		{"logs pods/x", cli.Usage, `"pods/x"`},
		{"logs cartpole -c x --all-containers", cli.Usage, "--container x: --all-containers takes it too"},
		{"logs cartpole -f -p", cli.Usage, "--previous: what ran before prints nothing more"},
		{"logs cartpole --since 1m --since-time x", cli.Usage, "--since-time x: --since is given too"},
		{"logs cartpole --since-time noon", cli.Usage, "--since-time noon: must be like"},
		{"logs cartpole --since -1s", cli.Usage, "--since -1s: must be greater than 0"},
		{"logs cartpole --tail -2", cli.Usage, "--tail -2: must be 0 or more"},
		{"logs cartpole --max-log-requests 0", cli.Usage, "--max-log-requests 0: must be 1 or more"},
		{"logs cartpole --color red", cli.Usage, `--color "red": want one of auto, always, never`},
		{"top nope", cli.Failed, "\nnamespace NS has cartpole, pong\n"},
		{"top -w", cli.Usage, "--watch: name a JOB, or use kubectl di list --watch"},
		{"top pong ping", cli.Usage, `"ping": one job at a time`},
		{"top pong -o xml", cli.Usage, `--output "xml": want one of json, yaml, name`},
		{"top pong --once -w", cli.Usage, "--watch: prints lines, and neither --once nor -o"},
		{"top pong -w -o json", cli.Usage, "--watch: prints lines, and neither --once nor -o"},
		{"describe nope pong", cli.Failed, `dijobs.diengine.opendilab.org "nope" not found`},
		{"describe", cli.Usage, "JOB is missing"},
		{"describe pong -l a=b", cli.Usage, "exclude each other"},
		{"describe -l a=b", cli.Failed, "-l a=b: selects no job of namespace NS"},
		{"describe pong --as nobody", cli.Failed, "--verb=get --resource=dijobs.diengine.opendilab.org"},
	} {
		got := w.run(t, ns, strings.Fields(tc.args)...)
		hasPage := tc.args == "describe nope pong"
		if got.code != tc.code || (got.stdout != "") != hasPage || !strings.Contains(plain(got.stderr, ns), tc.want) {
			t.Errorf("%v: got %+v", tc.args, got)
		}
	}
	if got := w.run(t, w.namespace(t), "logs", "nope"); !strings.Contains(got.stderr, "has no jobs: is another one meant (-n)?") {
		t.Errorf("got %+v", got)
	}
}
