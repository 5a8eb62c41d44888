// What the states of jobs and parts look like. Each kind has a colour and a shape.
import type { JobRow } from './api'
import type { Texts } from './texts.en'

export type Kind = 'running' | 'starting' | 'waiting' | 'restarting' | 'done' | 'failed' | 'leaving' | 'missing' | 'resized'

const kinds: Record<string, Kind> = {
  Running: 'running',
  Starting: 'starting',
  ContainerCreating: 'starting',
  PodInitializing: 'starting',
  Pending: 'waiting',
  Unschedulable: 'waiting',
  SchedulingGated: 'waiting',
  Suspended: 'waiting',
  Queued: 'waiting',
  Unknown: 'waiting',
  Restarting: 'restarting',
  Rescheduling: 'restarting',
  Succeeded: 'done',
  Completed: 'done',
  Terminating: 'leaving',
  Deleted: 'leaving',
  Unseen: 'missing',
  Missing: 'missing',
}

/** kindOf returns the kind of a state. A word that it does not know is why something failed. */
export function kindOf(state: string, ready = true): Kind {
  const kind = kinds[state] ?? 'failed'
  return kind === 'running' && !ready ? 'starting' : kind
}

/** isFinished reports whether a job has ended. Such a job desires no replicas. */
export function isFinished(job: JobRow): boolean {
  return job.phase === 'Succeeded' || job.phase === 'Failed'
}

/** why returns the reason of a job, or what its user asked for until the operator has observed that. */
export function why(job: JobRow, t: Texts): string | undefined {
  const asked = job.terminating ? 'Terminating' : job.suspended && !isFinished(job) ? 'Suspended' : ''
  return job.reason || t.phases[asked]
}

const weights: Kind[] = ['failed', 'missing', 'restarting', 'waiting', 'starting', 'leaving', 'running', 'done']

/** weight sorts what needs attention first. */
export function weight(kind: Kind): number {
  return weights.indexOf(kind)
}
