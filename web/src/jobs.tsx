// The table of all jobs.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { JobPage, JobRow } from './api'
import { useApp, useMedia, useNow } from './app'
import { Banner } from './banner'
import { Bulk } from './bulk'
import { age } from './format'
import { isTyped } from './keys'
import { Mark, Pill } from './mark'
import { seconds } from './recorded'
import { Command, Problem } from './problem'
import { createLink, jobLink, jobsLink, replace } from './route'
import { SavedFilters } from './saved'
import { useScroll } from './scroll'
import { Skeleton } from './skeleton'
import { Spark } from './spark'
import { isFinished, kindOf, why } from './state'
import { useStream } from './stream'
import { ask, visible } from './window'

/** The heights of a row in px, as in style.css: on a phone the reason is below the name. */
const rowHeight = { screen: 38, phone: 76 }

/** filters returns the part of the query that the server knows. */
function filters(query: URLSearchParams): URLSearchParams {
  const known = new URLSearchParams()
  for (const key of ['namespace', 'phase', 'search', 'sort']) {
    for (const value of query.getAll(key)) if (value) known.append(key, value)
  }
  return known
}

export function JobsView({ query }: { query: URLSearchParams }) {
  const { t } = useApp()
  const filter = filters(query).toString()
  const [box, view] = useScroll<HTMLDivElement>()
  const rows = useRef(new Map<number, JobRow>())
  const count = useRef(0)
  const height = useMedia('(max-width: 760px)') ? rowHeight.phone : rowHeight.screen
  const shown = visible(view.top, view.height, height, count.current)
  const wanted = useSettled(ask(shown), 60)
  const search = `${filter && `${filter}&`}offset=${wanted.offset}&limit=${wanted.limit}`
  const stream = useStream<JobPage>(`api/v1/jobs/stream?${search}`, 'page', `api/v1/jobs?${search}`)
  const page = stream.data
  useEffect(() => {
    rows.current.clear()
    box.current?.scrollTo({ top: 0 })
  }, [filter])
  useMemo(() => {
    if (!page) return
    count.current = page.matching
    page.items.forEach((row, i) => rows.current.set(page.offset + i, row))
  }, [page])
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const step = { j: 1, k: -1 }[event.key]
      if (step && box.current && !isTyped(event)) move(event, box.current, step)
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [])
  const drawn = visible(view.top, view.height, height, count.current)
  const [chosen, setChosen] = useState(new Map<string, JobRow>())
  // Of another filter, others would be meant.
  useEffect(() => setChosen(new Map()), [filter])
  const choose = (all: JobRow[], on: boolean) => {
    const next = new Map(chosen)
    for (const row of all) on ? next.set(row.uid, row) : next.delete(row.uid)
    setChosen(next)
  }
  const isEmpty = page?.synced && count.current === 0
  return (
    <div class="jobs">
      <h1 class="hidden">{t.jobs}</h1>
      <Banner stream={stream} />
      <Filters query={query} page={page} live={stream.state.kind === 'live'} />
      <div class="scroll" ref={box} role="region" tabIndex={0} aria-label={t.jobs} onKeyDown={moveFocus}>
        {!isEmpty && <Table query={query} rows={rows.current} first={drawn.first} end={drawn.end} count={count.current} chosen={chosen} choose={choose} height={height} />}
        {(page ? !page.synced : stream.state.kind === 'connecting') && <Skeleton lines={12} />}
        {isEmpty && <Empty isFiltered={(page?.total ?? 0) > 0} />}
      </div>
      <Bulk jobs={[...chosen.values()]} clear={() => setChosen(new Map())} />
    </div>
  )
}

/** Empty says that there are no jobs, and how one is created. */
function Empty({ isFiltered }: { isFiltered: boolean }) {
  const { t, session } = useApp()
  if (isFiltered) {
    return (
      <Problem kind="missing" title={t.noJobs}>
        <p>
          <a class="button" href="#/jobs">
            {t.clear}
          </a>
        </p>
      </Problem>
    )
  }
  return (
    <Problem kind="waiting" title={t.noJobsAtAll}>
      <p>{t.createFirst}</p>
      <Command text={sample(session?.namespace)} />
      <p class="quiet">
        <a href={createLink()}>{t.orPaste}</a>
      </p>
    </Problem>
  )
}

/** sample returns the command that runs the sample of the documentation. */
function sample(namespace: string | undefined): string {
  return `kubectl di run hello${namespace ? ` -n ${namespace}` : ''} --image busybox --replicas 2 -- sh -c 'echo hello; sleep 60'`
}

/** useSettled returns a value once it has not changed for a while, so that scrolling asks for few pages. */
function useSettled<T>(value: T, milliseconds: number): T {
  const text = JSON.stringify(value)
  const [settled, setSettled] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), milliseconds)
    return () => clearTimeout(timer)
  }, [text, milliseconds])
  return JSON.parse(settled) as T
}

/** moveFocus moves the focus between rows by the arrow keys. */
function moveFocus(event: KeyboardEvent) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
  if (step) move(event, event.currentTarget as HTMLElement, step)
}

function move(event: KeyboardEvent, box: HTMLElement, step: number) {
  const here = document.activeElement?.closest('tr')
  const next = here ? (step > 0 ? here.nextElementSibling : here.previousElementSibling) : box.querySelector('tbody tr[data-row]')
  const link = next?.querySelector('a')
  if (!link) return
  event.preventDefault()
  link.focus()
}

function Filters({ query, page, live }: { query: URLSearchParams; page: JobPage | undefined; live: boolean }) {
  const { t } = useApp()
  const [search, setSearch] = useState(query.get('search') ?? '')
  // The address follows what is typed, later. Only a value that was not typed here is another search.
  const typed = useRef<string[]>([])
  useEffect(() => {
    const now = query.get('search') ?? ''
    const at = typed.current.indexOf(now)
    typed.current = at < 0 ? [] : typed.current.slice(at + 1)
    if (at < 0) setSearch(now)
  }, [query.get('search')])
  const type = (value: string) => {
    setSearch(value)
    typed.current.push(value)
    replace(jobsLink(query, { search: value }))
  }
  const chosen = query.getAll('phase')
  const phases = Object.entries(page?.phases ?? {}).filter(([name, n]) => n > 0 || chosen.includes(name))
  return (
    <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
      <input type="search" aria-label={t.search} placeholder={t.searchHint} value={search} onInput={(e) => type(e.currentTarget.value)} maxLength={200} />
      <select
        aria-label={t.namespace}
        value={query.get('namespace') ?? ''}
        onChange={(e) => replace(jobsLink(query, { namespace: e.currentTarget.value }))}
      >
        <option value="">{t.allNamespaces}</option>
        {[...new Set([...(page?.namespaces ?? []), query.get('namespace') ?? ''])].filter(Boolean).map((name) => (
          <option value={name}>{name}</option>
        ))}
      </select>
      <div class="chips" role="group" aria-label={t.phase}>
        <button type="button" class="chip" aria-pressed={chosen.length === 0} onClick={() => replace(jobsLink(query, { phase: '' }))}>
          {t.allPhases}
        </button>
        {phases.map(([name, n]) => {
          const on = chosen.includes(name)
          const next = on ? chosen.filter((c) => c !== name) : [...chosen, name]
          return (
            <button type="button" class="chip" aria-pressed={on} onClick={() => replace(jobsLink(query, { phase: next }))}>
              <Mark kind={kindOf(name)} />
              {t.phases[name] ?? name} <span class="count">{n}</span>
            </button>
          )
        })}
      </div>
      <SavedFilters query={filters(query)} />
      <span class="total" aria-live="polite">
        {page && t.matching(page.matching, page.total)}
        {live && <span class="livedot"> {t.live}</span>}
      </span>
      <a class="button main" href={createLink()}>
        {t.create}
      </a>
    </form>
  )
}

interface TableProps {
  query: URLSearchParams
  rows: Map<number, JobRow>
  first: number
  end: number
  count: number
  /** The chosen jobs by their UIDs. */
  chosen: Map<string, JobRow>
  choose: (rows: JobRow[], on: boolean) => void
  /** The height of a row in px. */
  height: number
}

function Table({ query, rows, first, end, count, chosen, choose, height }: TableProps) {
  const { t } = useApp()
  const now = useNow()
  const drawn = Array.from({ length: Math.max(0, end - first) }, (_, i) => first + i)
  return (
    <table class="table" aria-rowcount={count + 1}>
      <thead>
        <tr aria-rowindex={1}>
          <th scope="col" class="c-pick">
            <input
              type="checkbox"
              aria-label={t.pickAll(rows.size)}
              title={t.pickAll(rows.size)}
              disabled={rows.size === 0}
              checked={rows.size > 0 && [...rows.values()].every((row) => chosen.has(row.uid))}
              onChange={(e) => choose([...rows.values()], e.currentTarget.checked)}
            />
          </th>
          <Column query={query} by="phase" title={t.phase} class="c-phase" />
          <Column query={query} by="name" title={t.name} class="c-name" />
          <Column query={query} by="namespace" title={t.namespace} class="c-ns" />
          <Column query={query} by="reason" title={t.reason} class="c-why" />
          <Column query={query} by="ready" title={t.ready} class="c-ready" />
          <Column query={query} by="gpus" title={t.gpus} class="c-num c-gpus" />
          <Column query={query} by="restarts" title={t.restarts} class="c-num c-restarts" />
          <Column query={query} by="curve" title={t.curve} class="c-curve" />
          <th scope="col" class="c-queue">
            {t.queueOrGroup}
          </th>
          <th scope="col" class="c-num c-lasted">{t.duration}</th>
          <Column query={query} by="createdAt" title={t.age} class="c-num c-age" flip />
        </tr>
      </thead>
      <tbody>
        {first > 0 && <Spacer height={first * height} />}
        {drawn.map((i) => (
          <Row key={i} index={i} row={rows.get(i)} now={now} chosen={chosen} choose={choose} />
        ))}
        {end < count && <Spacer height={(count - end) * height} />}
      </tbody>
    </table>
  )
}

function Spacer({ height }: { height: number }) {
  return (
    <tr class="spacer" aria-hidden="true">
      <td style={{ height: `${height}px` }} />
    </tr>
  )
}

interface ColumnProps {
  query: URLSearchParams
  by: string
  title: string
  class: string
  /** The youngest age is the latest time. */
  flip?: boolean
}

function Column({ query, by, title, class: style, flip }: ColumnProps) {
  const { t } = useApp()
  const sort = query.get('sort') ?? '-createdAt'
  const order = sort === by ? 'ascending' : sort === `-${by}` ? 'descending' : undefined
  const next = order === 'ascending' ? `-${by}` : order === 'descending' ? by : ['ready', 'gpus', 'restarts', 'createdAt', 'curve'].includes(by) ? `-${by}` : by
  const up = (order === 'ascending') !== Boolean(flip)
  return (
    <th scope="col" class={style} aria-sort={order && (up ? 'ascending' : 'descending')}>
      <button type="button" title={t.sortBy(title)} onClick={() => replace(jobsLink(query, { sort: next }))}>
        {title}
        {order && <span aria-hidden="true">{up ? ' ↑' : ' ↓'}</span>}
      </button>
    </th>
  )
}

interface RowProps extends Pick<TableProps, 'chosen' | 'choose'> {
  index: number
  row: JobRow | undefined
  now: number
}

function Row({ index, row, now, chosen, choose }: RowProps) {
  const { t } = useApp()
  if (!row) {
    return (
      <tr aria-rowindex={index + 2} class="loading">
        <td colSpan={3}>
          <span class="bone" />
        </td>
      </tr>
    )
  }
  // The coordinator decides how many replicas of a role are wanted, and the row does not know it.
  const roles = row.roles.map((r) => (r.wanted ? `${r.role} ${r.running}/${r.wanted}` : `${r.role} ${r.running}`)).join(', ')
  return (
    <tr aria-rowindex={index + 2} data-row={index} class={chosen.has(row.uid) ? 'is-chosen' : ''}>
      <td class="c-pick">
        <input type="checkbox" aria-label={t.pickJob(row.name)} checked={chosen.has(row.uid)} onChange={(e) => choose([row], e.currentTarget.checked)} />
      </td>
      <td class="c-phase">
        <Pill state={row.phase} />
      </td>
      <td class="c-name">
        <a href={jobLink(row.namespace, row.name)} title={row.name}>
          {row.name}
        </a>
      </td>
      <td class="c-ns" title={row.namespace}>
        {row.namespace}
      </td>
      <td class="c-why" title={row.message ?? row.reason}>
        <span class="two">
          <b>{why(row, t)}</b> {row.message && <span class="quiet">{row.message}</span>}
        </span>
      </td>
      <td class="c-ready" title={roles}>
        {!isFinished(row) && <b>{`${row.ready}/${row.wanted}`}</b>}
      </td>
      <td class="c-num c-gpus" title={row.gpuType}>
        {row.gpus || ''}
        {row.gpuType && <span class="second">{row.gpuType.replaceAll('NVIDIA-', '')}</span>}
      </td>
      <td class="c-num c-restarts">{row.restarts + row.reschedules || ''}</td>
      <td class="c-curve">
        <Spark curve={row.curve} />
      </td>
      <td class="c-queue" title={[row.queue, row.group, row.creator].filter(Boolean).join(', ')}>
        {row.queue}
        <span class="second">{[row.group, row.creator].filter(Boolean).join(' · ')}</span>
      </td>
      <td class="c-num c-lasted">{row.completedAt ? seconds((Date.parse(row.completedAt) - Date.parse(row.createdAt)) / 1000) : ''}</td>
      <td class="c-num c-age" title={row.createdAt}>
        {age(row.createdAt, now)}
      </td>
    </tr>
  )
}
