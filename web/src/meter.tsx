// Bars of what is requested and used of what is there.
import type { Room } from './api'
import { useApp, type App } from './app'
import { bytes, cores } from './format'

interface BarProps {
  requested: number
  total: number
  /** What is in use, where that is measured. */
  used?: number | undefined
  label: string
}

/** Bar is a share as a line. More than the whole is marked. What is in use is a thinner one on it. */
export function Bar({ requested, total, used, label }: BarProps) {
  const width = (amount: number) => `${total > 0 ? Math.min(100, (amount / total) * 100) : 0}%`
  return (
    <span class={`meterbar ${requested > total ? 'over' : ''}`} role="img" aria-label={label} title={label}>
      <span style={{ width: width(requested) }} />
      {used !== undefined && <span class="in-use" style={{ width: width(used) }} />}
    </span>
  )
}

/** kinds are the resources of nodes, with how their amounts are written. */
export const kinds = {
  gpus: { of: ({ gpus }: Room): Share => ({ requested: gpus.used, total: gpus.total }), text: String },
  cpu: { of: ({ cpu }: Room): Share => ({ requested: cpu.requested, total: cpu.allocatable, used: cpu.used }), text: cores },
  memory: { of: ({ memory }: Room): Share => ({ requested: memory.requested, total: memory.allocatable, used: memory.used }), text: bytes },
}
export type Kind = keyof typeof kinds
type Share = Omit<BarProps, 'label'>

/** said is what a bar shows, in words. */
function said(t: App['t'], name: string, kind: Kind, { requested, total, used }: Share): string {
  const { text } = kinds[kind]
  const words = t.requestedOf(name, text(requested), text(total))
  return used === undefined ? words : `${words}, ${t.inUse(text(used))}`
}

/** Meter says how much of a resource is requested and free, and draws it. */
export function Meter({ room, kind }: { room: Room; kind: Kind }) {
  const { t } = useApp()
  const { of, text } = kinds[kind]
  const share = of(room)
  const { requested, total, used } = share
  if (total === 0) return null
  return (
    <div class="meter">
      <dt>{t.resource[kind]}</dt>
      <dd>
        <b>{text(requested)}</b> {t.ofTotal(text(total), '')}
        {used !== undefined && <span class="quiet"> · {t.inUse(text(used))}</span>}
        <span class="quiet right">{t.free(text(Math.max(0, total - requested)))}</span>
        <Bar {...share} label={said(t, t.resource[kind], kind, share)} />
      </dd>
    </div>
  )
}

/** Cell is the same in a table. A resource that is not there has an empty cell. */
export function Cell({ room, kind, of: name }: { room: Room; kind: Kind; of: string }) {
  const { t } = useApp()
  const { of, text } = kinds[kind]
  const share = of(room)
  const { requested, total } = share
  return (
    <td class="c-bar" data-title={t.resource[kind]}>
      {total > 0 && (
        <>
          <span class="amount">
            <b>{text(requested)}</b> <span class="quiet">/ {text(total)}</span>
          </span>
          <Bar {...share} label={`${name}: ${said(t, t.resource[kind], kind, share)}`} />
        </>
      )}
    </td>
  )
}
