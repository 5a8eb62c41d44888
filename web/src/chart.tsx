// One chart by uPlot: its legend has the values below the cursor, which all charts of a page share.
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import type { Curve, Moment } from './api'
import { useApp, useNow } from './app'
import type { Span } from './axis'
import { copyPicture, copyText } from './copy'
import { age, clock, exact, short, ticks, timeOf } from './format'
import { isMark, left } from './lane'
import { csv, hasLog, smoothed } from './smooth'
import { toast } from './toast'

export { left } from './lane'

export const labelFont = '12px system-ui, sans-serif'

/** dashes tell lines apart without colours. */
export const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [12, 4], [3, 6], [8, 3, 2, 3, 2, 3], [1, 4]]

const timeAxis: uPlot.Axis = {
  size: 30,
  space: 90,
  values: (plot, ticks) => ticks.map((tick) => timeOf(tick * 1000, ((plot.scales.x?.max ?? 0) - (plot.scales.x?.min ?? 0)) * 1000)),
}

// There are no parts of replicas.
const countAxis: uPlot.Axis = { size: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], values: (_, ticks) => ticks.map(String) }

/** useWidth returns how wide a box is; 0 before it is drawn. */
export function useWidth() {
  const box = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(0)
  useEffect(() => {
    if (!box.current) return
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)))
    observer.observe(box.current)
    return () => observer.disconnect()
  }, [])
  return [box, width] as const
}

/** How charts are drawn. */
export interface Look {
  /** The weight of what was before, from 0 to less than 1. */
  smoothing: number
  log: boolean
}

/** A curve of another job, which is drawn below. */
export interface Other {
  job: string
  curve: Curve
  /** The place of its colour. */
  place: number
}

interface ChartProps {
  job: string
  curve: Curve
  others?: Other[]
  /** The times shown; absent for a curve by the number of replicas. */
  span?: Span
  width: number
  height?: number
  /** The space after the axis, which all have alike, so that their times are above each other. */
  right: number
  timeline: Moment[]
  look?: Look
  /** zoom shows a part of the times, or all again. */
  zoom?: (span: Span | undefined) => void
}

const plain: Look = { smoothing: 0, log: false }

export function Chart({ job, curve, others = [], span, width, height = 150, right, timeline, look = plain, zoom }: ChartProps) {
  const { t, theme } = useApp()
  const now = useNow()
  const box = useRef<HTMLDivElement>(null)
  const head = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>()
  const latest = useRef({ timeline, span, zoom })
  latest.current = { timeline, span, zoom }
  const all = [{ job, curve, place: 0 }, ...others]
  const data = dataOf(all, span ? 1000 : 1, look)
  const shape = all.map((one) => `${one.job} ${one.place}`).join('\n')
  useEffect(() => {
    const element = box.current
    if (!element || !head.current) return
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
    const made = new uPlot(
      {
        width,
        height,
        padding: [10, right, 0, 0],
        legend: { live: true, mount: (_, legend) => head.current?.replaceChildren(legend) },
        cursor: {
          ...(span ? { sync: { key: 'time' } } : {}),
          drag: { x: Boolean(span && zoom), y: false, setScale: false },
          points: { size: 7 },
          bind: { dblclick: () => () => (latest.current.zoom?.(undefined), null) },
        },
        scales: {
          x: { time: Boolean(span), range: (_, low, high) => rangeOf(latest.current.span, low, high) },
          y: look.log ? { distr: 3 } : {},
        },
        axes: axesOf(colour, Boolean(span), look.log),
        series: seriesOf(all, colour, look, Boolean(span), data, (at) => near(latest.current.timeline, at, latest.current.span), (kind) => t.kinds[kind]),
        hooks: {
          draw: [(u) => drawMarks(u, latest.current.timeline, colour)],
          setSelect: [(u) => select(u, latest.current.zoom)],
        },
      },
      data,
      element,
    )
    plot.current = made
    return () => made.destroy()
  }, [width, height, right, theme, Boolean(span), Boolean(zoom), look.smoothing, look.log, shape, t])
  useEffect(() => plot.current?.setData(data), [curve.points, ...others.map((o) => o.curve.points), span?.from, span?.to])
  const values = curve.points.map((p) => p[1] ?? 0)
  const [last, low, high] = [values.at(-1) ?? 0, Math.min(...values), Math.max(...values)].map(short)
  const unit = curve.unit ? ` ${curve.unit}` : ''
  const reported = span && curve.points.at(-1)?.[0]
  const picture = () => {
    const canvas = plot.current?.ctx.canvas
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
    if (canvas) void copyPicture(canvas, `${job}: ${curve.name}${unit}`, { paper: colour('--card'), ink: colour('--ink') }, `${job}-${curve.name}.png`.replace(/[^\w.-]+/g, '-')).then((is) => toast(is ? t.copied : t.saved))
  }
  const table = () => void copyText(csv(all), `${job}-${curve.name}.csv`.replace(/[^\w.-]+/g, '-')).then((is) => toast(is ? t.copied : t.saved))
  return (
    <figure class={others.length > 0 ? 'chart several' : 'chart'} style={{ width: `${width}px` }} aria-label={t.curveText(curve.name + unit, last ?? '', low ?? '', high ?? '')}>
      <figcaption>
        <b>{curve.name}</b>
        {unit && <span class="quiet">{unit}</span>}
        <span class="quiet wide-only">{t.lowHigh(low ?? '', high ?? '')}</span>
        {reported && now - reported > 30_000 && <span class="quiet wide-only">{t.ago(age(new Date(reported).toISOString(), now))}</span>}
        {look.log && !hasLog(all.map((one) => one.curve)) && <span class="quiet">{t.noLog}</span>}
        <span class="values" ref={head} aria-hidden="true" />
        <span class="tools">
          <button type="button" class="small" title={t.copyAs(curve.name, 'CSV')} onClick={table}>
            {'CSV'}
          </button>
          <button type="button" class="small" title={t.copyAs(curve.name, 'PNG')} onClick={picture}>
            {'PNG'}
          </button>
        </span>
      </figcaption>
      <div ref={box} aria-hidden="true" />
    </figure>
  )
}

function rangeOf(span: Span | undefined, low: number, high: number): uPlot.Range.MinMax {
  return span ? [span.from / 1000, span.to / 1000] : [Math.max(0, low - 0.5), high + 0.5]
}

/** dataOf returns the columns of a chart: x, and for each curve its values, and those smoothed. */
function dataOf(all: Other[], divisor: number, look: Look): uPlot.AlignedData {
  const tables = all.map(({ curve }) => {
    const points = [...curve.points].sort((a, b) => (a[0] ?? 0) - (b[0] ?? 0))
    const values = points.map((p) => (look.log && (p[1] ?? 0) <= 0 ? null : (p[1] ?? 0)))
    const columns: (number | null)[][] = look.smoothing ? [smoothed(values, look.smoothing), values] : [values]
    return [points.map((p) => (p[0] ?? 0) / divisor), ...columns] as uPlot.AlignedData
  })
  const [only] = tables
  return tables.length === 1 && only ? only : uPlot.join(tables)
}

function axesOf(colour: (name: string) => string, isTime: boolean, log: boolean): uPlot.Axis[] {
  const axis = { font: labelFont, stroke: colour('--quiet'), grid: { stroke: colour('--grid'), width: 1 }, ticks: { show: false } }
  return [
    { ...axis, ...(isTime ? timeAxis : countAxis) },
    // A low chart has at least two values, too.
    { ...axis, size: left, space: (_, __, ___, ____, high) => Math.min(44, Math.max(20, high / 4)), values: (_, values) => (log ? values.map((v) => (v === null ? null : short(v))) : ticks(values)) },
  ]
}

/** seriesOf returns how curves are drawn. Their values in the legend are those below the cursor, or else the last ones. */
function seriesOf(
  all: Other[],
  colour: (name: string) => string,
  look: Look,
  isTime: boolean,
  first: uPlot.AlignedData,
  near: (at: number) => Moment | undefined,
  kind: (kind: Moment['kind']) => string,
): uPlot.Series[] {
  const under = (u: uPlot, column: number, index: number | null) => {
    const values = u.data?.[column] ?? first[column] ?? []
    let at = index ?? values.length - 1
    while (at > 0 && (values[at] === null || values[at] === undefined)) at--
    const found = values[at]
    if (found === null || found === undefined) return ''
    return index !== null && isTime && isFar(u, u.data[0]?.[at] ?? 0) ? '–' : exact(found)
  }
  // All charts have the time of the cursor, and not that of their nearest points.
  const moment = (u: uPlot, at: number | null) => {
    if (at === null) return ''
    if (!isTime) return String(at)
    const time = underCursor(u) * 1000
    const mark = near(time)
    return `${clock(time)}${mark ? ` ${kind(mark.kind)}` : ''}`
  }
  const lines = all.flatMap(({ job, curve, place }): uPlot.Series[] => {
    const stroke = colour(`--line-${place}`)
    const line: uPlot.Series = {
      label: all.length > 1 ? job : '', stroke, dash: dashes[place] ?? [], width: 2, spanGaps: true,
      points: { show: !isTime || curve.points.length < 2, size: 7 }, value: (u, _, column, index) => under(u, column, index ?? null),
    }
    if (!look.smoothing) return [line]
    return [line, { stroke, width: 1, alpha: 0.35, spanGaps: true, points: { show: false }, label: '', class: 'raw', value: () => '' }]
  })
  return [{ label: '', value: moment }, ...lines]
}

function underCursor(u: uPlot): number {
  return u.posToVal(u.cursor.left ?? 0, 'x')
}

/** isFar reports whether a point is so far from the cursor that its value says nothing of the time there. */
function isFar(u: uPlot, at: number): boolean {
  const { min, max } = u.scales['x'] ?? {}
  return Math.abs(at - underCursor(u)) > ((max ?? 0) - (min ?? 0)) / 10
}

/** near returns the mark of a chart that is next to a time. */
function near(timeline: Moment[], at: number, span: Span | undefined): Moment | undefined {
  const apart = span ? (span.to - span.from) / 150 : 0
  return timeline.filter(isMark).find((m) => Math.abs(Date.parse(m.at) - at) < apart)
}

function select(u: uPlot, zoom: ChartProps['zoom']) {
  const { left: from, width } = u.select
  if (width < 5) return
  const [low, high] = [u.posToVal(from, 'x') * 1000, u.posToVal(from + width, 'x') * 1000]
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
  if (high - low > 1000) zoom?.({ from: low, to: high })
}

/** drawMarks draws a line where the job was resized, restarted or failed. */
function drawMarks(u: uPlot, timeline: Moment[], colour: (name: string) => string) {
  const { ctx, bbox } = u
  const ratio = uPlot.pxRatio
  ctx.save()
  ctx.lineWidth = ratio
  for (const moment of timeline) {
    if (!isMark(moment)) continue
    const x = Math.round(u.valToPos(Date.parse(moment.at) / 1000, 'x', true))
    if (x < bbox.left || x > bbox.left + bbox.width) continue
    ctx.strokeStyle = ctx.fillStyle = colour(moment.kind === 'failure' ? '--bad' : moment.kind === 'resize' ? '--accent' : '--restart')
    ctx.setLineDash([4 * ratio, 4 * ratio])
    ctx.beginPath()
    ctx.moveTo(x, bbox.top)
    ctx.lineTo(x, bbox.top + bbox.height)
    ctx.stroke()
    ctx.beginPath()
    ctx.moveTo(x - 4 * ratio, bbox.top - 5 * ratio)
    ctx.lineTo(x + 4 * ratio, bbox.top - 5 * ratio)
    ctx.lineTo(x, bbox.top)
    ctx.fill()
  }
  ctx.restore()
}
