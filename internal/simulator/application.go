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
	// placements has step times by exact placement, such as "31", grid by nodes and
	// replicas where the placement was not measured.
	placements map[string]curve
	grid       map[[2]int]curve
	// progress is the work that is done when an epoch begins, the last of all batch sizes.
	progress []float64

	times map[timeKey][2]float64
}

// validation is what was measured with a batch, by epoch.
type validation struct {
	batch                          int
	progress, iteration, sqr, vari []float64
}

// curve is step and synchronization time by the samples of a pass, ascending.
type curve []struct {
	atomic     float64
	step, sync float64
}

type timeKey struct {
	placement string
	atomic    int
}

// The settings of the artifact's applications that its data does not have.
var artifact = map[string]struct{ epochs, maxAtomic, fixedBatch, maxReplicas int }{
	"bert":        {epochs: 2},
	"cifar10":     {epochs: 100},
	"ncf":         {epochs: 10, fixedBatch: 32768, maxReplicas: 1},
	"imagenet":    {epochs: 90},
	"deepspeech2": {epochs: 80},
	"yolov3":      {epochs: 50, maxAtomic: 8},
}

// LoadApplications reads the measurements below a directory of traces: applications/
// and grid-aws/.
func LoadApplications(traces string) (map[string]*Application, error) {
	directories, err := os.ReadDir(filepath.Join(traces, "applications"))
	if err != nil {
		return nil, fmt.Errorf("reading traces: %w", err)
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
	rows, err := readTable(filepath.Join(directory, "placements.csv"), "placement", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}
	least, most := math.MaxInt, 0
	for _, row := range rows {
		id := strconv.Itoa(int(row[0]))
		a.placements[id] = append(a.placements[id], struct{ atomic, step, sync float64 }{row[1], row[2], row[3]})
		least, most = min(least, int(row[1])), max(most, int(row[1]))
	}
	rows, err = readTable(filepath.Join(traces, "grid-aws", name+".csv"), "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		key := [2]int{int(row[0]), int(row[1])}
		a.grid[key] = append(a.grid[key], struct{ atomic, step, sync float64 }{row[2], row[3], row[4]})
	}
	a.Bounds = model.Bounds{
		Initial: a.validations[0].batch, Max: a.validations[len(a.validations)-1].batch, MinAtomic: least, MaxAtomic: most,
	}
	a.Epochs = len(a.validations[0].progress)
	for _, one := range a.validations {
		a.Epochs = min(a.Epochs, len(one.progress))
	}
	if settings, known := artifact[name]; known {
		a.Epochs, a.FixedBatch, a.MaxReplicas = settings.epochs, settings.fixedBatch, settings.maxReplicas
		if settings.maxAtomic > 0 {
			a.Bounds.MaxAtomic = settings.maxAtomic
		}
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
		if err != nil {
			return fmt.Errorf("%s: %q is no batch size", path, text)
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
	return nil
}

func (a *Application) sumProgress() error {
	a.progress = []float64{0}
	for epoch := range a.Epochs {
		least := math.Inf(1)
		for _, one := range a.validations {
			if epoch >= len(one.progress) {
				return fmt.Errorf("batch %d was measured for %d of %d epochs", one.batch, len(one.progress), a.Epochs)
			}
			least = math.Min(least, one.progress[epoch])
		}
		a.progress = append(a.progress, least)
	}
	return nil
}

// around returns the measured batches below and above a batch, which may be the same.
func (a *Application) around(batch int) (below, above *validation) {
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

// noise returns the gradient noise that a batch has in an epoch.
func (a *Application) noise(batch, epoch int) model.Noise {
	below, above := a.around(batch)
	return model.Noise{
		Sqr: between(batch, below, above, func(v *validation) float64 { return v.sqr[epoch] }),
		Var: between(batch, below, above, func(v *validation) float64 { return v.vari[epoch] }),
	}
}

// Iterations returns the steps that a batch has taken when an epoch has ended.
func (a *Application) Iterations(batch, epoch int) float64 {
	below, above := a.around(batch)
	return between(batch, below, above, func(v *validation) float64 { return v.iteration[epoch] })
}

// Times returns the true step and synchronization time of a placement, the replicas
// by node.
func (a *Application) Times(placement []int, atomic int) (step, sync float64) {
	id := rotation(placement)
	key := timeKey{id, atomic}
	if known, ok := a.times[key]; ok {
		return known[0], known[1]
	}
	found, exact := a.placements[id]
	if !exact {
		replicas := 0
		for _, count := range placement {
			replicas += count
		}
		found = a.grid[[2]int{min(len(placement), 16), replicas}]
	}
	step, sync = found.at(float64(atomic))
	a.times[key] = [2]float64{step, sync}
	return step, sync
}

// at interpolates linearly between the rows of a curve.
func (c curve) at(atomic float64) (step, sync float64) {
	if len(c) == 0 {
		return math.NaN(), math.NaN()
	}
	i, _ := slices.BinarySearchFunc(c, atomic, func(row struct{ atomic, step, sync float64 }, x float64) int {
		switch {
		case row.atomic < x:
			return -1
		case row.atomic > x:
			return 1
		}
		return 0
	})
	i = min(max(i, 1), len(c)-1)
	if len(c) == 1 {
		return c[0].step, c[0].sync
	}
	low, high := c[i-1], c[i]
	width := high.atomic - low.atomic
	return (high.step-low.step)/width*(atomic-low.atomic) + low.step, (high.sync-low.sync)/width*(atomic-low.atomic) + low.sync
}

// rotation returns the digits of the lexicographically least rotation of a placement.
func rotation(placement []int) string {
	digits := make([]byte, 0, len(placement))
	for _, count := range placement {
		digits = append(digits, byte('0'+count))
	}
	least := string(digits)
	for i := 1; i < len(digits); i++ {
		least = min(least, string(digits[i:])+string(digits[:i]))
	}
	return least
}
