// The shape of a state, with and without its text.
import type { ComponentChildren } from 'preact'
import { useApp } from './app'
import { kindOf, type Kind } from './state'

const shapes: Record<Kind, ComponentChildren> = {
  running: <circle cx="7" cy="7" r="5" />,
  starting: [<circle cx="7" cy="7" r="4.500" class="hollow" />, <path d="M7 2.500a4.500 4.500 0 0 1 0 9z" />],
  waiting: <circle cx="7" cy="7" r="4.500" class="hollow" />,
  restarting: <path d="M7 1.500 13 12.500H1z" />,
  done: <path d="M2 2h10v10H2z" />,
  resized: <path d="M7 1.500 12.500 7 7 12.500 1.500 7z" />,
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

/** Pill is the state of a job. */
export function Pill({ state }: { state: string }) {
  const { t } = useApp()
  const kind = kindOf(state)
  return (
    <span class={`state pill k-${kind}`}>
      <Mark kind={kind} />
      {t.phases[state] ?? state}
    </span>
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
