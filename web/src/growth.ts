// Whether a job does more with more replicas: pure.
import type { Curve, Moment } from './api'

export interface Growth {
  name: string
  unit: string
  /** How many times as much the second value is. */
  times: number
  /** The replicas of both values; absent if the values are from before and after a resize. */
  replicas?: [number, number]
  /** When the job was resized, in milliseconds since 1970. */
  at?: number
}

/** growth compares what a job does with its fewest and its most replicas, or before and after its last resize. */
export function growth(curves: Curve[], timeline: Moment[]): Growth[] {
  const bySize = curves.filter((c) => c.x === 'replicas').flatMap(byReplicas)
  if (bySize.length > 0) return bySize
  const resize = timeline.findLast((m) => m.kind === 'resize')
  if (!resize) return []
  return curves.filter((c) => c.kind === 'throughput').flatMap((c) => aroundTime(c, Date.parse(resize.at)))
}

function byReplicas(curve: Curve): Growth[] {
  const points = [...curve.points].sort((a, b) => (a[0] ?? 0) - (b[0] ?? 0))
  const [low, high] = [points[0], points.at(-1)]
  if (!low?.[1] || high?.[1] === undefined || low[0] === high[0]) return []
  return [{ name: curve.name, unit: curve.unit ?? '', times: high[1] / low[1], replicas: [low[0] ?? 0, high[0] ?? 0] }]
}

/** around is how many values before and after a resize are compared. */
const around = 10

function aroundTime(curve: Curve, at: number): Growth[] {
  const before = curve.points.filter((p) => (p[0] ?? 0) < at).slice(-around)
  const after = curve.points.filter((p) => (p[0] ?? 0) >= at).slice(0, around)
  const base = mean(before)
  if (!base || after.length === 0) return []
  return [{ name: curve.name, unit: curve.unit ?? '', times: mean(after) / base, at }]
}

function mean(points: number[][]): number {
  return points.reduce((sum, p) => sum + (p[1] ?? 0), 0) / (points.length || 1)
}
