// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/test/soak/check"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/pace"
)

var (
	runTime   = flag.Duration("for", time.Hour, "how long the installation is under fire, quiet windows included")
	seed      = flag.Uint64("seed", 0, "seed of the faults and of the load; 0 for another one each time")
	jobCount  = flag.Int("jobs", 60, "jobs of about five pods")
	faultRate = flag.Float64("rate", 0.6, "faults a second")
	restTime  = flag.Duration("rest", time.Minute, "time in which all jobs must come to rest in a quiet window")
	outFolder = flag.String("out", filepath.Join(os.TempDir(), "di-soak"), "folder of the history and of the logs, which is emptied first")
	binary    = flag.String("binary", "", "the di-orchestrator to run; built from this checkout, with a clock that can be moved, if empty")
	from      = flag.String("from", upgradedFrom, "commit whose di-orchestrator takes turns with this checkout's; none if empty")
	replay    = flag.String("replay", "", "history file to check instead of a run")
	writeTo   = flag.Bool("write", false, "write the figures to docs/reliability.md")
)

// upgradedFrom is the commit that jobs are upgraded from by default, and back to. A defect of it that a soak finds is a
// reason to take a later one.
const upgradedFrom = "3dd3b294da7e"

// longestFault is that of a run of fullRun or more. A shorter run has shorter ones.
const (
	longestFault = 40 * time.Second
	fullRun      = 10 * time.Minute
)

func TestAHistoryFileKeepsItsPromises(t *testing.T) {
	if *replay == "" {
		t.Skip("-replay names no history file")
	}
	file, err := os.Open(*replay)
	expect.NoError(t, err)
	defer file.Close() //nolint:errcheck // it is only read
	checker := check.New()
	expect.NoError(t, history.Load(file, checker.See))
	for _, violation := range checker.Finish() {
		t.Errorf("%s", &violation)
	}
}

func TestPromisesAreKeptUnderFire(t *testing.T) {
	if *replay != "" {
		t.Skip("-replay names a history file")
	}
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	s := &soak{seed: *seed, report: newReport(), progress: func(format string, arguments ...any) {
		fmt.Fprintf(os.Stderr, "# %s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, arguments...)...)
	}}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano())
	}
	s.progress("replay the schedule with -seed %d -for %s -jobs %d -rate %g", s.seed, *runTime, *jobCount, *faultRate)
	expect.NoError(t, os.RemoveAll(*outFolder))
	expect.NoError(t, os.MkdirAll(*outFolder, 0o750))
	// An interrupt ends the processes that the run has started.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(t.Context()), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := s.run(ctx, *outFolder)
	for _, violation := range s.report.violations {
		t.Errorf("%s", &violation)
	}
	fmt.Println(s.report.table())
	if err == nil && *writeTo && !t.Failed() {
		err = s.report.write()
	}
	if err != nil || t.Failed() {
		t.Errorf("%v\nseed %d; the history and the logs are in %s: check it again with -replay %s", err, s.seed, *outFolder, filepath.Join(*outFolder, "history.jsonl"))
	}
}

// soak is one run.
type soak struct {
	seed     uint64
	report   *report
	progress func(format string, arguments ...any)

	world  *world
	faults *faults
	users  []*user
	// drivers are those that resize jobs through di-server.
	drivers []*driver
}

func (s *soak) random(number uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, number)) }

func (s *soak) run(ctx context.Context, folder string) (err error) {
	earlier := *from
	if earlier == upgradedFrom && !hasCommit(ctx, earlier) {
		s.progress("this clone has no commit %s, so all programs are of one version", earlier)
		earlier = ""
	}
	s.progress("starting the installation")
	if s.world, err = newWorld(ctx, folder, options{jobs: *jobCount, shards: 2, from: earlier, clocks: s.random(3)}); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.world.stop())
		s.world.log.Look(func() { s.report.finish(s) })
	}()
	for _, each := range s.world.instances {
		s.progress("the clock of %s is %s ahead", each.name, each.offset)
	}
	s.faults = &faults{
		world: s.world, random: s.random(1), rate: *faultRate, done: map[string]int{},
		longest: max(4*time.Second, time.Duration(float64(longestFault)*min(1, float64(*runTime)/float64(fullRun)))),
	}
	for number := range 3 {
		s.users = append(s.users, &user{world: s.world, random: s.random(uint64(10 + number))})
	}
	if err := s.measure(ctx, 0); err != nil {
		return err
	}
	s.progress("submitting %d jobs", *jobCount)
	for index := range *jobCount {
		if kind := s.world.kind(index); kind.led || kind.served {
			s.drivers = append(s.drivers, &driver{world: s.world, name: s.world.jobName(index), led: kind.led, random: s.random(uint64(1000 + index))})
		}
		if err := s.world.submit(ctx, index); err != nil {
			return err
		}
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	return s.cycles(ctx)
}

// cycles alternates between fire and quiet windows until the time is over or a promise is broken.
func (s *soak) cycles(ctx context.Context) error {
	window := min(max(*runTime/8, 20*time.Second), 3*time.Minute)
	for begin := time.Now(); ctx.Err() == nil && time.Since(begin) < *runTime; {
		if err := s.fire(ctx, window); err != nil {
			return err
		}
		if err := s.quiet(ctx); err != nil {
			return err
		}
		var broken int
		s.world.log.Look(func() { broken = len(s.world.checker.Violations()) })
		s.progress("%s of %s: %d violations", time.Since(begin).Round(time.Second), *runTime, broken)
		if broken > 0 {
			return nil
		}
	}
	return nil
}

// fire disturbs and loads the installation for a while.
func (s *soak) fire(ctx context.Context, window time.Duration) error {
	firing, stop := context.WithTimeout(ctx, window)
	defer stop()
	group := &errgroup.Group{}
	group.Go(func() error { return s.faults.run(firing) })
	for _, each := range s.users {
		group.Go(func() error { each.run(firing); return nil })
	}
	for _, each := range s.drivers {
		group.Go(func() error { each.run(firing); return nil })
	}
	return group.Wait()
}

// quiet waits until all jobs are at rest, and records what the programs use.
func (s *soak) quiet(ctx context.Context) error {
	for _, each := range s.world.instances {
		if err := each.waitReady(ctx); err != nil {
			return err
		}
	}
	if err := s.world.resumeAll(ctx, s.random(2)); err != nil {
		return err
	}
	window := history.Quiet{Begin: time.Now()}
	s.world.log.Add(history.Entry{Quiet: &window})
	var unrest []string
	for time.Since(window.Begin) < *restTime {
		s.world.log.Look(func() { unrest = s.world.checker.Unrest() })
		if len(unrest) == 0 {
			break
		}
		_ = pace.Pause(ctx, 200*time.Millisecond)
	}
	s.report.rests = append(s.report.rests, time.Since(window.Begin))
	if len(unrest) > 0 {
		s.progress("not at rest: %s", strings.Join(unrest, "\n  "))
	}
	for index := range *jobCount {
		s.world.compare(ctx, index)
	}
	if err := s.measure(ctx, *jobCount); err != nil {
		return err
	}
	over := window
	over.End = time.Now()
	s.world.log.Add(history.Entry{Quiet: &over})
	return nil
}

// measure records what the programs and etcd use while there is a number of jobs.
func (s *soak) measure(ctx context.Context, jobs int) error {
	for _, each := range s.world.instances {
		used, err := each.usage(ctx)
		if err != nil {
			return err
		}
		used.Jobs = jobs
		s.world.log.Add(history.Entry{Usage: used})
		s.report.usage(used)
	}
	stored, err := s.world.Etcd().Bytes(ctx)
	if err != nil {
		return err
	}
	used := &history.Usage{Program: "etcd", StoreBytes: stored, Jobs: jobs}
	s.world.log.Add(history.Entry{Usage: used})
	s.report.usage(used)
	return nil
}
