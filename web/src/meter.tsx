// Bars of what is requested of what is there.
import type { Room } from './api'
import { useApp } from './app'
import { bytes, cores } from './format'

interface BarProps {
  used: number
  total: number
  label: string
}

/** Bar is a share as a line. More than the whole is marked. */
export function Bar({ used, total, label }: BarProps) {
  const share = total > 0 ? used / total : 0
  return (
    <span class={`meterbar ${share > 1 ? 'over' : ''}`} role="img" aria-label={label}>
      <span style={{ width: `${Math.min(100, share * 100)}%` }} />
    </span>
  )
}

/** kinds are the resources of nodes, with how their amounts are written. */
export const kinds = {
  gpus: { of: ({ gpus }: Room) => ({ used: gpus.used, total: gpus.total }), text: String },
  cpu: { of: ({ cpu }: Room) => ({ used: cpu.requested, total: cpu.allocatable }), text: cores },
  memory: { of: ({ memory }: Room) => ({ used: memory.requested, total: memory.allocatable }), text: bytes },
}
export type Kind = keyof typeof kinds

/** Meter says how much of a resource is requested and free, and draws it. */
export function Meter({ room, kind }: { room: Room; kind: Kind }) {
  const { t } = useApp()
  const { of, text } = kinds[kind]
  const { used, total } = of(room)
  if (total === 0) return null
  return (
    <div class="meter">
      <dt>{t.resource[kind]}</dt>
      <dd>
        <b>{text(used)}</b> {t.ofTotal(text(total), '')}
        <span class="quiet right">{t.free(text(Math.max(0, total - used)))}</span>
        <Bar used={used} total={total} label={t.requestedOf(t.resource[kind], text(used), text(total))} />
      </dd>
    </div>
  )
}

/** Cell is the same in a table. A resource that is not there has an empty cell. */
export function Cell({ room, kind, of: name }: { room: Room; kind: Kind; of: string }) {
  const { t } = useApp()
  const { of, text } = kinds[kind]
  const { used, total } = of(room)
  return (
    <td class="c-bar" data-title={t.resource[kind]}>
      {total > 0 && (
        <>
          <span class="amount">
            <b>{text(used)}</b> <span class="quiet">/ {text(total)}</span>
          </span>
          <Bar used={used} total={total} label={`${name}: ${t.requestedOf(t.resource[kind], text(used), text(total))}`} />
        </>
      )}
    </td>
  )
}
