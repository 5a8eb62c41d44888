// The table of the replicas of a job.
import { useState } from 'preact/hooks'
import type { JobDetail, Part } from './api'
import { useApp, useNow } from './app'
import { age } from './format'
import { StateText } from './mark'
import { jobLink, nodeLink } from './route'
import { kindOf, weight } from './state'

export function Parts({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const [all, setAll] = useState(false)
  const sorted = [...detail.parts].sort((a, b) => weight(kindOf(a.state, a.ready)) - weight(kindOf(b.state, b.ready)))
  const shown = all ? sorted : sorted.slice(0, 20)
  const columns = partColumns.filter(({ of }) => sorted.some((part) => of(part)))
  return (
    <div class="wide" role="group" tabIndex={0} aria-label={t.parts}>
      <table class="plain stacked">
        <thead>
          <tr>
            {[t.state, t.name, t.role].map((title) => (
              <th scope="col">{title}</th>
            ))}
            {columns.map(({ title, class: style }) => (
              <th scope="col" class={style}>
                {t[title]}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((part) => (
            <PartRow key={part.name} part={part} detail={detail} columns={columns} now={now} />
          ))}
        </tbody>
      </table>
      {!all && sorted.length > shown.length && (
        <button type="button" onClick={() => setAll(true)}>
          {t.showAll(sorted.length)}
        </button>
      )}
    </div>
  )
}

interface PartColumn {
  title: 'rank' | 'node' | 'gpus' | 'restarts' | 'exitCode' | 'age' | 'message'
  class: string
  /** The text of a part; empty if it has none. */
  of: (part: Part, now?: number) => string
}

// A column without any text is left out.
const partColumns: PartColumn[] = [
  { title: 'rank', class: 'num', of: ({ rank }) => String(rank ?? '') },
  { title: 'node', class: '', of: ({ node }) => node ?? '' },
  { title: 'gpus', class: 'num', of: ({ gpus }) => String(gpus || '') },
  { title: 'restarts', class: 'num', of: ({ restarts }) => String(restarts || '') },
  { title: 'exitCode', class: 'num', of: ({ exitCode }) => String(exitCode ?? '') },
  { title: 'age', class: 'num', of: ({ createdAt }, now = 0) => age(createdAt, now) },
  { title: 'message', class: 'long', of: ({ message }) => message ?? '' },
]

function PartRow({ part, detail, columns, now }: { part: Part; detail: JobDetail; columns: PartColumn[]; now: number }) {
  const { t } = useApp()
  return (
    <tr>
      <td>
        <StateText state={part.state} ready={part.ready} />
      </td>
      <td>
        {part.pod ? <a href={jobLink(detail.job.namespace, detail.job.name, 'logs', { replica: part.name })}>{part.name}</a> : part.name}
      </td>
      <td data-title={t.role}>{part.role}</td>
      {columns.map(({ title, class: style, of }) => (
        <td class={style} data-title={t[title]}>
          {title === 'node' && part.node ? <a href={nodeLink(part.node)}>{part.node}</a> : of(part, now)}
        </td>
      ))}
    </tr>
  )
}
