// The time axis that the timeline and the curves share: pure.
import type { Curve, Moment } from './api'

export interface Span {
  from: number
  to: number
}

/** shortest is the least time that is shown, in milliseconds. */
const shortest = 10_000

/**
 * whole returns the time from the first moment or point to the present, or to the last of them: the clock of the cluster
 * may be ahead. That of a job that has finished ends with it.
 */
export function whole(timeline: Moment[], curves: Curve[], now: number, end?: number): Span {
  const times = timeline.map((m) => Date.parse(m.at))
  for (const curve of curves) {
    if (curve.x === 'replicas') continue
    for (const point of [curve.points[0], curve.points.at(-1)]) if (point?.[0] !== undefined) times.push(point[0])
  }
  const from = Math.min(end ?? now, ...times)
  return { from, to: Math.max(from + shortest, end ?? Math.max(now, ...times)) }
}

/** last returns the end of a span that lasts milliseconds; 0 for all of it. */
export function last(span: Span, milliseconds: number): Span {
  return milliseconds ? { from: Math.max(span.from, span.to - milliseconds), to: span.to } : span
}

/** position returns where a time is between two coordinates. */
export function position(at: number, span: Span, left: number, right: number): number {
  const share = (at - span.from) / (span.to - span.from || 1)
  return left + Math.min(1, Math.max(0, share)) * (right - left)
}

/** nearest returns the index of the moment that is closest to a time of the day, as "14:05"; -1 without any. */
export function nearest(timeline: Moment[], time: string): number {
  const [hours, minutes] = time.split(':').map(Number)
  if (hours === undefined || minutes === undefined || Number.isNaN(hours) || Number.isNaN(minutes)) return -1
  const wanted = hours * 60 + minutes
  let best = -1
  let distance = Infinity
  timeline.forEach((moment, i) => {
    const date = new Date(moment.at)
    const apart = Math.abs(date.getHours() * 60 + date.getMinutes() + date.getSeconds() / 60 - wanted)
    // Of moments that are equally close, the latest counts.
    if (apart <= distance) [best, distance] = [i, apart]
  })
  return best
}
