// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote asks an optimizer service by HTTP, and falls back to another optimizer.
// docs/reference/optimizer.openapi.yaml describes the protocol.
//
// The service is never trusted. It is asked once at a time for each job, with a timeout. Its answer is bounded, must
// name the job that it is for, and passes [optimizer.Check] like any plan. After a failure the service is not asked
// for a while. So a service that hangs, lies or floods costs a timeout now and then, and changes nothing outside the
// limits of a job.
package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/internal/service"
)

// Path is the path of the operation below the URL of the service.
const Path = "/v1/optimize"

// DefaultTimeout is the default time of a request.
const DefaultTimeout = 5 * time.Second

// The bounds of all that is sent, received and tried.
const (
	// maxAnswer is the maximum size of an answer, in bytes.
	maxAnswer = 1 << 20
	// maxUsages bounds the replicas in the samples of a request.
	maxUsages = 40_000
	// maxConcurrent is how many requests are in flight at most.
	maxConcurrent = 8
	// maxUnanswered is after how many requests in a row without an answer no job asks for a while.
	maxUnanswered = 3
	// minBackoff and maxBackoff are the delays after the first and after many failures.
	minBackoff, maxBackoff = 30 * time.Second, 10 * time.Minute
	// planInterval is the minimum time between two plans of a job that the service makes.
	planInterval = 5 * time.Minute
	// maxJobs is how many jobs' failures are remembered.
	maxJobs = 10_000
)

// Optimizer asks a service. It may be used by several goroutines.
type Optimizer struct {
	service  *service.Client
	fallback optimizer.Optimizer

	mutex    sync.Mutex
	inFlight map[string]bool
	// unanswered are the requests in a row without an answer.
	unanswered failures
	jobs       map[string]failures
}

// failures are how often in a row something failed, and until when it is not tried again.
type failures struct {
	count int
	until time.Time
}

func (f failures) next(now time.Time) failures {
	delay := min(minBackoff<<min(f.count, 10), maxBackoff)
	return failures{count: f.count + 1, until: now.Add(delay)}
}

var _ optimizer.Optimizer = (*Optimizer)(nil)

// New returns an optimizer that asks a service, and the fallback whenever the service does not help.
func New(settings service.Settings, fallback optimizer.Optimizer) (*Optimizer, error) {
	settings.Name = "optimizer"
	client, err := service.New(settings)
	if err != nil {
		return nil, err
	}
	return &Optimizer{service: client, fallback: fallback, inFlight: map[string]bool{}, jobs: map[string]failures{}}, nil
}

// Generate implements [optimizer.Optimizer]. Between two plans of the service only the fallback decides, whose
// urgent rules continue.
func (o *Optimizer) Generate(ctx context.Context, stage optimizer.Stage, job *optimizer.Job) (optimizer.Plan, error) {
	recent := !job.LastPlan.IsZero() && job.Now.Sub(job.LastPlan) < planInterval
	if job.Busy || recent {
		return o.fallback.Generate(ctx, stage, job)
	}
	plan, refused := o.ask(ctx, &Request{Version: Version, Operation: OperationGenerate, Stage: stage, Job: job})
	if refused == nil {
		return plan, nil
	}
	plan, err := o.fallback.Generate(ctx, stage, job)
	return because(plan, refused), err
}

// RecoverOOM implements [optimizer.Optimizer].
func (o *Optimizer) RecoverOOM(ctx context.Context, killed []optimizer.Replica, job *optimizer.Job) (optimizer.Plan, error) {
	plan, refused := o.ask(ctx, &Request{Version: Version, Operation: OperationRecoverOOM, Killed: killed, Job: job})
	if refused == nil && !plan.Empty() {
		return plan, nil
	}
	fallback, err := o.fallback.RecoverOOM(ctx, killed, job)
	if refused != nil {
		fallback = because(fallback, refused)
	}
	return fallback, err
}

// because adds to the reason of a plan why the service did not make it.
func because(plan optimizer.Plan, refused error) optimizer.Plan {
	plan.Reason = fmt.Sprintf("%s (by the local optimizer, because %s)", plan.Reason, refused)
	return plan
}

// ask returns the checked plan of the service, or why there is none.
func (o *Optimizer) ask(ctx context.Context, request *Request) (optimizer.Plan, error) {
	job := request.Job
	key := job.Namespace + "/" + job.Name
	if err := o.begin(key, job.Now); err != nil {
		return optimizer.Plan{}, err
	}
	answer, answers, err := o.call(ctx, request)
	var plan optimizer.Plan
	if err == nil {
		plan, err = check(answer, job)
	}
	o.end(key, job.Now, answers, err)
	return plan, err
}

// begin reserves a request for a job, unless the service or its answers for this job failed lately.
func (o *Optimizer) begin(key string, now time.Time) error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	switch {
	case now.Before(o.unanswered.until):
		return errors.New("the optimizer service did not answer lately")
	case now.Before(o.jobs[key].until):
		return errors.New("the optimizer service failed for this job lately")
	case o.inFlight[key]:
		return errors.New("a request for the job is in flight")
	case len(o.inFlight) >= maxConcurrent:
		return errors.New("too many requests are in flight")
	}
	o.inFlight[key] = true
	return nil
}

// end records the outcome of a request. A failure delays the next request for the job. Several in a row without
// an answer delay those of all jobs, so one job cannot keep the others from the service.
func (o *Optimizer) end(key string, now time.Time, answers bool, err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	delete(o.inFlight, key)
	switch {
	case answers:
		o.unanswered = failures{}
	case o.unanswered.count+1 < maxUnanswered:
		o.unanswered.count++
	default:
		o.unanswered = o.unanswered.next(now)
	}
	if err == nil {
		delete(o.jobs, key)
		return
	}
	if len(o.jobs) >= maxJobs {
		clear(o.jobs)
	}
	o.jobs[key] = o.jobs[key].next(now)
}

// call sends a request, and returns the answer, and whether the service answers at all.
func (o *Optimizer) call(ctx context.Context, request *Request) (answer *Answer, answers bool, err error) {
	job := *request.Job
	job.Samples = latest(job.Samples)
	short := *request
	short.Job = &job
	answer = &Answer{}
	err = o.service.Post(ctx, Path, &short, answer, maxAnswer)
	return answer, !errors.Is(err, service.ErrUnanswered), err
}

// latest returns the last samples, as many as a request may have.
func latest(samples []optimizer.Sample) []optimizer.Sample {
	first, usages := len(samples), 0
	for first > 0 && len(samples)-first < optimizer.MaxSamples {
		if usages += len(samples[first-1].Usage); usages > maxUsages {
			break
		}
		first--
	}
	return samples[first:]
}

// check refuses an answer for another job, and a plan that the job may not have.
func check(answer *Answer, job *optimizer.Job) (optimizer.Plan, error) {
	if answer.Namespace != job.Namespace || answer.Name != job.Name {
		return optimizer.Plan{}, errors.New("the optimizer service answered for another job")
	}
	plan, err := optimizer.Check(answer.Plan, job)
	if err != nil {
		return optimizer.Plan{}, fmt.Errorf("the plan of the optimizer service is refused: %w", err)
	}
	return plan, nil
}
