// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// provider returns the provider of a setting in a version; the first for "".
func provider(t *testing.T, name Setting, version string) *Provider {
	t.Helper()
	for _, each := range Providers() {
		if each.Name == name && (version == "" || each.GVK.Version == version) {
			return &each
		}
	}
	t.Fatalf("there is no %s %s", name, version)
	return nil
}

func object(t *testing.T, manifest string) map[string]any {
	t.Helper()
	decoded := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(manifest))
	expect.NoError(t, err)
	expect.NoError(t, decoded.UnmarshalJSON(content))
	return decoded.Object
}

// team returns a gang of three.
func team() *Gang {
	return &Gang{
		Namespace: "rl", Name: "di-job", Labels: map[string]string{"diengine/job": "job"},
		Owner: metav1.OwnerReference{APIVersion: "diengine.opendilab.org/v2alpha1", Kind: "DIJob", Name: "job", UID: "uid"},
		Min:   3, Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), "nvidia.com/gpu": resource.MustParse("3")},
		Queue: "research", PriorityClass: "high",
	}
}

const metadata = `
metadata:
  namespace: rl
  name: di-job
  labels: {diengine/job: job}
  ownerReferences:
  - {apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, name: job, uid: uid}
`

func TestEachSchedulerIsToldOfAGangInItsOwnWords(t *testing.T) {
	tests := map[string]struct {
		name    Setting
		version string
		want    string
		pod     corev1.Pod
	}{
		"Volcano": {Volcano, "", `
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
spec: {minMember: 3, minResources: {cpu: 1500m, nvidia.com/gpu: "3"}, queue: research, priorityClassName: high}`,
			corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"scheduling.k8s.io/group-name": "di-job", "scheduling.volcano.sh/group-name": "di-job"}},
				Spec:       corev1.PodSpec{SchedulerName: "volcano"},
			}},
		"scheduler-plugins": {Coscheduling, "", `
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
spec: {minMember: 3, minResources: {cpu: 1500m, nvidia.com/gpu: "3"}}`,
			corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"scheduling.x-k8s.io/pod-group": "di-job"}},
				Spec:       corev1.PodSpec{SchedulerName: "scheduler-plugins-scheduler"},
			}},
		"Kubernetes 1.36": {Kubernetes, "v1alpha2", `
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
spec: {schedulingPolicy: {gang: {minCount: 3}}, priorityClassName: high}`,
			corev1.Pod{Spec: corev1.PodSpec{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: new("di-job")}}}},
		"Kubernetes 1.37": {Kubernetes, "v1beta1", `
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
spec: {schedulingPolicy: {gang: {minCount: 3}}, priorityClassName: high}`,
			corev1.Pod{Spec: corev1.PodSpec{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: new("di-job")}}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := provider(t, tc.name, tc.version)
			expect.Equal(t, "object", object(t, tc.want+metadata), p.Group(team()).Object)
			if least := p.Least(p.Group(team())); least != 3 {
				t.Errorf("%d are to be placed at once, want 3", least)
			}
			var pod corev1.Pod
			p.Mark(&pod, "di-job")
			expect.Equal(t, "pod", tc.pod, pod)
			if !p.IsMember(&pod, "di-job") || p.IsMember(&pod, "other") || !IsMember(&pod) || IsMember(&corev1.Pod{}) {
				t.Error("whose the pod is, is not told")
			}
		})
	}
}

func TestAPodKeepsTheSchedulerThatItNames(t *testing.T) {
	pod := corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "mine"}}
	provider(t, Volcano, "").Mark(&pod, "di-job")
	expect.Equal(t, "the scheduler", "mine", pod.Spec.SchedulerName)
}

func TestAGangWithoutQueueClassAndRequestsLeavesThemToTheScheduler(t *testing.T) {
	for _, each := range Providers() {
		group := each.Group(&Gang{Namespace: "rl", Name: "di-job", Min: 1})
		spec, _, err := unstructured.NestedMap(group.Object, "spec")
		if err != nil || len(spec) != 1 {
			t.Errorf("%s: spec is %v, %v", each.GVK, spec, err)
		}
	}
}

func TestOnlyWhatDiffersOfAGangIsChanged(t *testing.T) {
	const stored = `
apiVersion: GROUP/VERSION
kind: PodGroup
status: {phase: Inqueue}
`
	tests := map[string]struct {
		name         Setting
		version      string
		stored, want string
		impossible   bool
	}{
		"another number, and what others wrote": {
			name: Volcano, stored: `spec: {minMember: 2, queue: default, networkTopology: {mode: soft}}`,
			want: `spec: {minMember: 3, minResources: {cpu: 1500m, nvidia.com/gpu: "3"}, queue: research, priorityClassName: high, networkTopology: {mode: soft}}`,
		},
		"of scheduler-plugins": {
			name: Coscheduling, stored: `spec: {minMember: 9, scheduleTimeoutSeconds: 10}`,
			want: `spec: {minMember: 3, minResources: {cpu: 1500m, nvidia.com/gpu: "3"}, scheduleTimeoutSeconds: 10}`,
		},
		"of Kubernetes 1.37, whose class stays": {
			name: Kubernetes, version: "v1beta1", stored: `spec: {priorityClassName: low, schedulingPolicy: {gang: {minCount: 2}}}`,
			want: `spec: {priorityClassName: low, schedulingPolicy: {gang: {minCount: 3}}}`,
		},
		"of Kubernetes 1.36, which is immutable": {
			name: Kubernetes, version: "v1alpha2", stored: `spec: {schedulingPolicy: {gang: {minCount: 2}}}`,
			want: `spec: {schedulingPolicy: {gang: {minCount: 2}}}`, impossible: true,
		},
		"of Kubernetes 1.36, of the same number": {
			name: Kubernetes, version: "v1alpha2", stored: `spec: {schedulingPolicy: {gang: {minCount: 3}}}`,
			want: `spec: {schedulingPolicy: {gang: {minCount: 3}}}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := &unstructured.Unstructured{Object: object(t, stored+tc.stored)}
			kept := before.DeepCopy()
			got, possible := provider(t, tc.name, tc.version).Sync(before, team())
			if possible == tc.impossible {
				t.Errorf("possible is %v", possible)
			}
			expect.Equal(t, "object", object(t, stored+tc.want), got.Object)
			if diff := cmp.Diff(kept.Object, before.Object); diff != "" {
				t.Errorf("the stored one is changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestWhyAGangWaitsIsReadWhereItsSchedulerSaysIt(t *testing.T) {
	tests := map[string]struct {
		name   Setting
		status string
		want   SchedulerStatus
	}{
		"nothing yet":        {Volcano, `{}`, SchedulerStatus{}},
		"of Volcano":         {Volcano, `{conditions: [{type: Unschedulable, status: "True", reason: NotEnoughResources, message: 3/3 tasks in gang unschedulable}]}`, SchedulerStatus{"NotEnoughResources", "3/3 tasks in gang unschedulable"}},
		"no more of Volcano": {Volcano, `{conditions: [{type: Scheduled, status: "True", reason: tasks in gang are ready to be scheduled}]}`, SchedulerStatus{}},
		"of scheduler-plugins, which says it in pods": {Coscheduling, `{phase: Pending}`, SchedulerStatus{}},
		"of Kubernetes 1.36":                          {Kubernetes, `{conditions: [{type: PodGroupScheduled, status: "False", reason: Unschedulable, message: pod group is unschedulable}]}`, SchedulerStatus{Reason: "Unschedulable"}},
		"of Kubernetes 1.37":                          {Kubernetes, `{conditions: [{type: PodGroupInitiallyScheduled, status: "False", reason: SchedulerError, message: broken}]}`, SchedulerStatus{"SchedulerError", "broken"}},
		"placed by Kubernetes":                        {Kubernetes, `{conditions: [{type: PodGroupScheduled, status: "True", reason: Scheduled}]}`, SchedulerStatus{}},
		"no conditions at all":                        {Kubernetes, `{conditions: 1}`, SchedulerStatus{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			group := &unstructured.Unstructured{Object: object(t, "apiVersion: v1\nkind: PodGroup\nstatus: "+tc.status)}
			expect.Equal(t, "status", tc.want, provider(t, tc.name, "").Read(group))
		})
	}
}

func TestAPodThatOnlyWaitsForOthersSaysNothing(t *testing.T) {
	says := func(message string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message,
		}}}}
	}
	if got := StatusOfPod(says("pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, one or more plugins asked to wait")); got != (SchedulerStatus{}) {
		t.Errorf("it says %v", got)
	}
	if got, want := StatusOfPod(says("0/2 nodes are available: 2 Insufficient cpu.")), (SchedulerStatus{"Unschedulable", "0/2 nodes are available: 2 Insufficient cpu."}); got != want {
		t.Errorf("it says %v, want %v", got, want)
	}
	expect.Equal(t, "one that nobody has looked at", (SchedulerStatus{}), StatusOfPod(&corev1.Pod{}))
}

func TestAGangIsLeftToTheSchedulerThatIsAskedFor(t *testing.T) {
	only := func(names ...Setting) []Provider {
		return slices.DeleteFunc(Providers(), func(p Provider) bool { return !slices.Contains(names, p.Name) })
	}
	tests := map[string]struct {
		setting   Setting
		scheduler string
		served    []Provider
		want      Setting
		wantWhy   string
	}{
		"all are served":                       {Auto, "", Providers(), Volcano, ""},
		"without a setting":                    {"", "", Providers(), Volcano, ""},
		"what is installed goes first":         {Auto, "", only(Coscheduling, Kubernetes), Coscheduling, ""},
		"what Kubernetes brings":               {Auto, "", only(Kubernetes), Kubernetes, ""},
		"the job names one":                    {Auto, "scheduler-plugins-scheduler", Providers(), Coscheduling, ""},
		"the job names the default":            {Auto, "default-scheduler", Providers(), Kubernetes, ""},
		"the job names one that nobody knows":  {Auto, "mine", only(Coscheduling), Coscheduling, ""},
		"the job names one that is not served": {Auto, "volcano", only(Kubernetes), "", `the job names scheduler "volcano", and the API server serves no podgroups.scheduling.volcano.sh: install Volcano`},
		"none is served": {Auto, "", nil, "", "the API server serves no PodGroup of any gang scheduler: install Volcano or scheduler-plugins, or turn on " +
			"the feature gates GenericWorkload and GangScheduling of Kubernetes, or take spec.scheduling.gang out of the job"},
		"the setting wins over the job": {Kubernetes, "volcano", Providers(), Kubernetes, ""},
		"the setting is not served": {Coscheduling, "", only(Kubernetes), "", "operator.gangs.scheduler is coscheduling, and the API server serves no " +
			"podgroups.scheduling.x-k8s.io: install scheduler-plugins with its CRDs"},
		"none is wanted": {None, "volcano", Providers(), "", "operator.gangs.scheduler is none: set it to auto or to a scheduler that is installed, " +
			"or take spec.scheduling.gang out of the job"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, why := Choose(tc.setting, tc.scheduler, tc.served)
			var got Setting
			if chosen != nil {
				got = chosen.Name
			}
			if got != tc.want || why != tc.wantWhy {
				t.Errorf("chosen is %q, as %q; want %q, as %q", got, why, tc.want, tc.wantWhy)
			}
		})
	}
}

func TestSettingsAreRead(t *testing.T) {
	for _, setting := range Settings() {
		if got, err := ParseSetting(string(setting)); err != nil || got != setting {
			t.Errorf("%s is read as %s, %v", setting, got, err)
		}
	}
	const want = `"yunikorn" is no setting for gangs: must be one of auto, none, volcano, coscheduling, kubernetes`
	if _, err := ParseSetting("yunikorn"); err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}
