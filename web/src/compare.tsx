// Other jobs whose curves are drawn below those of a job, from the start of each.
import { useEffect, useId, useState } from 'preact/hooks'
import { get, jobPath, type JobDetail, type JobPage, type JobRow } from './api'
import { useApp } from './app'
import type { Other } from './chart'
import { mostOthers } from './recorded'
import { jobLink, replace } from './route'
import { shifted } from './smooth'

/** How often the other jobs are read again, in milliseconds. */
const again = 15_000

/** useOthers returns the curves of other jobs, each named NAMESPACE/NAME, and those that cannot be read. */
export function useOthers(job: JobRow, names: string[]): { others: Other[]; missing: string[] } {
  const [read, setRead] = useState(new Map<string, JobDetail | undefined>())
  const key = names.join('\n')
  useEffect(() => {
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const ask = async () => {
      const answers = await Promise.all(names.map((name) => get<JobDetail>(jobPath(...split(name)), abort.signal).catch(() => undefined)))
      if (abort.signal.aborted) return
      setRead(new Map(names.map((name, i) => [name, answers[i]])))
      timer = setTimeout(() => void ask(), again)
    }
    if (names.length > 0) void ask()
    return () => {
      abort.abort()
      clearTimeout(timer)
    }
  }, [key])
  const others = names.flatMap((name, i) => {
    const detail = read.get(name)
    const by = detail ? Date.parse(job.createdAt) - Date.parse(detail.job.createdAt) : 0
    // Colour 0 is that of the job itself.
    return detail?.curves.map((curve) => ({ job: split(name)[1], curve: curve.x === 'replicas' ? curve : shifted(curve, by), place: i + 1 })) ?? []
  })
  return { others, missing: names.filter((name) => read.has(name) && !read.get(name)) }
}

function split(name: string): [namespace: string, name: string] {
  const [namespace = '', ...rest] = name.split('/')
  return [namespace, rest.join('/')]
}

/** named returns the jobs that a link compares with, up to the most. */
export function named(query: URLSearchParams): string[] {
  return [...new Set(query.getAll('with'))].filter((name) => /^[^/]+\/[^/]+$/.test(name)).slice(0, mostOthers)
}

/** Compare is the choice of other jobs. */
export function Compare({ job, names, missing }: { job: JobRow; names: string[]; missing: string[] }) {
  const { t } = useApp()
  const id = useId()
  const [text, setText] = useState('')
  const [found, setFound] = useState<string[]>([])
  useEffect(() => {
    const abort = new AbortController()
    // A search finds names; that of a namespace is before the slash.
    const search = new URLSearchParams({ search: text.slice(text.indexOf('/') + 1), limit: '20', sort: '-createdAt' })
    const timer = setTimeout(() => {
      get<JobPage>(`api/v1/jobs?${search}`, abort.signal).then(
        (page) => setFound(page.items.map((row) => `${row.namespace}/${row.name}`)),
        () => undefined,
      )
    }, 150)
    return () => {
      clearTimeout(timer)
      abort.abort()
    }
  }, [text])
  const set = (next: string[]) => replace(jobLink(job.namespace, job.name, 'timeline', { with: next }))
  const offered = found.filter((name) => !names.includes(name) && name !== `${job.namespace}/${job.name}`)
  const add = (name: string) => {
    set([...names, name])
    setText('')
  }
  // A choice of the list arrives as a text.
  const type = (value: string) => (offered.includes(value) ? add(value) : setText(value))
  const enter = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || !text.trim()) return
    event.preventDefault()
    const name = text.includes('/') ? text.trim() : `${job.namespace}/${text.trim()}`
    if (offered.includes(name)) add(name)
  }
  return (
    <span class="compare">
      {names.map((name, i) => (
        <button type="button" class="chip" aria-label={t.compareWithout(name)} title={missing.includes(name) ? t.noSuchJob(...[...split(name)].reverse() as [string, string]) : t.compareWithout(name)} onClick={() => set(names.filter((one) => one !== name))}>
          <svg width="16" height="8" class="swatch" aria-hidden="true">
            <path class={`l-${i + 1}`} d="M0 4H16" />
          </svg>
          {split(name)[1]} ×
        </button>
      ))}
      {names.length < mostOthers && (
        <>
          <input list={id} aria-label={t.compareWith} placeholder={t.compareWith} maxLength={320} value={text} onInput={(e) => type(e.currentTarget.value)} onKeyDown={enter} />
          <datalist id={id}>
            {offered.map((name) => (
              <option value={name} />
            ))}
          </datalist>
        </>
      )}
    </span>
  )
}
