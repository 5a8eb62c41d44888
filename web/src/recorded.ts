// What is recorded of jobs, as the page shows it: pure.
import type { Curve, HistoryComparison, HistoryRow } from './api'

/** mostCompared bounds the jobs of a comparison. */
export const mostCompared = 8

/** mostOthers bounds the jobs that are drawn below another one. */
export const mostOthers = 8

/** days are the times that a view of the history offers. */
export const days = [1, 7, 30, 90, 365]

/** keyOf names a recorded job in a link. */
export function keyOf(job: { namespace: string; name: string; uid: string }): string {
  return `${job.namespace}/${job.name}/${job.uid}`
}

/** toggled returns a choice of jobs with or without one; full if there is no room for it. */
export function toggled(chosen: string[], key: string): string[] {
  if (chosen.includes(key)) return chosen.filter((one) => one !== key)
  return chosen.length < mostCompared ? [...chosen, key] : chosen
}

/**
 * merged returns the recorded curves with what the page saw since their last points, and the curves that only the page saw. The
 * first of these is that which matters most: a report may name it that the history has not recorded yet.
 */
export function merged(recorded: Curve[], seen: Curve[]): Curve[] {
  const byTime = seen.filter((curve) => curve.x !== 'replicas')
  const known = recorded.map((curve) => {
    const live = byTime.find((one) => one.name === curve.name)
    const end = curve.points.at(-1)?.[0] ?? 0
    const newer = live?.points.filter((point) => (point[0] ?? 0) > end) ?? []
    const points = [...curve.points, ...newer]
    return live ? { ...live, points } : { ...curve, points }
  })
  const all = [...known, ...seen.filter((curve) => curve.x === 'replicas' || !known.some((one) => one.name === curve.name))]
  const isFirst = (curve: Curve) => curve.kind === 'reward' && curve.name === byTime[0]?.name && curve.x !== 'replicas'
  return [...all.filter(isFirst), ...all.filter((curve) => !isFirst(curve))]
}

/** withUsage returns curves over time, then what pods used, and then the curves by replicas. */
export function withUsage(curves: Curve[], used: Curve[]): Curve[] {
  if (used.length === 0) return curves
  return [...curves.filter((curve) => curve.x !== 'replicas'), ...used, ...curves.filter((curve) => curve.x === 'replicas')]
}

/** lines returns the first line of a text, and the others. */
export function lines(text: string): [string, string] {
  const end = text.indexOf('\n')
  return end < 0 ? [text, ''] : [text.slice(0, end), text.slice(end + 1)]
}

/** isTime reports whether a cell of a table is a time. */
export function isTime(text: string): boolean {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(text)
}

/** seconds returns a span of time in two units: 3h 5m. */
export function seconds(span: number | undefined | null): string {
  if (span === undefined || span === null) return ''
  const whole = Math.max(0, Math.round(span))
  const units: [number, string][] = [[86_400, 'd'], [3_600, 'h'], [60, 'm'], [1, 's']]
  const first = units.findIndex(([size]) => whole >= size)
  if (first < 0) return '0s'
  const [size, name] = units[first] ?? [1, 's']
  const next = units[first + 1]
  const rest = next ? Math.floor((whole % size) / next[0]) : 0
  return `${Math.floor(whole / size)}${name}${rest && next ? ` ${rest}${next[1]}` : ''}`
}

/** took returns how long a recorded job ran, or runs. */
export function took(job: HistoryRow, now: number): string {
  if (!job.startedAt) return ''
  return seconds(((job.endedAt ? Date.parse(job.endedAt) : now) - Date.parse(job.startedAt)) / 1000)
}

/** namesOf returns names that tell the jobs apart: those of several jobs have the start of their UIDs. */
export function namesOf(jobs: { job: { name: string; uid: string } }[]): string[] {
  const all = jobs.map(({ job }) => job.name)
  return jobs.map(({ job }) => (all.filter((name) => name === job.name).length > 1 ? `${job.name} ${job.uid.slice(0, 8)}` : job.name))
}

export interface Best {
  /** The place of the best run. */
  place: number
  series: string
  value: number
  /** The best value of the others that report it. */
  next: number | undefined
  /** Which fields of its spec none of the others has so. */
  fields: { field: string; value: string; others: string[] }[]
}

/** bestOf returns the best of the runs that report the series that matters most, and what only it has of them; undefined if none does. */
export function bestOf({ series, fields }: Pick<HistoryComparison, 'series' | 'fields'>): Best | undefined {
  const [main] = series.filter((one) => one.kind === 'reward').concat(series)
  const sign = main?.lowest ? -1 : 1
  const values = (main?.best ?? []).map((value, place) => ({ value, place })).filter((one): one is { value: number; place: number } => typeof one.value === 'number')
  const [best, second] = values.sort((a, b) => sign * (b.value - a.value))
  if (!main || !best) return undefined
  const others = values.filter(({ place }) => place !== best.place)
  const own = fields.filter(({ values: all }) => others.length > 0 && others.every(({ place }) => all[place] !== all[best.place]))
  return {
    place: best.place, series: main.name, value: best.value, next: second?.value,
    fields: own.map((one) => ({ field: one.field, value: one.values[best.place] ?? '', others: [...new Set(others.map(({ place }) => one.values[place] ?? ''))] })),
  }
}
