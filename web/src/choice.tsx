// The choice of replicas: a button, and below it a list with a search by name.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import type { Part } from './api'
import { useApp } from './app'
import { chosenWith, mostChosen, mostOffered, named, offers, roles, type Offer } from './chosen'
import { Mark } from './mark'
import { kindOf } from './state'

interface Props {
  parts: Part[]
  /** No names stand for all replicas. */
  chosen: string[]
  choose: (names: string[]) => void
}

export function Choice(props: Props) {
  const { t } = useApp()
  const { chosen } = props
  const id = useId()
  const [open, setOpen] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  const button = useRef<HTMLButtonElement>(null)
  useEffect(() => {
    if (!open) return
    const outside = (target: EventTarget | null) => target instanceof Node && !box.current?.contains(target)
    const pressed = (e: PointerEvent) => outside(e.target) && setOpen(false)
    // Without a next element, such as between a press and its click, the focus is not elsewhere yet.
    const left = (e: FocusEvent) => outside(e.relatedTarget) && setOpen(false)
    const element = box.current
    document.addEventListener('pointerdown', pressed)
    element?.addEventListener('focusout', left)
    return () => {
      document.removeEventListener('pointerdown', pressed)
      element?.removeEventListener('focusout', left)
    }
  }, [open])
  const close = (e: KeyboardEvent) => {
    if (e.key !== 'Escape' || !open) return
    setOpen(false)
    button.current?.focus()
  }
  return (
    <div class="choice" ref={box} onKeyDown={close}>
      <button type="button" ref={button} aria-expanded={open} aria-controls={open ? id : undefined} onClick={() => setOpen(!open)}>
        {t.parts}: {chosen.length === 0 ? t.allReplicas : chosen.length < 3 ? chosen.join(', ') : t.chosenReplicas(chosen.length)}
      </button>
      {open && <Panel id={id} {...props} />}
    </div>
  )
}

function Panel({ id, parts, chosen, choose }: Props & { id: string }) {
  const { t } = useApp()
  const [search, setSearch] = useState('')
  const all = offers(parts, chosen)
  const found = named(all, search)
  const full = chosen.length >= mostChosen
  const set = (names: string[], on: boolean) => choose(chosenWith(chosen, names, on))
  return (
    <fieldset id={id}>
      <legend class="hidden">{t.chooseReplicas}</legend>
      <input type="search" aria-label={t.findReplica} placeholder={t.findReplica} value={search} maxLength={253} onInput={(e) => setSearch(e.currentTarget.value)} />
      <div class="chips">
        <button type="button" class="chip" aria-pressed={chosen.length === 0} onClick={() => choose([])}>
          {t.allReplicas}
        </button>
        {roles(all).map(([role, names]) => {
          const on = names.every((name) => chosen.includes(name))
          return (
            <button type="button" class="chip" aria-pressed={on} disabled={full && !on} onClick={() => set(names, !on)}>
              {role} <span class="count">{names.length}</span>
            </button>
          )
        })}
      </div>
      <ul onKeyDown={moveFocus}>
        {found.slice(0, mostOffered).map((one) => (
          <Item key={one.name} one={one} on={chosen.includes(one.name)} full={full} set={set} />
        ))}
      </ul>
      <p class="quiet" role="status">
        {found.length > mostOffered && t.moreReplicas(found.length - mostOffered)} {full && t.mostReplicas(mostChosen)}
      </p>
    </fieldset>
  )
}

function Item({ one, on, full, set }: { one: Offer; on: boolean; full: boolean; set: (names: string[], on: boolean) => void }) {
  const { t } = useApp()
  return (
    <li>
      <label>
        <input type="checkbox" checked={on} disabled={full && !on} onChange={(e) => set([one.name], e.currentTarget.checked)} />
        <Mark kind={kindOf(one.state)} />
        <span>{one.name}</span>
        <span class="quiet">{t.phases[one.state] ?? one.state}</span>
      </label>
    </li>
  )
}

/** moveFocus moves the focus between boxes by the arrow keys. */
function moveFocus(event: KeyboardEvent) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
  if (!step) return
  const boxes = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLInputElement>('input:enabled')]
  const next = boxes[boxes.indexOf(event.target as HTMLInputElement) + step]
  event.preventDefault()
  next?.focus()
}
