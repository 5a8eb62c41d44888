// Everything that the page can show or do, found by typing: Ctrl-K.
import { useEffect, useRef, useState } from 'preact/hooks'
import { useAnswer } from './answer'
import type { JobPage } from './api'
import { useApp, type App } from './app'
import { createLink, jobLink, jobsLink } from './route'
import { savedFilters } from './saved'

interface Choice {
  /** What kind of thing it is. */
  kind: string
  text: string
  run: () => void
}

interface Settings {
  setTheme: (theme: string) => void
  setLanguage: (language: string) => void
}

const go = (link: string) => () => void (location.hash = link)

/** commands returns what does not depend on jobs. */
function commands({ t, session }: App, { setTheme, setLanguage }: Settings): Choice[] {
  const view = (text: string, link: string): Choice => ({ kind: t.view, text, run: go(link) })
  return [
    view(t.jobs, '#/jobs'),
    view(t.cluster, '#/cluster'),
    ...(session?.history.reachable ? [view(t.history, '#/history'), view(t.sums, '#/history/sums?by=namespace')] : []),
    view(t.create, createLink()),
    ...savedFilters().map(({ name, query }) => ({ kind: t.filter, text: name, run: go(jobsLink(new URLSearchParams(query))) })),
    ...(['light', 'dark', 'auto'] as const).map((theme) => ({ kind: t.theme, text: { light: t.themeLight, dark: t.themeDark, auto: t.themeAuto }[theme], run: () => setTheme(theme) })),
    { kind: t.language, text: t.otherLanguage, run: () => setLanguage(t.otherLanguageCode) },
  ]
}

/** Palette opens by Ctrl-K. */
export function Palette(settings: Settings) {
  const [isOpen, setOpen] = useState(false)
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return
      event.preventDefault()
      if (!document.querySelector('dialog[open]')) setOpen(true)
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [])
  return isOpen ? <Open {...settings} close={() => setOpen(false)} /> : null
}

function Open({ close, ...settings }: Settings & { close: () => void }) {
  const app = useApp()
  const { t } = app
  const dialog = useRef<HTMLDialogElement>(null)
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  useEffect(() => dialog.current?.showModal(), [])
  const search = new URLSearchParams({ search: text.slice(0, 200), limit: '8' })
  const { data } = useAnswer<JobPage>(`api/v1/jobs?${search}`)
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const matching = commands(app, settings).filter((one) => words.every((word) => `${one.kind} ${one.text}`.toLowerCase().includes(word)))
  const jobs = (data?.items ?? []).map((row) => ({ kind: t.job, text: `${row.namespace}/${row.name}`, run: go(jobLink(row.namespace, row.name)) }))
  const all = [...(words.length ? [...jobs, ...matching] : [...matching, ...jobs])]
  const chosen = Math.min(at, all.length - 1)
  const pick = (choice: Choice | undefined) => {
    dialog.current?.close()
    choice?.run()
  }
  const pressed = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step) setAt((chosen + step + all.length) % Math.max(1, all.length))
    else if (event.key === 'Enter') pick(all[chosen])
    else return
    event.preventDefault()
  }
  return (
    <dialog ref={dialog} class="palette" aria-label={t.palette} onClose={close} onClick={(e) => e.target === dialog.current && dialog.current?.close()}>
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={all.length ? `palette-${chosen}` : undefined}
        aria-label={t.palette}
        placeholder={t.paletteHint}
        autocomplete="off"
        maxLength={200}
        value={text}
        onInput={(e) => {
          setText(e.currentTarget.value)
          setAt(0)
        }}
        onKeyDown={pressed}
      />
      <ul role="listbox" id="palette-list" aria-label={t.palette}>
        {all.map((one, i) => (
          <li role="option" id={`palette-${i}`} aria-selected={i === chosen} onClick={() => pick(one)} onMouseMove={() => setAt(i)}>
            <span class="kind">{one.kind}</span> {one.text}
          </li>
        ))}
      </ul>
      {all.length === 0 && <p class="empty">{t.paletteNone}</p>}
    </dialog>
  )
}
