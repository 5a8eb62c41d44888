// What the first screen of a job says of it: pure.
import type { Curve, JobDetail, JobRow, Moment } from './api'
import { isFinished } from './state'

export interface Progress {
  done: number
  /** The whole work; absent if the job does not say. */
  total?: number
  unit: string
  /** The seconds that are left at the speed of late; absent if that is not known. */
  left?: number
}

/** progressOf returns how far a job is by its last report, and how long the rest takes; undefined if it does not report it. */
export function progressOf(detail: Pick<JobDetail, 'job' | 'profilings' | 'curves'>): Progress | undefined {
  const { done, total, unit } = reported(detail.profilings)
  if (done === undefined) return undefined
  const progress: Progress = { done, unit: typeof unit === 'string' ? unit.slice(0, 40) : '' }
  if (!total || total < done) return progress
  progress.total = total
  const speed = speedOf(detail.curves.find((curve) => curve.name === 'progress'))
  if (speed > 0 && detail.job.phase === 'Running') progress.left = (total - done) / speed
  return progress
}

function reported(text: string | undefined): { done?: number; total?: number; unit?: unknown } {
  if (!text) return {}
  try {
    const { progress } = JSON.parse(text) as { progress?: Record<string, unknown> | null }
    const number = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) && value >= 0 ? { is: value } : {})
    const [done, total] = [number(progress?.done).is, number(progress?.total).is]
    return { ...(done === undefined ? {} : { done }), ...(total === undefined ? {} : { total }), unit: progress?.unit }
  } catch {
    return {}
  }
}

/** speedOf returns how much a curve grows in a second, over its last half. */
function speedOf(curve: Curve | undefined): number {
  const points = curve?.points ?? []
  const [from, to] = [points[Math.floor(points.length / 2)], points.at(-1)]
  const passed = ((to?.[0] ?? 0) - (from?.[0] ?? 0)) / 1000
  return passed > 0 ? ((to?.[1] ?? 0) - (from?.[1] ?? 0)) / passed : 0
}

export interface Step {
  phase: string
  /** In milliseconds since 1970. */
  from: number
  to: number
}

const ends = ['Succeeded', 'Failed']

/** endOf returns when a job has finished, in milliseconds since 1970; undefined if it has not. */
export function endOf(job: JobRow): number | undefined {
  return isFinished(job) && job.completedAt ? Date.parse(job.completedAt) : undefined
}

/**
 * stepsOf returns the phases of a job with their ends. Those before the first that was observed are known by the
 * conditions that ended.
 */
export function stepsOf({ job, conditions, timeline }: Pick<JobDetail, 'job' | 'conditions' | 'timeline'>, now: number): Step[] {
  const end = endOf(job) ?? now
  const seen = timeline.filter((m) => m.kind === 'phase').map((m) => ({ phase: m.title ?? m.text, from: Date.parse(m.at), to: m.end ? Date.parse(m.end) : end }))
  const first = seen[0]?.from ?? end
  let from = Date.parse(job.createdAt)
  const before: Step[] = []
  for (const phase of ['Pending', 'Starting']) {
    const ended = conditions.find((c) => c.type === phase && c.status === 'False')?.since
    const to = ended ? Math.min(Date.parse(ended), first) : from
    if (to > from) before.push({ phase, from, to })
    from = Math.max(from, to)
  }
  const all = first > Date.parse(job.createdAt) ? [...before, ...seen] : seen
  return all.map((step) => (ends.includes(step.phase) ? { ...step, to: step.from } : { ...step, to: Math.max(step.from, step.to) }))
}

export interface Cause {
  /** One word of what is wrong; empty if there is none. */
  reason: string
  /** What matters most, in a line. */
  first: string
  /** The whole text, if it has more than that line. */
  whole: string
  /** When it began or happened. */
  at?: string
  /** Whether it lasts since then. */
  lasts: boolean
  remedies: string[]
  /** The replica that failed. */
  object?: string
  /** An earlier trouble, which may have led to this. */
  earlier?: Moment
}

/** causeOf returns what is wrong with a job, once: why it waits or failed, with the last failure of a replica; undefined if nothing is. */
export function causeOf({ job, waiting, timeline }: Pick<JobDetail, 'job' | 'waiting' | 'timeline'>): Cause | undefined {
  const failure = timeline.findLast((m) => m.kind === 'failure')
  const said = waiting?.why ?? job.message ?? ''
  if (!said && !job.reason && !failure) return undefined
  // A job that succeeded has overcome its failures.
  if (job.phase === 'Succeeded') return undefined
  const isFailure = !waiting && failure && (!said || failure.text.includes(said) || job.phase === 'Failed')
  if (isFailure) {
    const text = job.phase === 'Failed' && said && !failure.text.includes(said) ? `${failure.text}\n\n${said}` : failure.text
    const earlier = timeline.find((m) => m.warning && m.kind !== 'failure' && m.at < failure.at)
    return { reason: job.reason || (failure.title ?? ''), ...parted(text), at: failure.at, lasts: false, remedies: failure.remedies ?? [], ...objectOf(failure), ...(earlier && { earlier }) }
  }
  return { reason: job.reason, ...parted(said || job.reason), ...(waiting?.since && { at: waiting.since }), lasts: true, remedies: waiting?.remedies ?? [], ...(failure && { earlier: failure }) }
}

function objectOf(moment: Moment): { object?: string } {
  return moment.object ? { object: moment.object } : {}
}

const opening = /^Pod \S+ failed(?: with exit code -?\d+)?: /
const error = /^(?:[\w.]*(?:Error|Exception|Interrupt)\b|(?:panic|fatal|error)\b)/i

/** parted returns the line of a text that matters most: the last one with an error of a program, or else the first. */
export function parted(text: string): { first: string; whole: string } {
  const whole = text.trim()
  const begin = opening.exec(whole)?.[0] ?? ''
  const lines = whole.slice(begin.length).split('\n')
  const [line = ''] = [lines.findLast((one) => error.test(one)) ?? lines[0]]
  // What led to a failure is before what followed from it.
  const [first = ''] = line.split('; then ')
  return { first: begin + first, whole: begin + first === whole ? '' : whole }
}

/** fragment returns the part of a cause that a log may contain. */
export function fragment(first: string): string {
  return first.replace(opening, '').slice(0, 80)
}

/** clustered joins moments that would be drawn closer than some pixels. */
export function clustered(moments: Moment[], place: (moment: Moment) => number, apart: number): { x: number; moments: Moment[] }[] {
  const all: { x: number; moments: Moment[] }[] = []
  for (const moment of moments) {
    const x = place(moment)
    const last = all.at(-1)
    if (last && x - last.x < apart) last.moments.push(moment)
    else all.push({ x, moments: [moment] })
  }
  return all
}

export interface Trend {
  name: string
  /** How the curve goes of late: a still one changes by less than a twentieth of its range. */
  way: 'rises' | 'falls' | 'still'
  from: number
  to: number
  /** How long that is, in seconds. */
  span: number
}

/** trendOf returns how the reward of a job goes of late: the mean of the last third of its points, compared with the third before. */
export function trendOf(curves: Curve[]): Trend | undefined {
  const curve = curves.find((one) => one.kind === 'reward' && one.x !== 'replicas')
  const points = curve?.points ?? []
  const third = Math.floor(points.length / 3)
  if (!curve || third < 2) return undefined
  const values = points.map((point) => point[1] ?? 0)
  const mean = (part: number[]) => part.reduce((sum, value) => sum + value, 0) / part.length
  const [from, to] = [mean(values.slice(-2 * third, -third)), mean(values.slice(-third))]
  const range = Math.max(...values) - Math.min(...values)
  const way = Math.abs(to - from) < range / 20 || range === 0 ? 'still' : to > from ? 'rises' : 'falls'
  return { name: curve.name, way, from, to, span: ((points.at(-1)?.[0] ?? 0) - (points.at(-2 * third)?.[0] ?? 0)) / 1000 }
}

export interface Result {
  name: string
  final: number
  /** The best value, and when it was first reached, in milliseconds since 1970; absent if only one value is known. */
  best?: { value: number; at: number }
}

/** isLow tells names of curves whose lowest value is the best. The history of jobs takes the same. */
const isLow = /loss|error/i

/** resultOf returns what the curve that matters most came to; undefined without one. */
export function resultOf(curves: Curve[]): Result | undefined {
  const curve = curves.find((one) => one.x !== 'replicas' && one.kind !== 'usage')
  const final = curve?.points.at(-1)?.[1]
  if (!curve || final === undefined) return undefined
  if (curve.points.length === 1) return { name: curve.name, final }
  const sign = isLow.test(curve.name) ? -1 : 1
  const [at = 0, value = 0] = curve.points.reduce((best, point) => (sign * (point[1] ?? 0) > sign * (best[1] ?? 0) ? point : best))
  return { name: curve.name, final, best: { value, at } }
}
