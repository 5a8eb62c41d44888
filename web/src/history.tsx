// The list of recorded jobs, also of those that are deleted.
import type { JSX } from 'preact'
import type { HistoryPage, HistoryRow } from './api'
import { useAnswer } from './answer'
import { useApp, useNow } from './app'
import { age } from './format'
import { Pill } from './mark'
import { days, keyOf, lines, mostCompared, toggled, took } from './recorded'
import { historyLink, recordedLink, replace } from './route'
import { Skeleton } from './skeleton'

const names = ['namespace', 'phase', 'group', 'user', 'reason', 'text', 'since', 'from'] as const
const phases = ['Pending', 'Starting', 'Running', 'Restarting', 'Rescheduling', 'Suspended', 'Succeeded', 'Failed']

/** HistoryOff says how to switch the history on. It is nothing while the history can be read. */
export function HistoryOff() {
  const { t, session } = useApp()
  if (!session || session.history.reachable) return null
  return <p class="banner">{t.say(session.history.why ?? '')}</p>
}

export function HistoryView({ query }: { query: URLSearchParams }) {
  const { t, session } = useApp()
  const now = useNow(30_000)
  const search = new URLSearchParams(names.flatMap((name) => query.getAll(name).slice(0, 1).map((value) => [name, value]))).toString()
  const { data, error } = useAnswer<HistoryPage>(session?.history.reachable ? `api/v1/history/jobs?${search}` : undefined)
  const chosen = query.getAll('job').slice(0, mostCompared)
  return (
    <div class="page">
      <h1>{t.history}</h1>
      <HistoryOff />
      {session?.history.reachable && (
        <>
          <Filters query={query} />
          <p class="filters">
            {chosen.length < 2 ? (
              <span class="quiet">{t.compareHint(mostCompared)}</span>
            ) : (
              <a href={historyLink(new URLSearchParams(), { job: chosen }, 'compare')}>{t.compare(chosen.length)}</a>
            )}{' '}
            <a href={historyLink(new URLSearchParams(), { by: 'namespace', namespace: query.get('namespace') ?? '' }, 'sums')}>{t.sums}</a>
          </p>
          {error && (
            <p class="banner warning lined" role="alert">
              {error}
            </p>
          )}
          {!data && !error && <Skeleton />}
          {data && data.items.length === 0 && <p class="empty">{data.next ? t.examinedMore : t.noRecorded}</p>}
          {data && data.items.length > 0 && <Table rows={data.items} query={query} chosen={chosen} now={now} />}
          <p class="filters">
            {query.get('from') && <a href={historyLink(query, { from: '' })}>{t.newest}</a>}
            {data?.next && <a href={older(query, data.next)}>{t.older}</a>}
          </p>
        </>
      )}
    </div>
  )
}

function older(query: URLSearchParams, next: string): string {
  const from = new URLSearchParams(query)
  from.set('from', next)
  return historyLink(from)
}

function Filters({ query }: { query: URLSearchParams }) {
  const { t } = useApp()
  const set = (name: string) => (e: JSX.TargetedEvent<HTMLInputElement | HTMLSelectElement>) => replace(historyLink(query, { [name]: e.currentTarget.value.trim() }))
  const input = (name: string, label: string, most: number) => (
    <input type="search" aria-label={label} placeholder={label} value={query.get(name) ?? ''} maxLength={most} onChange={set(name)} />
  )
  return (
    <form class="filters past" role="search" onSubmit={(e) => e.preventDefault()}>
      {input('text', t.historyText, 200)}
      {input('namespace', t.namespace, 63)}
      <select aria-label={t.phase} value={query.get('phase') ?? ''} onChange={set('phase')}>
        <option value="">{`${t.phase}: ${t.allPhases}`}</option>
        {phases.map((phase) => (
          <option value={phase}>{t.phases[phase]}</option>
        ))}
      </select>
      <select aria-label={t.range} value={query.get('since') ?? ''} onChange={set('since')}>
        <option value="">{t.anyTime}</option>
        {days.map((one) => (
          <option value={String(one)}>{t.lastDays(one)}</option>
        ))}
      </select>
      {input('group', t.group, 200)}
      {input('user', t.createdBy, 200)}
      {input('reason', t.endedFor, 200)}
    </form>
  )
}

function Table({ rows, query, chosen, now }: { rows: HistoryRow[]; query: URLSearchParams; chosen: string[]; now: number }) {
  const { t } = useApp()
  return (
    <div class="wide card" role="group" tabIndex={0} aria-label={t.history}>
      <table class="plain recorded">
        <thead>
          <tr>
            <td />
            <th scope="col">{t.phase}</th>
            <th scope="col">{t.name}</th>
            <th scope="col" class="h-side">
              {t.namespace}
            </th>
            <th scope="col">{t.cause}</th>
            <th scope="col">{t.duration}</th>
            <th scope="col">{t.ended}</th>
            <th scope="col" class="h-side">
              {t.restarts}
            </th>
            <th scope="col" class="h-side">
              {t.group}
            </th>
            <th scope="col" class="h-side">
              {t.createdBy}
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={row.uid} row={row} query={query} chosen={chosen} now={now} />
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Row({ row, query, chosen, now }: { row: HistoryRow; query: URLSearchParams; chosen: string[]; now: number }) {
  const { t } = useApp()
  const key = keyOf(row)
  const on = chosen.includes(key)
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={t.chooseJob(row.name)}
          checked={on}
          disabled={!on && chosen.length >= mostCompared}
          onChange={() => replace(historyLink(query, { job: toggled(chosen, key) }))}
        />
      </td>
      <td>
        <Pill state={row.phase} />
      </td>
      <td>
        <a href={recordedLink(row)}>{row.name}</a>
      </td>
      <td class="h-side">{row.namespace}</td>
      <td class="long" title={row.message}>
        {row.reason && <b>{row.reason} </b>}
        {lines(row.message ?? '')[0].slice(0, 200)}
      </td>
      <td class="num">{took(row, now)}</td>
      <td class="num" title={row.endedAt}>
        {row.endedAt && t.ago(age(row.endedAt, now))}
      </td>
      <td class="num h-side">{row.restarts || ''}</td>
      <td class="h-side">{row.group}</td>
      <td class="h-side">{row.user}</td>
    </tr>
  )
}
