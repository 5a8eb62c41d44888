// Curves by uPlot, and the lane of phases and events above them, on one time axis.
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import type { Curve, Moment } from './api'
import { useApp } from './app'
import { last as lastOf, position, whole, type Span } from './axis'
import { clock, short, ticks, timeOf } from './format'
import { growth } from './growth'
import { Shape } from './mark'
import { kindOf, type Kind } from './state'

/** left is the space of the axis of values. */
export const left = 56

export const labelFont = '12px system-ui, sans-serif'
const ruler = document.createElement('canvas').getContext('2d')

/** space returns what the longest label of an axis needs beside the axis, because it may be centred at its end. */
function space(span: Span): number {
  if (!ruler) return left
  ruler.font = labelFont
  const label = timeOf(span.to, span.to - span.from).replace(/\d/g, '0')
  return Math.ceil(ruler.measureText(label).width / 2) + 4
}

const marks: Record<Moment['kind'], Kind> = {
  phase: 'waiting',
  restart: 'restarting',
  resize: 'done',
  reschedule: 'restarting',
  failure: 'failed',
  event: 'running',
  plan: 'starting',
}

const ranges = [0, 24 * 60, 6 * 60, 60, 15]

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

export function Charts({ timeline, curves, now }: { timeline: Moment[]; curves: Curve[]; now: number }) {
  const { t } = useApp()
  const [minutes, setMinutes] = useState(0)
  const [box, width] = useWidth()
  const span = lastOf(whole(timeline, curves, now), minutes * 60_000)
  const right = space(span)
  const byTime = curves.filter((c) => c.x !== 'replicas')
  const byReplicas = curves.filter((c) => c.x === 'replicas')
  return (
    <div class="charts" ref={box}>
      <div class="chips" role="group" aria-label={t.range}>
        {ranges.map((m) => (
          <button type="button" class="chip" aria-pressed={m === minutes} onClick={() => setMinutes(m)}>
            {m === 0 ? t.rangeAll : m < 60 ? t.lastMinutes(m) : t.lastHours(m / 60)}
          </button>
        ))}
      </div>
      {growth(curves, timeline).map((one) => (
        <p key={one.name}>
          {one.replicas ? t.growth(one.name, short(one.times), one.replicas[0], one.replicas[1]) : t.growthSince(one.name, short(one.times), clock(one.at ?? 0))}
        </p>
      ))}
      {width > 0 && <Lane timeline={timeline} span={span} width={width} right={right} />}
      {curves.length === 0 && <p class="empty">{t.noCurves}</p>}
      {width > 0 && byTime.map((curve) => <Chart key={curve.name} curve={curve} span={span} width={width} right={right} timeline={timeline} />)}
      {byReplicas.length > 0 && <h3>{t.byReplicas}</h3>}
      {width > 0 && byReplicas.map((curve) => <Chart key={`${curve.name}/replicas`} curve={curve} width={width} right={right} timeline={[]} />)}
    </div>
  )
}

function Lane({ timeline, span, width, right }: { timeline: Moment[]; span: Span; width: number; right: number }) {
  const { t } = useApp()
  const at = (time: string) => position(Date.parse(time), span, left, width - right)
  const inside = (time: string) => Date.parse(time) >= span.from
  return (
    <svg class="lane" width={width} height="52" role="img" aria-label={t.lane}>
      {timeline
        .filter((m) => m.kind === 'phase' && (!m.end || inside(m.end)))
        .map((m) => {
          const x = at(m.at)
          const end = m.end ? at(m.end) : width - right
          const name = m.title ?? m.text
          return (
            <g>
              <title>{`${clock(m.at)} ${t.say(m.text)}`}</title>
              <rect class={`phase k-${kindOf(name)}`} x={x} y="2" width={Math.max(2, end - x)} height="20" />
              {end - x > name.length * 8 + 10 && (
                <text x={x + 6} y="16">
                  {t.phases[name] ?? name}
                </text>
              )}
            </g>
          )
        })}
      <line x1={left} x2={width - right} y1="38" y2="38" class="axis" />
      {timeline
        .filter((m) => m.kind !== 'phase' && inside(m.at))
        .slice(-300)
        .map((m) => (
          <g>
            <title>{`${clock(m.at)} ${m.title ?? ''} ${t.say(m.text)}`}</title>
            <Shape kind={m.warning && m.kind === 'event' ? 'failed' : marks[m.kind]} x={at(m.at) - 7} y={31} />
          </g>
        ))}
    </svg>
  )
}

interface ChartProps {
  curve: Curve
  /** The times shown; absent for a curve by the number of replicas. */
  span?: Span
  width: number
  /** The space after the axis, which all have alike, so that their times are above each other. */
  right: number
  timeline: Moment[]
}

function Chart({ curve, span, width, right, timeline }: ChartProps) {
  const { t, theme } = useApp()
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>()
  const moments = useRef(timeline)
  moments.current = timeline
  const scale = useRef(span)
  scale.current = span
  const divisor = span ? 1000 : 1
  const points = span ? curve.points : [...curve.points].sort((a, b) => (a[0] ?? 0) - (b[0] ?? 0))
  const data: uPlot.AlignedData = [points.map((p) => (p[0] ?? 0) / divisor), points.map((p) => p[1] ?? 0)]
  useEffect(() => {
    const element = box.current
    if (!element) return
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name)
    const axis = { font: labelFont, stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } }
    plot.current = new uPlot(
      {
        width,
        height: 130,
        padding: [8, right, 0, 0],
        legend: { show: false },
        cursor: { ...(span ? { sync: { key: 'time' } } : {}), drag: { x: false, y: false } },
        scales: {
          x: {
            time: Boolean(span),
            range: (_, low, high) => (scale.current ? [scale.current.from / 1000, scale.current.to / 1000] : [Math.max(0, low - 0.5), high + 0.5]),
          },
        },
        axes: [span ? { ...axis, ...timeAxis } : { ...axis, ...countAxis }, { ...axis, size: left, values: (_, values) => ticks(values) }],
        series: [{}, { label: curve.name, stroke: colour('--accent'), width: 2, points: { show: !span || points.length < 2, size: 7 } }],
        hooks: { draw: [(u) => drawMoments(u, moments.current, colour('--warn'))] },
      },
      data,
      element,
    )
    return () => plot.current?.destroy()
  }, [width, right, theme, Boolean(span)])
  useEffect(() => plot.current?.setData(data), [curve.points, span?.from, span?.to])
  const values = points.map((p) => p[1] ?? 0)
  const unit = curve.unit ? ` ${curve.unit}` : ''
  const text = t.curveText(curve.name + unit, short(values.at(-1) ?? 0), short(Math.min(...values)), short(Math.max(...values)))
  return (
    <figure class="chart" aria-label={text}>
      <figcaption>{text}</figcaption>
      <div ref={box} aria-hidden="true" />
    </figure>
  )
}

/** drawMoments draws a line where the job was resized, restarted or failed. */
function drawMoments(u: uPlot, timeline: Moment[], colour: string) {
  const { ctx, bbox } = u
  ctx.save()
  ctx.strokeStyle = colour
  ctx.setLineDash([4, 4])
  for (const moment of timeline) {
    if (moment.kind === 'phase' || moment.kind === 'event') continue
    const x = u.valToPos(Date.parse(moment.at) / 1000, 'x', true)
    if (x < bbox.left || x > bbox.left + bbox.width) continue
    ctx.beginPath()
    ctx.moveTo(x, bbox.top)
    ctx.lineTo(x, bbox.top + bbox.height)
    ctx.stroke()
  }
  ctx.restore()
}
