// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fromflags

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		`NAME "A": `:                                    func(f *Flags) { f.Name = "A" },
	} {
		flags := Flags{Name: "pong", Image: "train:1"}
		change(&flags)
		if _, err := flags.Job(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
