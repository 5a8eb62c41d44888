// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fromflags

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAJobHasOnlyWhatItsFlagsSay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flags Flags
		spec  string
	}{
		"an image": {Flags{}, `
tasks:
- name: worker
  type: none
  replicas: 1
  template: {spec: {containers: [{name: di-container, image: "train:1", resources: {}}]}}`},
		"all": {
			Flags{
				Command: []string{"python", "train.py"}, GPUs: 2, CPU: ptr.To(resource.MustParse("500m")), Memory: ptr.To(resource.MustParse("4Gi")),
				Min: ptr.To[int32](2), Max: ptr.To[int32](8), Env: []string{"A=b=c", "EMPTY="}, Preemptible: true, Queue: "team-a",
			}, `
preemptible: true
elastic: {minReplicas: 2, maxReplicas: 8}
scheduling: {queue: team-a}
tasks:
- name: worker
  type: none
  replicas: 2
  template:
    spec:
      containers:
      - name: di-container
        image: train:1
        command: [python, train.py]
        env: [{name: A, value: b=c}, {name: EMPTY}]
        resources:
          requests: {cpu: 500m, memory: 4Gi}
          limits: {memory: 4Gi, nvidia.com/gpu: "2"}`},
		"tasks, volumes, code and PyTorch": {
			Flags{
				Tasks: []string{"learner=1", "collector=4", "buffer=2"}, Max: ptr.To[int32](8), Torch: true, GPUs: 2, Claims: []string{"data:/data", "sets:/mnt/sets:ro"},
				CodeMap: "pong-code-1", CodeKeys: []corev1.KeyToPath{{Key: "f000", Path: "train.py"}},
			}, `
clusterSpec: [Torch]
elastic: {maxReplicas: 8}
tasks:
- {name: learner, type: learner, replicas: 1, template: &same {spec: {
    containers: [{
      name: di-container, image: "train:1", workingDir: /code, env: [{name: PET_NPROC_PER_NODE, value: "2"}],
      resources: {limits: {nvidia.com/gpu: "2"}}, volumeMounts: [
        {name: claim-0, mountPath: /data}, {name: claim-1, mountPath: /mnt/sets, readOnly: true}, {name: code, mountPath: /code, readOnly: true}]}],
    volumes: [
      {name: claim-0, persistentVolumeClaim: {claimName: data}}, {name: claim-1, persistentVolumeClaim: {claimName: sets, readOnly: true}},
      {name: code, configMap: {name: pong-code-1, items: [{key: f000, path: train.py}]}}]}}}
- {name: collector, type: collector, replicas: 4, template: *same}
- {name: buffer, type: none, replicas: 2, template: *same}`,
		},
		"the processes of a replica as given": {Flags{Torch: true, GPUs: 2, Env: []string{"PET_NPROC_PER_NODE=1"}}, `
clusterSpec: [Torch]
tasks:
- name: worker
  type: none
  replicas: 1
  template: {spec: {containers: [{name: di-container, image: "train:1", env: [{name: PET_NPROC_PER_NODE, value: "1"}],
    resources: {limits: {nvidia.com/gpu: "2"}}}]}}`},
		"a job that may shrink to nothing": {Flags{Min: ptr.To[int32](0), Max: ptr.To[int32](1)}, `
elastic: {minReplicas: 0, maxReplicas: 1}
tasks:
- name: worker
  type: none
  replicas: 1
  template: {spec: {containers: [{name: di-container, image: "train:1", resources: {}}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.flags.Name, tc.flags.Image = "pong", "train:1"
			job, err := tc.flags.Job()
			expect.NoError(t, err)
			var want, got any
			content, err := yaml.Marshal(job.Object["spec"])
			expect.NoError(t, yaml.Unmarshal(content, &got))
			if err != nil || yaml.Unmarshal([]byte(tc.spec), &want) != nil {
				t.Fatal(err)
			}
			if differs := cmp.Diff(want, got); differs != "" {
				t.Error(differs)
			}
		})
	}
}

func TestAWrongFlagIsNamed(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Flags){
		`--image "": want`:                              func(f *Flags) { f.Image = "" },
		`--image "My Trainer": want`:                    func(f *Flags) { f.Image = "My Trainer" },
		`--env "=b": want NAME=VALUE`:                   func(f *Flags) { f.Env = []string{"=b"} },
		"--gpus -1: want 0 or more":                     func(f *Flags) { f.GPUs = -1 },
		"--replicas 0: want 1 or more":                  func(f *Flags) { f.Replicas = ptr.To[int32](0) },
		"--min -1: want 0 or more":                      func(f *Flags) { f.Min = ptr.To[int32](-1) },
		"--max 0: want 1 or more":                       func(f *Flags) { f.Max = ptr.To[int32](0) },
		"--min 3: want at most --max, which is 2":       func(f *Flags) { f.Min, f.Max = ptr.To[int32](3), ptr.To[int32](2) },
		"--replicas 1: want at least --min, which is 2": func(f *Flags) { f.Min, f.Replicas = ptr.To[int32](2), ptr.To[int32](1) },
		"--replicas and --task exclude":                 func(f *Flags) { f.Replicas, f.Tasks = ptr.To[int32](1), []string{"a=1"} },
		`--task "collector": want NAME=COUNT`:           func(f *Flags) { f.Tasks = []string{"collector"} },
		`--task "a=0": want NAME=COUNT`:                 func(f *Flags) { f.Tasks = []string{"a=0"} },
		`--task "A=1": want NAME=COUNT`:                 func(f *Flags) { f.Tasks = []string{"A=1"} },
		`--task "a=2": there is another`:                func(f *Flags) { f.Tasks = []string{"a=1", "a=2"} },
		"--min and --max are for a job of one task":     func(f *Flags) { f.Min, f.Tasks = ptr.To[int32](1), []string{"a=1", "b=1"} },
		"--replicas 4: want at most --max, which is 3":  func(f *Flags) { f.Max, f.Tasks = ptr.To[int32](3), []string{"collector=4"} },
		`--pvc "data": want NAME:/PATH`:                 func(f *Flags) { f.Claims = []string{"data"} },
		`--pvc "data:data": want NAME:/PATH`:            func(f *Flags) { f.Claims = []string{"data:data"} },
		`--pvc "data:/": want NAME:/PATH`:               func(f *Flags) { f.Claims = []string{"data:/"} },
		`--pvc "data:/a/../b": want NAME:/PATH`:         func(f *Flags) { f.Claims = []string{"data:/a/../b"} },
		`--pvc "data:/data:rw": want NAME:/PATH`:        func(f *Flags) { f.Claims = []string{"data:/data:rw"} },
		`--pvc "b:/data": something else is mounted`:    func(f *Flags) { f.Claims = []string{"a:/data", "b:/data"} },
		`--pvc "a:/code": something else is mounted`:    func(f *Flags) { f.CodeMap, f.Claims = "c", []string{"a:/code"} },
		`NAME "A": want lower-case letters, digits, - and ., at most 253, that begin and end with a letter or a digit, such as cartpole-2`: func(f *Flags) { f.Name = "A" },
	} {
		flags := Flags{Name: "pong", Image: "train:1"}
		change(&flags)
		if _, err := flags.Job(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
