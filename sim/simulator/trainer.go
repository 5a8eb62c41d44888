// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

// Trainer trains one job by the rules of a simulation where something else decides its placement and
// lets time pass.
type Trainer struct{ job *Job }

// NewTrainer returns the trainer of a job, at second 0.
func NewTrainer(submission *Submission, row Row) *Trainer {
	return &Trainer{job: newJob(*submission, &Allocator{row: row})}
}

// Place moves the job to the nodes of its ranks, which costs a restart of that many seconds. Without
// nodes the job waits.
func (t *Trainer) Place(nodes []int, restart int) { t.job.place(nodes, restart) }

// Step lets seconds pass, and the job trains where it is placed.
func (t *Trainer) Step(seconds int) { t.job.step(seconds, 0) }

// Job returns what a policy may see of the job.
func (t *Trainer) Job() *Job { return t.job }

// Done reports whether the job has finished.
func (t *Trainer) Done() bool { return t.job.done() }

// Outcome returns the outcome of the job.
func (t *Trainer) Outcome() Outcome {
	return Outcome{
		Name: t.job.Name, Application: t.job.Application.Name, Submitted: t.job.Time, Completed: t.job.completion,
		Restarts: t.job.Restarts, GPUSeconds: t.job.Attained,
	}
}
