// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"slices"

	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/profilings"
)

// maxTypesBytes bounds a file of types.
const maxTypesBytes = 1 << 20

// LoadDevices reads the step times of applications by the type of devices, and returns the types. An application that has
// none cannot run on a cluster of several types.
func LoadDevices(path string, applications map[string]*Application) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", path, err)
	}
	if info.Size() > maxTypesBytes {
		return nil, fmt.Errorf("%s has %d bytes: must have at most %d", path, info.Size(), maxTypesBytes)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var types map[string]map[string]struct {
		Throughput model.Throughput `json:"throughput"`
	}
	if err := json.Unmarshal(content, &types); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var names []string
	for device, times := range types {
		names = append(names, device)
		for name, application := range applications {
			one, is := times[name]
			if !is || !(one.Throughput.AlphaC > 0 && one.Throughput.BetaC >= 0 && one.Throughput.Gamma >= 1) {
				return nil, fmt.Errorf("%s: application %s on %s has the throughput %+v: must have AlphaC more than 0 and Gamma of 1 or more",
					path, name, device, one.Throughput)
			}
			if application.devices == nil {
				application.devices = map[string]model.Throughput{}
			}
			application.devices[device] = one.Throughput
		}
	}
	slices.Sort(names)
	return names, nil
}

// timesOn returns the true step and synchronization time of a placement on nodes with these types of devices: those of the
// slowest, as all wait for it. Without types they are the measured ones.
func (a *Application) timesOn(devices []string, placement []int, atomic int) (step, sync float64) {
	if len(devices) == 0 {
		return a.Times(placement, atomic)
	}
	at := model.Config{Nodes: len(placement), Atomic: atomic}
	for _, count := range placement {
		at.Replicas += count
	}
	for _, device := range devices {
		times := a.devices[device]
		if seconds := times.StepTime(at); seconds > step {
			alone := model.Config{Nodes: 1, Replicas: 1, Atomic: atomic}
			step, sync = seconds, math.Max(seconds-times.StepTime(alone), 0)
		}
	}
	return step, sync
}

// devicesOf returns the types of the devices of nodes, each once.
func (c *Cluster) devicesOf(nodes []int) []string {
	var found []string
	for _, node := range nodes {
		if node < len(c.Devices) && !slices.Contains(found, c.Devices[node]) {
			found = append(found, c.Devices[node])
		}
	}
	slices.Sort(found)
	return found
}

// pin returns the type that the user of a job asks for: at random, by the number of nodes.
func (c *Cluster) pin(job string) string {
	sum := fnv.New32a()
	sum.Write([]byte(job))
	return c.Devices[int(sum.Sum32()%uint32(len(c.Devices)))]
}

// profile returns what a job measures of one device of each type, for some seconds each.
func profile(job *Job, cluster *Cluster) []profilings.Step {
	bounds := &job.Application.Bounds
	atomic := min(bounds.Initial, bounds.MaxAtomic)
	var steps []profilings.Step
	for _, device := range cluster.devicesOf(indices(len(cluster.Devices))) {
		step, _ := job.Application.timesOn([]string{device}, []int{1}, atomic)
		steps = append(steps, profilings.Step{Nodes: 1, Replicas: 1, Samples: atomic, Seconds: step, ComputeSeconds: step, Device: device})
	}
	return steps
}

func indices(count int) []int {
	all := make([]int, count)
	for i := range all {
		all[i] = i
	}
	return all
}
