// The cards that a view consists of, and the notes above them.
import type { ComponentChildren } from 'preact'
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
