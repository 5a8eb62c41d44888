// The curves of a job on one time axis, with what is chosen of it and how it is drawn.
import type { ComponentChildren } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import type { Curve, Moment } from './api'
import { useApp, useSetting } from './app'
import { last as lastOf, whole, type Span } from './axis'
import { Chart, labelFont, left, useWidth, type Look, type Other } from './chart'
import { clock, short, timeOf } from './format'
import { growth } from './growth'
import { Lane, MarkLegend } from './lane'

const ruler = document.createElement('canvas').getContext('2d')

/** space returns what the longest label of an axis needs beside the axis, because it may be centred at its end. */
function space(span: Span): number {
  if (!ruler) return left
  ruler.font = labelFont
  const label = timeOf(span.to, span.to - span.from).replace(/\d/g, '0')
  return Math.ceil(ruler.measureText(label).width / 2) + 4
}

const ranges = [0, 24 * 60, 6 * 60, 60, 15]
const weights = [0, 0.5, 0.8]

interface Props {
  job: string
  timeline: Moment[]
  curves: Curve[]
  now: number
  /** When the job finished, in milliseconds since 1970; absent while it has not. */
  end?: number | undefined
  /** Curves of other jobs, on the time axis of this one. */
  others?: Other[]
  /** The choice of these jobs. */
  children?: ComponentChildren
}

export function Charts({ job, timeline, curves, now, end, others = [], children }: Props) {
  const { t } = useApp()
  const [minutes, setMinutes] = useState(0)
  const [zoomed, setZoomed] = useState<Span>()
  const [smoothing, setSmoothing] = useSetting('smoothing')
  const [log, setLog] = useSetting('log')
  const [box, width] = useWidth()
  const all = useMemo(() => [...curves, ...others.map((o) => o.curve)], [curves, others])
  const span = zoomed ?? lastOf(whole(timeline, all, now, end), minutes * 60_000)
  const right = space(span)
  const look: Look = { smoothing: weights[Number(smoothing)] ?? 0, log: log === 'true' }
  const byReplicas = curves.filter((c) => c.x === 'replicas')
  const chosen = (m: number) => {
    setZoomed(undefined)
    setMinutes(m)
  }
  return (
    <div class="charts" ref={box}>
      <div class="toolbar">
        <div class="chips" role="group" aria-label={t.range}>
          {ranges.map((m) => (
            <button type="button" class="chip" aria-pressed={!zoomed && m === minutes} onClick={() => chosen(m)}>
              {m === 0 ? t.rangeAll : m < 60 ? t.lastMinutes(m) : t.lastHours(m / 60)}
            </button>
          ))}
        </div>
        <label class="field">
          {t.smoothing}
          <select value={smoothing || '0'} onChange={(e) => setSmoothing(e.currentTarget.value)}>
            {t.smoothings.map((name, i) => (
              <option value={String(i)}>{name}</option>
            ))}
          </select>
        </label>
        <label class="field">
          <input type="checkbox" checked={look.log} onChange={(e) => setLog(String(e.currentTarget.checked))} /> {t.logScale}
        </label>
        {children}
        {zoomed ? (
          <button type="button" onClick={() => setZoomed(undefined)}>
            {t.resetZoom}
          </button>
        ) : (
          <span class="quiet wide-only">{t.zoomHint}</span>
        )}
      </div>
      {growth(curves, timeline).map((one) => (
        <p class="growth" key={one.name}>
          {one.replicas ? t.growth(one.name, short(one.times), one.replicas[0], one.replicas[1]) : t.growthSince(one.name, short(one.times), clock(one.at ?? 0))}
        </p>
      ))}
      {width > 0 && <Lane timeline={timeline} span={span} width={width} right={right} />}
      <MarkLegend timeline={timeline} />
      {curves.length === 0 && <p class="empty">{t.noCurves}</p>}
      {width > 0 &&
        curves
          .filter((c) => c.x !== 'replicas')
          .map((curve, i) => (
            <Chart
              key={curve.name}
              job={job}
              curve={curve}
              others={others.filter((o) => o.curve.name === curve.name && o.curve.x !== 'replicas')}
              span={span}
              width={width}
              height={i === 0 ? 240 : 150}
              right={right}
              timeline={timeline}
              look={look}
              zoom={setZoomed}
            />
          ))}
      {byReplicas.length > 0 && <h3>{t.byReplicas}</h3>}
      {width > 0 && byReplicas.map((curve) => <Chart key={`${curve.name}/replicas`} job={job} curve={curve} width={width} right={right} timeline={[]} />)}
    </div>
  )
}

/** First shows the curve that matters most large, and below its throughput, its staleness and what its pods used: two of them. */
export function First({ job, timeline, curves, now, end }: Props) {
  const [box, width] = useWidth()
  const [zoomed, setZoomed] = useState<Span>()
  const byTime = curves.filter((c) => c.x !== 'replicas')
  const [main, ...rest] = byTime
  const more = ['throughput', 'staleness', 'usage'].flatMap((kind) => rest.find((c) => c.kind === kind) ?? []).slice(0, 2)
  const span = zoomed ?? whole(timeline, curves, now, end)
  const right = space(span)
  const half = more.length > 1 && width > 700 ? Math.floor((width - 24) / 2) : width
  const common = { job, span, right, timeline, zoom: setZoomed }
  return (
    <div class="charts" ref={box}>
      {width > 0 && main && <Chart key={main.name} curve={main} width={width} height={width < 500 ? 180 : 260} {...common} />}
      <div class="halves">{width > 0 && more.map((curve) => <Chart key={curve.name} curve={curve} width={half} height={130} {...common} />)}</div>
      <MarkLegend timeline={timeline} />
    </div>
  )
}
