// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/allocation/model"
)

// Application is a training program whose behaviour was measured.
type Application struct {
	Name   string
	Bounds model.Bounds
	// Epochs is after how many epochs a job is done.
	Epochs int
	// FixedBatch is the batch that adaptive policies train with as well; 0 for none.
	FixedBatch int
	// MaxReplicas bounds the replicas of adaptive policies; 0 for no bound.
	MaxReplicas int

	validations []validation
	// placements has step times by exact placement, such as "31"; grid by nodes and
	// replicas, for placements that were not measured.
	placements map[string]curve
	grid       map[[2]int]curve
	// widest is the largest number of nodes in the grid.
	widest int
	// progress is the work that is done at the start of each epoch and at the end of the last, in
	// steps of the initial batch.
	progress []float64

	// devices are the step times by the type of devices; nil if the cluster has one type.
	devices map[string]model.Throughput
	// times are the step times that were asked for before.
	times map[timeKey][2]float64
}

// validation is what was measured with a batch, by epoch.
type validation struct {
	batch                          int
	progress, iteration, sqr, vari []float64
}

// settings are what the artifact sets in its code, and not in its data.
type settings struct{ epochs, maxAtomic, fixedBatch, maxReplicas int }

func settingsOf(application string) settings {
	switch application {
	case "bert":
		return settings{epochs: 2}
	case "cifar10":
		return settings{epochs: 100}
	case "ncf":
		return settings{epochs: 10, fixedBatch: 32768, maxReplicas: 1}
	case "imagenet":
		return settings{epochs: 90}
	case "deepspeech2":
		return settings{epochs: 80}
	case "yolov3":
		return settings{epochs: 50, maxAtomic: 8}
	}
	return settings{}
}

// LoadApplications reads the measurements below a directory of traces: applications/
// and grid-aws/.
func LoadApplications(traces string) (map[string]*Application, error) {
	directories, err := os.ReadDir(filepath.Join(traces, "applications"))
	if err != nil {
		return nil, fmt.Errorf("listing applications: %w", err)
	}
	all := map[string]*Application{}
	for _, directory := range directories {
		application, err := loadApplication(traces, directory.Name())
		if err != nil {
			return nil, fmt.Errorf("reading application %s: %w", directory.Name(), err)
		}
		all[application.Name] = application
	}
	return all, nil
}

func loadApplication(traces, name string) (*Application, error) {
	a := &Application{Name: name, placements: map[string]curve{}, grid: map[[2]int]curve{}, times: map[timeKey][2]float64{}}
	directory := filepath.Join(traces, "applications", name)
	if err := a.loadValidations(directory); err != nil {
		return nil, err
	}
	if err := a.loadTimes(filepath.Join(directory, "placements.csv"), filepath.Join(traces, "grid-aws", name+".csv")); err != nil {
		return nil, err
	}
	a.Epochs = len(a.validations[0].progress)
	for _, one := range a.validations {
		a.Epochs = min(a.Epochs, len(one.progress))
	}
	set := settingsOf(name)
	a.FixedBatch, a.MaxReplicas = set.fixedBatch, set.maxReplicas
	if set.epochs > 0 {
		a.Epochs = set.epochs
	}
	if set.maxAtomic > 0 {
		a.Bounds.MaxAtomic = set.maxAtomic
	}
	return a, a.sumProgress()
}

func (a *Application) loadValidations(directory string) error {
	paths, err := filepath.Glob(filepath.Join(directory, "validation-*.csv"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", directory, err)
	}
	for _, path := range paths {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "validation-"), ".csv")
		batch, err := strconv.Atoi(text)
		if err != nil || batch < 1 {
			return fmt.Errorf("%s is named for the batch %q: must be a whole number of 1 or more", path, text)
		}
		rows, err := readTable(path, "progress", "iteration", "grad_sqr", "grad_var")
		if err != nil {
			return err
		}
		one := validation{batch: batch}
		for _, row := range rows {
			one.progress, one.iteration = append(one.progress, row[0]), append(one.iteration, row[1])
			one.sqr, one.vari = append(one.sqr, row[2]), append(one.vari, row[3])
		}
		a.validations = append(a.validations, one)
	}
	if len(a.validations) == 0 {
		return fmt.Errorf("%s has no validation-*.csv", directory)
	}
	slices.SortFunc(a.validations, func(x, y validation) int { return x.batch - y.batch })
	a.Bounds.Initial, a.Bounds.Max = a.validations[0].batch, a.validations[len(a.validations)-1].batch
	return nil
}

// sumProgress sets the work of each epoch: the least of all batches.
func (a *Application) sumProgress() error {
	a.progress = []float64{0}
	for epoch := range a.Epochs {
		least := math.Inf(1)
		for _, one := range a.validations {
			if epoch >= len(one.progress) {
				return fmt.Errorf("batch %d was measured for %d epochs: must be %d", one.batch, len(one.progress), a.Epochs)
			}
			least = math.Min(least, one.progress[epoch])
		}
		if least <= a.progress[epoch] {
			return fmt.Errorf("progress of epoch %d is %g: must be more than the previous %g", epoch+1, least, a.progress[epoch])
		}
		a.progress = append(a.progress, least)
	}
	return nil
}

// around returns the measured batches below and above a batch, which may be the same.
func (a *Application) around(batch int) (below, above *validation) {
	below = &a.validations[0]
	for i := range a.validations {
		one := &a.validations[i]
		if one.batch <= batch {
			below = one
		}
		if one.batch >= batch {
			return below, one
		}
	}
	return below, below
}

// between interpolates a value that was measured with the batches around a batch.
func between(batch int, below, above *validation, of func(*validation) float64) float64 {
	if below.batch == above.batch {
		return of(below)
	}
	lower, upper := float64(batch-below.batch), float64(above.batch-batch)
	return (lower*of(above) + upper*of(below)) / float64(above.batch-below.batch)
}

// noise returns the gradient noise of a batch in an epoch.
func (a *Application) noise(batch, epoch int) model.Noise {
	below, above := a.around(batch)
	return model.Noise{
		Sqr: between(batch, below, above, func(v *validation) float64 { return v.sqr[epoch] }),
		Var: between(batch, below, above, func(v *validation) float64 { return v.vari[epoch] }),
	}
}

// Iterations returns the steps that a batch takes to the end of an epoch.
func (a *Application) Iterations(batch, epoch int) float64 {
	below, above := a.around(batch)
	return between(batch, below, above, func(v *validation) float64 { return v.iteration[epoch] })
}
