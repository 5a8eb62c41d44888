// The cards that a view consists of, and the notes above them.
import type { ComponentChildren } from 'preact'
import type { JobDetail } from './api'
import { useApp } from './app'

export function Notes({ notes }: { notes: string[] }) {
  const { t } = useApp()
  return notes.map((note) => <p class="note">{t.say(note)}</p>)
}

export function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  )
}

/** Stat is a number with its title above it. */
export function Stat({ title, wide, children }: { title: string; wide?: boolean; children: ComponentChildren }) {
  return (
    <div class={wide ? 'stat wide-stat' : 'stat'}>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </div>
  )
}

/** FactList shows facts below the names of their parts. */
export function FactList({ facts }: { facts: JobDetail['facts'] }) {
  const { t } = useApp()
  const parts = [...new Set(facts.map((f) => f.part))]
  return (
    <>
      {parts.map((part) => (
        <>
          <h3>{t.say(part)}</h3>
          <dl>
            {facts
              .filter((f) => f.part === part)
              .map((f) => (
                <>
                  <dt>{t.say(f.title)}</dt>
                  <dd>{t.say(f.text)}</dd>
                </>
              ))}
          </dl>
        </>
      ))}
    </>
  )
}
