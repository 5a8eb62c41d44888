// Small parts that several views show.
import type { ComponentChildren } from 'preact'
import type { Curve } from './api'
import { useApp } from './app'
import { clock, short } from './format'
import { kindOf, type Kind } from './state'
import type { Stream } from './stream'

const shapes: Record<Kind, ComponentChildren> = {
  running: <circle cx="7" cy="7" r="5" />,
  starting: [<circle cx="7" cy="7" r="4.500" class="hollow" />, <path d="M7 2.500a4.500 4.500 0 0 1 0 9z" />],
  waiting: <circle cx="7" cy="7" r="4.500" class="hollow" />,
  restarting: <path d="M7 1.500 13 12.500H1z" />,
  done: <path d="M2 2h10v10H2z" />,
  failed: <path d="M3.300 1.200 7 4.900l3.700-3.700 2.100 2.100L9.100 7l3.700 3.700-2.100 2.100L7 9.100l-3.700 3.700-2.100-2.100L4.900 7 1.200 3.300z" />,
  leaving: <path d="M2 5.500h10v3H2z" />,
  missing: <circle cx="7" cy="7" r="4.500" class="hollow dashed" />,
}

/** Mark is the shape of a state. Text beside it says the same. */
export function Mark({ kind }: { kind: Kind }) {
  return (
    <svg class={`mark k-${kind}`} width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
      {shapes[kind]}
    </svg>
  )
}

/** Shape draws the same at a place in another picture. */
export function Shape({ kind, x, y }: { kind: Kind; x: number; y: number }) {
  return (
    <g class={`mark k-${kind}`} transform={`translate(${x} ${y})`}>
      {shapes[kind]}
    </g>
  )
}

export function StateText({ state, ready = true }: { state: string; ready?: boolean }) {
  const { t } = useApp()
  return (
    <span class="state">
      <Mark kind={kindOf(state, ready)} />
      {t.phases[state] ?? state}
    </span>
  )
}

/** Banner says that what is shown is not current. */
export function Banner({ stream }: { stream: Stream<unknown> }) {
  const { t } = useApp()
  const { state, at } = stream
  return (
    <div role="status" class="status">
      {state.kind === 'lost' && (
        <p class="banner warning">
          <b>{at ? t.lost(clock(at)) : t.lostFirst}</b> {state.message}
        </p>
      )}
      {state.kind === 'refused' && (
        <p class="banner warning">
          <b>{state.status === 404 ? t.notFound : state.status === 401 ? t.signIn : t.refused}</b> {state.message}
        </p>
      )}
      {state.kind === 'gone' && <p class="banner">{t.gone(clock(at))}</p>}
    </div>
  )
}

export function Notes({ notes }: { notes: string[] }) {
  return notes.map((note) => <p class="note">{note}</p>)
}

export function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  )
}

/** Spark draws a curve of one line's height. */
export function Spark({ curve }: { curve: Curve | undefined }) {
  const { t } = useApp()
  const points = curve?.points ?? []
  const last = points.at(-1)
  if (!curve || !last) return null
  const xs = points.map((p) => p[0] ?? 0)
  const ys = points.map((p) => p[1] ?? 0)
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)]
  const place = (p: number[]) =>
    `${(((p[0] ?? 0) - left) / (right - left || 1)) * 76 + 2},${18 - (((p[1] ?? 0) - low) / (high - low || 1)) * 14}`
  const unit = curve.unit ? ` ${curve.unit}` : ''
  return (
    <span class="spark">
      <svg width="80" height="22" viewBox="0 0 80 22" role="img" aria-label={t.curveText(curve.name, short(last[1] ?? 0), short(low), short(high))}>
        <polyline points={points.map(place).join(' ')} />
      </svg>
      <span title={curve.name + unit}>{short(last[1] ?? 0)}</span>
    </span>
  )
}
