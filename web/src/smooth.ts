// Curves as they are drawn and copied: pure.
import type { Curve } from './api'

/** smoothed returns the running means of values, of which each new value has a share of 1 - weight. The first ones are not pulled to 0. */
export function smoothed(values: (number | null)[], weight: number): (number | null)[] {
  let [mean, total] = [0, 0]
  return values.map((value) => {
    if (value === null) return null
    mean = mean * weight + value * (1 - weight)
    total = total * weight + (1 - weight)
    return mean / total
  })
}

/** hasLog reports whether all values have a logarithm. */
export function hasLog(curves: Curve[]): boolean {
  return curves.every((curve) => curve.points.every((point) => (point[1] ?? 0) > 0))
}

export interface Line {
  job: string
  curve: Curve
}

/** csv returns the points of curves as RFC 4180 has them, with the times of UTC. */
export function csv(lines: Line[]): string {
  const rows = lines.flatMap(({ job, curve }) =>
    curve.points.map(([x = 0, y = 0]) => [job, curve.name, curve.unit ?? '', curve.x === 'replicas' ? String(x) : new Date(x).toISOString(), String(y)]),
  )
  const axis = lines.some(({ curve }) => curve.x === 'replicas') ? 'replicas' : 'time'
  return [['job', 'name', 'unit', axis, 'value'], ...rows].map((row) => row.map(quoted).join(',')).join('\r\n') + '\r\n'
}

// A text that begins like a formula would be one to a spreadsheet.
function quoted(text: string): string {
  const safe = /^[=+@\t\r]|^-(?!\d)/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe
}

/** shifted returns a curve of another job as if that job had started with this one. */
export function shifted(curve: Curve, by: number): Curve {
  return { ...curve, points: curve.points.map(([x = 0, y = 0]) => [x + by, y]) }
}
