// What the states of jobs and parts look like. Each kind has a colour and a shape.

export type Kind = 'running' | 'starting' | 'waiting' | 'restarting' | 'done' | 'failed' | 'leaving' | 'missing'

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
  Missing: 'missing',
}

/** kindOf returns the kind of a state. A word that it does not know is why something failed. */
export function kindOf(state: string, ready = true): Kind {
  const kind = kinds[state] ?? 'failed'
  return kind === 'running' && !ready ? 'starting' : kind
}

const weights: Kind[] = ['failed', 'missing', 'restarting', 'waiting', 'starting', 'leaving', 'running', 'done']

/** weight sorts what needs attention first. */
export function weight(kind: Kind): number {
  return weights.indexOf(kind)
}
