// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// workerTask returns a worker-led job of one task with the pod spec. coordinator does the same in
// v1alpha1.
func workerTask(spec string) string {
	return `spec: {tasks: [{type: none, name: main, replicas: 1, template: {spec: ` + spec + `}}]}`
}

func coordinator(spec string) string {
	return `spec: {coordinator: {template: {spec: ` + spec + `}}}`
}

func TestWhatKeepsPodsFromBeingMadeIsRefusedByItsPath(t *testing.T) {
	t.Parallel()
	const pod = "spec.tasks[0].template.spec"
	for name, tc := range map[string]struct {
		version, spec string
		want          []string
	}{
		"text for an integer": {spec: workerTask(`{containers: [{name: a, ports: [{containerPort: http}]}]}`),
			want: []string{pod + `.containers[0].ports[0].containerPort: Invalid value: "http": must be an integer`}},
		"the same in v1alpha1": {version: "v1alpha1", spec: coordinator(`{containers: [{name: a, ports: [{containerPort: http}]}]}`),
			want: []string{`spec.coordinator.template.spec.containers[0].ports[0].containerPort: Invalid value: "http": must be an integer`}},
		"every value at its path": {
			spec: workerTask(`{hostNetwork: "yes", nodeSelector: {a: 1}, containers: [{name: a}, {name: 7, args: all, env: [{name: A, value: 1}]}]}`),
			want: []string{
				pod + `.containers[1].args: Invalid value: "all": must be a list`,
				pod + `.containers[1].env[0].value: Invalid value: 1: must be a string`,
				pod + `.containers[1].name: Invalid value: 7: must be a string`,
				pod + `.hostNetwork: Invalid value: "yes": must be true or false`,
				pod + `.nodeSelector[a]: Invalid value: 1: must be a string`,
			}},
		"a list for an object": {spec: workerTask(`{containers: [{name: a, resources: [1]}]}`),
			want: []string{pod + `.containers[0].resources: Invalid value: [1]: must be an object`}},
		"text for a map": {spec: workerTask(`{nodeSelector: a, containers: [{name: a}]}`),
			want: []string{pod + `.nodeSelector: Invalid value: "a": must be an object`}},
		"an integer that is too large": {spec: workerTask(`{priority: 3000000000, containers: [{name: a}]}`),
			want: []string{pod + `.priority: Invalid value: 3000000000: must be an integer from -2147483648 to 2147483647`}},
		"a fraction": {spec: workerTask(`{priority: 1.5, containers: [{name: a}]}`),
			want: []string{pod + `.priority: Invalid value: 1.5: must be an integer`}},
		"a quantity": {spec: workerTask(`{containers: [{name: a, resources: {limits: {cpu: two}}}]}`),
			want: []string{pod + `.containers[0].resources.limits[cpu]: Invalid value: "two": must be a quantity, such as 2, 500m or 4Gi`}},
		"an integer or a string": {spec: workerTask(`{containers: [{name: a, livenessProbe: {httpGet: {port: {a: 1}}}}]}`),
			want: []string{pod + `.containers[0].livenessProbe.httpGet.port: Invalid value: {"a":1}: must be an integer or a string`}},
		"a time": {spec: `spec: {tasks: [{type: none, name: main, template: {metadata: {creationTimestamp: today}, spec: {containers: [{name: a}]}}}]}`,
			want: []string{`spec.tasks[0].template.metadata.creationTimestamp: Invalid value: "today": must be a time, such as 2006-01-02T15:04:05Z`}},
		"a value that is long": {spec: workerTask(`{priority: "0123456789012345678901234567890123456789012345678901234567890123456789", containers: [{name: a}]}`),
			want: []string{pod + `.priority: Invalid value: "0123456789012345678901234567890123456789012345678901234567890123...": must be an integer`}},
		"an object that is long": {spec: workerTask(`{priority: {a: "0123456789012345678901234567890123456789012345678901234567890123456789"}, containers: [{name: a}]}`),
			want: []string{pod + `.priority: Invalid value: must be an integer`}},
		"nulls are nothing": {spec: workerTask(`{nodeSelector: null, containers: [{name: a, env: null, resources: {limits: {cpu: null}}, ports: [{containerPort: 1, name: null}]}]}`)},
		"no containers":     {spec: workerTask(`{containers: null}`), want: []string{pod + `.containers: Required value: a pod needs a container`}},
		"no template":       {spec: `spec: {tasks: [{type: none, name: main}]}`, want: []string{pod + `.containers: Required value: a pod needs a container`}},
		"a container without a name": {spec: workerTask(`{containers: [{image: a}]}`),
			want: []string{pod + `.containers[0].name: Required value: must be a name that is unique in the pod`}},
		"containers of one name": {spec: workerTask(`{initContainers: [{name: a}], containers: [{name: b}, {name: a}]}`),
			want: []string{pod + `.containers[1].name: Duplicate value: "a"`}},
		"a name that is none": {spec: workerTask(`{containers: [{name: A_B}]}`),
			want: []string{pod + `.containers[0].name: Invalid value: "A_B": must be at most 63 lower-case letters, digits and -, and must not start or end with -`}},
		"a port that is none": {spec: workerTask(`{containers: [{name: di-container, ports: [{name: di-port, containerPort: 65536}]}]}`),
			want: []string{pod + `.containers[0].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive`}},
		"volumes": {
			spec: `spec: {volumes: [{name: a, hostPath: {path: 1}}, {name: b}, {}, {name: b}], tasks: [{type: none, name: main, template: {spec: {volumes: [{name: c}, {name: b}], containers: [{name: a}]}}}]}`,
			want: []string{
				`spec.volumes[0].hostPath.path: Invalid value: 1: must be a string`,
				`spec.volumes[2].name: Required value: must be a name that is unique in the pod`,
				`spec.volumes[3].name: Duplicate value: "b"`,
				pod + `.volumes[1].name: Duplicate value: "b"`,
			}},
		"a duration where seconds are asked": {spec: `spec: {activeDeadlineSeconds: 1h, ttlSecondsAfterFinished: "90", tasks: [{type: none, name: main, template: {spec: {containers: [{name: a}]}}}]}`,
			want: []string{`spec.activeDeadlineSeconds: Invalid value: "1h": must be an integer, in seconds: 3600`, `spec.ttlSecondsAfterFinished: Invalid value: "90": must be an integer, in seconds: 90`}},
		"an integer of ours that is too large": {spec: `spec: {backoffLimit: 3000000000, tasks: [{type: none, name: main, template: {spec: {containers: [{name: a}]}}}]}`,
			want: []string{`spec.backoffLimit: Invalid value: 3000000000: must be an integer from -2147483648 to 2147483647`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version, validate := "v2alpha1", validateV2
			if tc.version == "v1alpha1" {
				version, validate = tc.version, validateV1
			}
			answer := ask(t, validate, version, tc.spec, "")
			expect.Equal(t, "errors", tc.want, answer.errors)
		})
	}
}

func TestWhatPodsWillNotHaveIsWarnedAboutByItsPath(t *testing.T) {
	t.Parallel()
	const pod = "spec.tasks[0].template.spec"
	for name, tc := range map[string]struct {
		version, spec string
		want          []string
	}{
		"an unknown field": {version: "v1alpha1",
			spec: `spec: {coordinator: {template: {spec: {containers: [{name: a}]}}}, collector: {template: {spec: {containers: [{name: a, imagee: b}]}}}}`,
			want: []string{`unknown field "spec.collector.template.spec.containers[0].imagee"`}},
		"a field in another letter case": {spec: workerTask(`{HostNetwork: true, containers: [{name: a}]}`),
			want: []string{`unknown field "` + pod + `.HostNetwork"`}},
		"an unknown field of a volume": {spec: `spec: {volumes: [{name: v, emptydir: {}}], tasks: [{type: none, name: main, template: {spec: {containers: [{name: a}]}}}]}`,
			want: []string{`unknown field "spec.volumes[0].emptydir"`}},
		"worker-led": {
			spec: `spec: {priorityClassName: high, tasks: [{type: none, name: my-task, replicas: 2, template: {
  metadata: {name: own, namespace: x, generateName: g, ownerReferences: [{name: o}], labels: {diengine/job: j, app: a}, annotations: {diengine/rank: "1"}},
  spec: {restartPolicy: OnFailure, hostname: h, subdomain: s, hostNetwork: true, priorityClassName: low,
    initContainers: [{name: i, env: [{name: DI_RANK}]}],
    containers: [{name: a, env: [{name: A}, {name: DI_MY_TASK_NODES, value: b}]}]}}}]}`,
			want: []string{
				`spec.tasks[0].template.metadata.name: is ignored: the operator names pods, and creates them in the job's namespace with the job as owner`,
				`spec.tasks[0].template.metadata.generateName: is ignored: the operator names pods, and creates them in the job's namespace with the job as owner`,
				`spec.tasks[0].template.metadata.namespace: is ignored: the operator names pods, and creates them in the job's namespace with the job as owner`,
				`spec.tasks[0].template.metadata.ownerReferences: is ignored: the operator names pods, and creates them in the job's namespace with the job as owner`,
				`spec.tasks[0].template.metadata.labels[diengine/job]: is overridden: the operator sets this label`,
				`spec.tasks[0].template.metadata.annotations[diengine/rank]: is overridden: the operator sets this annotation`,
				pod + `.initContainers[0].env[0]: is overridden: the operator sets DI_RANK`,
				pod + `.containers[0].env[1]: is overridden: the operator sets DI_MY_TASK_NODES`,
				pod + `.priorityClassName: is overridden by the job's, which is high`,
				pod + `.restartPolicy: is overridden by Never: spec.backoffLimit limits the restarts of the job`,
				"spec.tasks[0].template.spec.hostname: is overridden: replicas find each other by their pods' names",
				"spec.tasks[0].template.spec.subdomain: is overridden: replicas find each other through the job's service",
				"spec.tasks[0].template.spec.hostNetwork: keeps replicas that serve on the same port off the same node: without a free node they stay pending",
			}},
		"where worker-led pods are": {spec: `spec: {tasks: [{type: none, name: main, replicas: 2, template: {spec: {hostname: h, subdomain: s, hostNetwork: true, containers: [{name: a}]}}}]}`,
			want: []string{
				pod + `.hostname: is overridden: replicas find each other by their pods' names`,
				pod + `.subdomain: is overridden: replicas find each other through the job's service`,
				pod + `.hostNetwork: keeps replicas that serve on the same port off the same node: without a free node they stay pending`,
			}},
		"one replica in the host's network": {spec: workerTask(`{hostNetwork: true, restartPolicy: Never, containers: [{name: a}]}`)},
		"name servers of the host": {spec: workerTask(`{dnsPolicy: Default, containers: [{name: a}]}`),
			want: []string{pod + `.dnsPolicy: is Default: the pods cannot resolve the names of Services, so neither their peers nor di-server; omit it`}},
		"no name server": {version: "v1alpha1", spec: coordinator(`{dnsPolicy: None, containers: [{name: a}]}`),
			want: []string{`spec.coordinator.template.spec.dnsPolicy: is None: the pods cannot resolve the names of Services, so neither their peers nor di-server; omit it`}},
		"name servers of one's own": {spec: workerTask(`{dnsPolicy: None, dnsConfig: {nameservers: [10.0.0.1]}, containers: [{name: a}]}`),
			want: []string{pod + `.dnsPolicy: is None: dnsConfig.nameservers must resolve the names of Services, as those of peers and di-server; else omit it`}},
		"Services are resolved":                {spec: workerTask(`{dnsPolicy: ClusterFirstWithHostNet, containers: [{name: a}]}`)},
		"a short host name":                    {spec: strings.Replace(workerTask(`{setHostnameAsFQDN: true, containers: [{name: a}]}`), "main", "m", 1)},
		"a host name of a coordinator-led job": {version: "v1alpha1", spec: coordinator(`{setHostnameAsFQDN: true, containers: [{name: a}]}`)},
		"a host name that is too long": {spec: strings.Replace(workerTask(`{setHostnameAsFQDN: true, containers: [{name: a}]}`), "main", strings.Repeat("m", 40), 1),
			want: []string{pod + `.setHostnameAsFQDN: keeps the pods from starting: j-` + strings.Repeat("m", 40) + `-0.di-j..svc.cluster.local has 68 characters, and a host name has at most 64; omit it`}},
		"a coordinator that never ends": {version: "v1alpha1", spec: coordinator(`{restartPolicy: Always, containers: [{name: a}]}`),
			want: []string{`spec.coordinator.template.spec.restartPolicy: is Always: the coordinator restarts after it has finished, so the job never finishes; omit it, or set Never`}},
		"a port that is not advertised": {version: "v1alpha1", spec: coordinator(`{containers: [{name: a, ports: [{name: di-port, containerPort: 80}]}]}`),
			want: []string{`spec.coordinator.template.spec.containers[0].ports[0]: is not advertised: other pods use port 22273, because only di-port of a container named di-container counts`}},
		"a port that others are told": {version: "v1alpha1", spec: coordinator(`{containers: [{name: di-container, ports: [{name: di-port, containerPort: 80}]}]}`)},
		"coordinator-led": {version: "v1alpha1",
			spec: coordinator(`{containers: [{name: a, env: [{name: KUBERNETES_COORDINATOR_URL}, {name: DI_RANK}, {name: COORDINATOR_PORT}]}]}`),
			want: []string{
				`spec.coordinator.template.spec.containers[0].env[0]: is overridden: the operator sets KUBERNETES_COORDINATOR_URL`,
				`spec.coordinator.template.spec.containers[0].env[2]: is overridden: the operator sets COORDINATOR_PORT`,
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version, validate := "v2alpha1", validateV2
			if tc.version == "v1alpha1" {
				version, validate = tc.version, validateV1
			}
			answer := ask(t, validate, version, tc.spec, "")
			if !answer.allowed() {
				t.Fatalf("refused: %v", answer.errors)
			}
			expect.Equal(t, "warnings", tc.want, answer.warnings)
		})
	}
}

// The fields that warnings describe as overridden are those that the pods' builder overrides.
func TestWhatIsWarnedAboutAsOverriddenIsWhatThePodsGet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		job   *v2alpha1.DIJob
		build func(*workload.Builder) (*corev1.Pod, error)
	}{
		"worker": {jobOfTask("", v2alpha1.TaskTypeNone), func(b *workload.Builder) (*corev1.Pod, error) {
			return b.Worker(restarted(workload.Replica{Pod: "p"}), &workload.Replica{Pod: "p"})
		}},
		"worker of frameworks": {clusterOf(2), func(b *workload.Builder) (*corev1.Pod, error) {
			assignment := restarted(workload.Replica{Pod: "p"}, workload.Replica{Pod: "q", Rank: 1})
			return b.Worker(assignment, &assignment.Replicas[0])
		}},
		"worker of frameworks, alone": {clusterOf(1), func(b *workload.Builder) (*corev1.Pod, error) {
			assignment := restarted(workload.Replica{Pod: "p"})
			return b.Worker(assignment, &assignment.Replicas[0])
		}},
		"coordinator": {jobOfTask(v2alpha1.LifecycleCoordinatorLed, v2alpha1.TaskTypeCoordinator), (*workload.Builder).Coordinator},
		"learner": {jobOfTask(v2alpha1.LifecycleCoordinatorLed, v2alpha1.TaskTypeLearner), func(b *workload.Builder) (*corev1.Pod, error) {
			return b.Replica(&v2alpha1.Member{Slot: "s", Task: v2alpha1.TaskTypeLearner}, "p")
		}},
		"collector": {jobOfTask(v2alpha1.LifecycleCoordinatorLed, v2alpha1.TaskTypeCollector), func(b *workload.Builder) (*corev1.Pod, error) {
			return b.Replica(&v2alpha1.Member{Slot: "s", Task: v2alpha1.TaskTypeCollector}, "p")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, err := tc.build(workload.NewBuilder(tc.job, workload.Settings{}))
			expect.NoError(t, err)
			got := map[string]bool{}
			set := overridesOf(&tc.job.Spec, &tc.job.Spec.Tasks[0], clusterVariables(&tc.job.Spec))
			for _, names := range [][]string{set.labels, set.annotations, set.env, slices.Collect(maps.Keys(set.cluster))} {
				for _, name := range names {
					got[name] = true
				}
			}
			want := map[string]bool{}
			for key := range pod.Labels {
				want[key] = true
			}
			for key := range pod.Annotations {
				want[key] = true
			}
			for _, variable := range pod.Spec.Containers[0].Env {
				want[variable.Name] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("overridden (-pod +warned about):\n%s", diff)
			}
		})
	}
}

// restarted returns the assignment of replicas after a removed one, with pod p restarted alone.
func restarted(replicas ...workload.Replica) *workload.Assignment {
	assignment := &workload.Assignment{Replicas: replicas, ReplicaRestarts: map[string]int32{"p": 1}}
	for i := range replicas {
		assignment.Nodes = append(assignment.Nodes, replicas[i].Pod)
	}
	assignment.Nodes = append(assignment.Nodes, "removed")
	return assignment
}

// clusterOf returns a job whose replicas, of this number, read a cluster spec.
func clusterOf(replicas int32) *v2alpha1.DIJob {
	job := jobOfTask("", v2alpha1.TaskTypeNone)
	job.Spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow, v2alpha1.ClusterSpecTorch}
	job.Spec.Tasks[0].Replicas = &replicas
	return job
}

// TestTheEstimatedLengthOfAVariableIsItsLength checks that the estimate is the maximum length of
// the variable of a pod.
func TestTheEstimatedLengthOfAVariableIsItsLength(t *testing.T) {
	t.Parallel()
	for _, domain := range []string{"", "svc.a-cluster-with-a-long-name.example.com"} {
		job := clusterOf(1234)
		assignment := &workload.Assignment{}
		for index := range int32(1234) {
			pod := fmt.Sprintf("j-none-%d", index)
			assignment.Replicas = append(assignment.Replicas, workload.Replica{Index: index, Rank: index, Pod: pod})
			assignment.Nodes = append(assignment.Nodes, pod)
		}
		builder := workload.NewBuilder(job, workload.Settings{ServiceDomain: domain})
		pod, err := builder.Worker(assignment, &assignment.Replicas[1233])
		expect.NoError(t, err)
		configMap, err := builder.NodesConfigMap(assignment)
		expect.NoError(t, err)
		told := map[string]string{"DI_NODES": configMap.Data["DI_NODES"]}
		for _, variable := range pod.Spec.Containers[0].Env {
			if variable.Name == "TF_CONFIG" {
				told["TF_CONFIG"] = strings.ReplaceAll(variable.Value, "$(TF_CONFIG_NONE)", configMap.Data["TF_CONFIG_NONE"])
			}
		}
		for name, value := range told {
			estimated, _, _ := sizeOfAddresses(job, name, domain)
			actual := int64(len(name) + len("=") + len(value) + len("\x00"))
			if estimated < actual || estimated > actual+8 {
				t.Errorf("%s is %d bytes long, and is estimated as %d", name, actual, estimated)
			}
		}
	}
}

func jobOfTask(lifecycle v2alpha1.Lifecycle, taskType v2alpha1.TaskType) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{}
	job.Name, job.Namespace, job.Spec.Lifecycle = "j", "n", lifecycle
	job.Spec.Tasks = []v2alpha1.Task{{Type: taskType, Name: string(taskType)}}
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"name":"a"}]}}`)
	return job
}

func TestOnlyAChangeThatReachesPodsIsWarnedAbout(t *testing.T) {
	t.Parallel()
	const (
		stored = `{metadata: {creationTimestamp: null, labels: {a: b}}, spec: {containers: [{name: a, image: i, ports: [{containerPort: 80}],
  resources: {limits: {cpu: "1"}}, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}], livenessProbe: {httpGet: {port: 80}}}], volumes: [{name: v, secret: {secretName: s}}]}}`
		changed = `is changed: new pods use it, running pods stay unchanged`
	)
	worker := func(template string) string {
		return `spec: {volumes: [{name: w, emptyDir: {}}], tasks: [{type: none, name: main, replicas: 1, template: ` + template + `}]}`
	}
	led := func(template string) string { return `spec: {coordinator: {template: ` + template + `}}` }
	for name, tc := range map[string]struct {
		version, spec, old string
		want               []string
	}{
		"nothing":               {spec: worker(stored), old: worker(stored)},
		"an image":              {spec: worker(`{spec: {containers: [{name: a, image: j}]}}`), old: worker(`{spec: {containers: [{name: a, image: i}]}}`), want: []string{"spec.tasks[0].template: " + changed}},
		"an image, in v1alpha1": {version: "v1alpha1", spec: led(`{spec: {containers: [{name: a, image: j}]}}`), old: led(`{spec: {containers: [{name: a, image: i}]}}`), want: []string{"spec.coordinator.template: " + changed}},
		"a label":               {spec: worker(`{metadata: {labels: {a: ""}}, spec: {containers: [{name: a}]}}`), old: worker(`{spec: {containers: [{name: a}]}}`), want: []string{"spec.tasks[0].template: " + changed}},
		"of a finished job":     {spec: worker(`{spec: {containers: [{name: a, image: j}]}}`), old: worker(`{spec: {containers: [{name: a, image: i}]}}`) + "\nstatus: {phase: Failed}"},
		"of a running job":      {spec: worker(`{spec: {containers: [{name: a, image: j}]}}`), old: worker(`{spec: {containers: [{name: a, image: i}]}}`) + "\nstatus: {phase: Running}", want: []string{"spec.tasks[0].template: " + changed}},
		"volumes":               {spec: worker(stored), old: `spec: {volumes: [{name: w, emptyDir: {medium: Memory}}], tasks: [{type: none, name: main, template: ` + stored + `}]}`, want: []string{"spec.volumes: " + changed}},
		"fewer volumes":         {spec: worker(stored), old: `spec: {tasks: [{type: none, name: main, template: ` + stored + `}]}`, want: []string{"spec.volumes: " + changed}},
		"a new task":            {spec: `spec: {tasks: [{type: none, name: b, template: ` + stored + `}, {type: none, name: main, template: ` + stored + `}]}`, old: `spec: {tasks: [{type: none, name: main, template: ` + stored + `}]}`},
		"what defaulting wrote": {
			spec: worker(stored),
			old: worker(`{metadata: {name: "", labels: {a: b}}, spec: {dnsPolicy: ClusterFirst, schedulerName: default-scheduler, restartPolicy: Always, securityContext: {}, terminationGracePeriodSeconds: 30, enableServiceLinks: true,
  containers: [{name: a, image: i, imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, ports: [{containerPort: 80, protocol: TCP}],
  resources: {limits: {cpu: 1000m}, requests: {cpu: 1}}, env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}],
  livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}}],
  volumes: [{name: v, secret: {secretName: s, defaultMode: 420}}]}}`)},
		"a selector that selects all": {
			spec: worker(`{spec: {containers: [{name: a}], topologySpreadConstraints: [{maxSkew: 1, labelSelector: {}}]}}`),
			old:  worker(`{spec: {containers: [{name: a}], topologySpreadConstraints: [{maxSkew: 1}]}}`), want: []string{"spec.tasks[0].template: " + changed}},
		"the policy of restarts of a coordinator": {version: "v1alpha1", spec: led(`{spec: {restartPolicy: Never, containers: [{name: a}]}}`), old: led(`{spec: {containers: [{name: a}]}}`)},
		"tasks of one name, as v1.1.x took them": {
			spec: `spec: {tasks: [{type: none, name: a, template: {spec: {containers: [{name: a, image: i}]}}}, {type: none, name: a, template: {spec: {containers: [{name: a, image: j}]}}}]}`,
			old:  `spec: {tasks: [{type: none, name: a, template: {spec: {containers: [{name: a, image: i}]}}}, {type: none, name: a, template: {spec: {containers: [{name: a, image: j}]}}}]}`},
		"a faulty task that is moved": {
			spec: `spec: {tasks: [{type: learner, template: ` + stored + `}, {type: none, name: a, template: {spec: {containers: []}}}]}`,
			old:  `spec: {tasks: [{type: none, name: a, template: {spec: {containers: []}}}, {type: learner, template: ` + stored + `}]}`},
		"a warning that was already so": {spec: worker(`{spec: {newer: 1, containers: [{name: a}]}}`), old: worker(`{spec: {newer: 2, containers: [{name: a}]}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version, validate := "v2alpha1", validateV2
			if tc.version == "v1alpha1" {
				version, validate = tc.version, validateV1
			}
			answer := ask(t, validate, version, tc.spec, tc.old)
			if !answer.allowed() {
				t.Fatalf("refused: %v", answer.errors)
			}
			expect.Equal(t, "warnings", tc.want, answer.warnings)
		})
	}
}

func TestWhatAnOldClientDropsIsWarnedAbout(t *testing.T) {
	t.Parallel()
	const dropped = "is removed by this update, like all fields that v1.1.3 does not have: if the client was built for v1.1.3, write the field again"
	job := func(more string) string {
		return `spec: {` + more + `tasks: [{type: none, name: main, replicas: 1, template: {spec: {containers: [{name: a}]}}}]}`
	}
	for name, tc := range map[string]struct {
		spec, old string
		want      []string
	}{
		"all newer fields": {
			spec: job(`elastic: {task: main, replicas: 1}, `),
			old:  job(`group: g, suspend: false, scheduling: {queue: q}, elastic: {task: main, replicas: 1, maxReplicas: 3}, `),
			want: []string{"spec.elastic.maxReplicas: " + dropped, "spec.group: " + dropped, "spec.scheduling: " + dropped, "spec.suspend: " + dropped},
		},
		"some of them, on purpose": {spec: job(`group: g, `), old: job(`group: g, suspend: true, `)},
		"none, as there were none": {spec: job(``), old: job(`elastic: {task: main, replicas: 1}, lifecycle: WorkerLed, suspend: null, `)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := ask(t, validateV2, "v2alpha1", tc.spec, tc.old)
			if diff := cmp.Diff(tc.want, answer.warnings); diff != "" || !answer.allowed() {
				t.Errorf("allowed: %v, warnings (-want +got):\n%s", answer.allowed(), diff)
			}
		})
	}
}

func TestReplicasThatCannotBeToldOfEachOtherAreRefused(t *testing.T) {
	t.Parallel()
	job := func(clusterSpec string, replicas, limit int) string {
		return fmt.Sprintf(`spec: {backoffLimit: %d, %s tasks: [{type: none, name: worker, replicas: %d, template: {spec: {containers: [{name: a}]}}}]}`,
			limit, clusterSpec, replicas)
	}
	const ofTensorFlow = "clusterSpec: [TensorFlow], "
	for name, tc := range map[string]struct {
		spec, old string
		isRefused bool
	}{
		"a new job of TensorFlow":           {spec: job(ofTensorFlow, 3000, 0), isRefused: true},
		"one that is small enough":          {spec: job(ofTensorFlow, 2800, 0)},
		"one that grows beyond it":          {spec: job(ofTensorFlow, 3000, 0), old: job(ofTensorFlow, 2800, 0), isRefused: true},
		"one that was so, and shrinks":      {spec: job(ofTensorFlow, 2950, 0), old: job(ofTensorFlow, 3000, 0)},
		"one that was so, and stays":        {spec: job(ofTensorFlow, 3000, 1), old: job(ofTensorFlow, 3000, 0)},
		"one whose pods read no peers":      {spec: job(ofTensorFlow+`elastic: {task: worker, onResize: Continue}, `, 3000, 0)},
		"one of Torch":                      {spec: job(`clusterSpec: [Torch], `, 3000, 0)},
		"one whose addresses are in a file": {spec: job("", 5000, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := ask(t, validateV2, "v2alpha1", tc.spec, tc.old)
			if answer.allowed() == tc.isRefused {
				t.Errorf("allowed: %v: %+v", answer.allowed(), answer.errors)
			}
		})
	}
}

func TestReplicasWhoseAddressesAreInAFileAreWarnedAbout(t *testing.T) {
	t.Parallel()
	job := func(replicas, limit int) string {
		return fmt.Sprintf(`spec: {backoffLimit: %d, tasks: [{type: collector, replicas: %d, template: {spec: {containers: [{name: a}]}}}]}`, limit, replicas)
	}
	clustered := func(more string) string {
		return `spec: {` + more + `tasks: [{type: none, name: worker, replicas: 3000, template: {spec: {containers: [{name: a}]}}}]}`
	}
	const (
		of4000 = "spec.tasks: DI_NODES names a file of addresses that programs must read: the addresses of all replicas take 162899 bytes, " +
			"and Linux starts no process with more than 131072 in one variable: enough for 3196 replicas"
		of5000 = "spec.tasks: DI_NODES names a file of addresses that programs must read: the addresses of all replicas take 203899 bytes, " +
			"and Linux starts no process with more than 131072 in one variable: enough for 3196 replicas"
	)
	for name, tc := range map[string]struct {
		spec, old string
		want      []string
	}{
		"a new job":                        {spec: job(4000, 0), want: []string{of4000}},
		"a new job that is small enough":   {spec: job(2000, 0)},
		"one that grows beyond it":         {spec: job(4000, 0), old: job(2000, 0), want: []string{of4000}},
		"one that grows further":           {spec: job(5000, 0), old: job(4000, 0), want: []string{of5000}},
		"one that was so, and stays":       {spec: job(4000, 1), old: job(4000, 0)},
		"one that is made small enough":    {spec: job(2000, 0), old: job(4000, 0)},
		"one of dynamic workers":           {spec: clustered(`clusterSpec: [TensorFlow], elastic: {task: worker, onResize: Continue}, `)},
		"one of Torch":                     {spec: clustered(`clusterSpec: [Torch], `)},
		"one that is led by a coordinator": {spec: `spec: {lifecycle: CoordinatorLed, tasks: [{type: coordinator, template: {spec: {containers: [{name: a}]}}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := ask(t, validateV2, "v2alpha1", tc.spec, tc.old)
			if diff := cmp.Diff(tc.want, answer.warnings); diff != "" || !answer.allowed() {
				t.Errorf("allowed: %v, warnings (-want +got):\n%s", answer.allowed(), diff)
			}
		})
	}
}

func TestAMistypedValueHidesNoOtherMistake(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version, spec string
		want          []string
	}{
		"in a template": {
			"v2alpha1", `{"tasks":[{"type":"none","template":{"spec":{"hostNetwork":"yes","containers":[{"name":"A"},{"name":"b","tty":1},{"name":"b","ports":[{"containerPort":70000}]}],"volumes":[{}]}}}]}`,
			[]string{
				"spec.tasks[0].template.spec.containers[0].name", "spec.tasks[0].template.spec.containers[1].tty", "spec.tasks[0].template.spec.containers[2].name",
				"spec.tasks[0].template.spec.containers[2].ports[0].containerPort", "spec.tasks[0].template.spec.hostNetwork", "spec.tasks[0].template.spec.volumes[0].name",
			},
		},
		"where a mistake would follow from it": {
			"v2alpha1", `{"tasks":[{"type":"none","template":{"spec":{"containers":"a"}}},{"type":"none","name":"b","template":{"spec":{"containers":[{"name":1},7]}}},{"type":"none","name":"c","template":7}]}`,
			[]string{"spec.tasks[0].template.spec.containers", "spec.tasks[1].template.spec.containers[0].name", "spec.tasks[1].template.spec.containers[1]", "spec.tasks[2].template"},
		},
		"above the templates": {
			"v2alpha1", `{"backoffLimit":"x","volumes":[{"name":"V","emptyDir":1}],"tasks":[{"type":"none","replicas":"2","template":{"spec":{"containers":[{"name":"A","tty":1}]}}},{"type":"none","name":"b","template":{}}]}`,
			[]string{
				"spec.backoffLimit", "spec.tasks[0].replicas", "spec.tasks[0].template.spec.containers[0].name", "spec.tasks[0].template.spec.containers[0].tty",
				"spec.tasks[1].template.spec.containers", "spec.volumes[0].emptyDir", "spec.volumes[0].name",
			},
		},
		"above the templates of roles": {
			"v1alpha1", `{"group":1,"coordinator":{"template":{"spec":{"containers":[{"name":"A","tty":1}]}}},"collector":{"template":{"spec":{"hostNetwork":1}}}}`,
			[]string{
				"spec.collector.template.spec.containers", "spec.collector.template.spec.hostNetwork", "spec.coordinator.template.spec.containers[0].name",
				"spec.coordinator.template.spec.containers[0].tty", "spec.group",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := []byte(`{"apiVersion":"diengine.opendilab.org/` + tc.version + `","kind":"DIJob","metadata":{"name":"a","namespace":"b"},"spec":` + tc.spec + `}`)
			errs := Mistyped(raw)
			if len(errs) == 0 {
				job, err := decodeHub(raw)
				expect.NoError(t, err)
				errs = validateContent(job, pathsOf(raw, job))
			}
			var got []string
			for _, err := range errs {
				if strings.Contains(err.Field, "template") || err.Field == "spec.group" || err.Field == "spec.backoffLimit" || strings.Contains(err.Field, "replicas") || strings.Contains(err.Field, "volumes") {
					got = append(got, err.Field)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s\n%v", diff, errs)
			}
		})
	}
}

// Decoding this quantity takes an hour and cannot be canceled.
func TestAQuantityThatCostsIsRefusedByItsPathAndNotDecoded(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`"1e-2000000000"`, `1e2000000000`, `"1\u0065-2000000000"`} {
		errs := validateTemplate([]byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"memory":`+value+`}}}]}}`), field.NewPath("t"))
		if len(errs) != 1 || errs[0].Field != "t.spec.containers[0].resources.limits[memory]" {
			t.Errorf("%s: %v, want an error at the limit", value, errs)
		}
	}
}
