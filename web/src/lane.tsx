// The phases of a job, and what happened to it, on the time axis of its curves.
import type { Moment } from './api'
import { useApp } from './app'
import { position, type Span } from './axis'
import { clock } from './format'
import { Shape } from './mark'
import { clustered } from './glance'
import { kindOf, type Kind } from './state'

/** left is the space of the axis of values. */
export const left = 56

/** marks are the shapes of what happens, and the kinds whose colours they have. */
export const marks: Record<Moment['kind'], Kind> = {
  phase: 'waiting',
  restart: 'restarting',
  resize: 'resized',
  reschedule: 'restarting',
  failure: 'failed',
  event: 'waiting',
  plan: 'starting',
}

/** isMark reports whether charts have a line for a moment. */
export function isMark(moment: Moment): boolean {
  return ['restart', 'resize', 'reschedule', 'failure'].includes(moment.kind)
}

export function Lane({ timeline, span, width, right }: { timeline: Moment[]; span: Span; width: number; right: number }) {
  const { t } = useApp()
  const at = (time: string) => position(Date.parse(time), span, left, width - right)
  const inside = (time: string) => Date.parse(time) >= span.from && Date.parse(time) <= span.to
  const phases = timeline.filter((m) => m.kind === 'phase' && (!m.end || Date.parse(m.end) >= span.from) && Date.parse(m.at) <= span.to)
  const others = timeline.filter((m) => m.kind !== 'phase' && inside(m.at))
  return (
    <svg class="lane" width={width} height="52" role="img" aria-label={t.lane}>
      {phases.map((m) => {
        const x = at(m.at)
        const end = m.end ? at(m.end) : width - right
        const name = m.title ?? m.text
        return (
          <g>
            <title>{`${clock(m.at)} ${t.say(m.text)}`}</title>
            <rect class={`phase k-${kindOf(name)}`} x={x} y="2" width={Math.max(3, end - x - 1)} height="20" rx="3" />
            {end - x > name.length * 8 + 10 && (
              <text x={x + 6} y="16">
                {t.phases[name] ?? name}
              </text>
            )}
          </g>
        )
      })}
      <line x1={left} x2={width - right} y1="38" y2="38" class="axis" />
      {clustered(others, (m) => at(m.at), 15).map(({ moments, x }) => {
        const worst = moments.find((m) => m.kind === 'failure') ?? moments.find(isMark) ?? moments.find((m) => m.warning) ?? moments[0]
        if (!worst) return null
        return (
          <g>
            <title>{moments.slice(0, 12).map((m) => `${clock(m.at)} ${m.title ?? ''} ${t.say(m.text).split('\n')[0]}`).join('\n')}</title>
            <Shape kind={worst.warning && worst.kind === 'event' ? 'failed' : marks[worst.kind]} x={x - 7} y={31} />
            {moments.length > 1 && (
              <text class="many" x={x + 8} y="50">
                {moments.length}
              </text>
            )}
          </g>
        )
      })}
    </svg>
  )
}

/** MarkLegend names the lines that charts have. */
export function MarkLegend({ timeline }: { timeline: Moment[] }) {
  const { t } = useApp()
  const kinds = [...new Set(timeline.filter(isMark).map((m) => m.kind))]
  if (kinds.length === 0) return null
  return (
    <p class="marklegend">
      {kinds.map((kind) => (
        <span class={`legend m-${kind}`}>
          <svg width="14" height="14" aria-hidden="true">
            <path d="M7 14V5" class="dash" />
            <path d="M3 0h8L7 5z" />
          </svg>
          {t.kinds[kind]}
        </span>
      ))}
    </p>
  )
}
