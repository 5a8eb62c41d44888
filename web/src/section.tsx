// The cards that a view consists of, and the notes above them.
import type { ComponentChildren } from 'preact'
import type { JobDetail } from './api'
import { useApp } from './app'
import { Command } from './problem'

/** Notes says what is left out, with the commands that give the rights for it. */
export function Notes({ notes, grants = [] }: { notes: string[]; grants?: string[] | undefined }) {
  const { t } = useApp()
  if (notes.length === 0) return null
  return (
    <div class="note">
      {notes.map((note) => (
        <p>{t.say(note)}</p>
      ))}
      {grants.length > 0 && (
        <details>
          <summary>{t.grants}</summary>
          <Command text={grants.join('\n')} />
        </details>
      )}
    </div>
  )
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
