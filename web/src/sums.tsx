// What recorded jobs took together: by namespace, group, queue, user, cause or day.
import type { HistorySum, HistorySums } from './api'
import { useAnswer } from './answer'
import { useApp } from './app'
import { HistoryOff } from './history'
import { days } from './recorded'
import { historyLink, replace } from './route'
import { Skeleton } from './skeleton'

const kinds = ['namespace', 'group', 'queue', 'user', 'cause', 'day'] as const
type Kind = (typeof kinds)[number]

export function SumsView({ query }: { query: URLSearchParams }) {
  const { t, session } = useApp()
  const by = kinds.find((kind) => kind === query.get('by')) ?? 'namespace'
  const since = query.get('since') ?? '30'
  const namespace = query.get('namespace') ?? ''
  const search = new URLSearchParams({ by, since, namespace }).toString()
  const { data, error } = useAnswer<HistorySums>(session?.history.reachable ? `api/v1/history/sums?${search}` : undefined)
  const set = (name: string, value: string) => replace(historyLink(query, { [name]: value }, 'sums'))
  return (
    <div class="page">
      <h1>{t.sums}</h1>
      <HistoryOff />
      {session?.history.reachable && (
        <>
          <form class="filters past" role="search" onSubmit={(e) => e.preventDefault()}>
            <select aria-label={t.sumsBy} value={by} onChange={(e) => set('by', e.currentTarget.value)}>
              {kinds.map((kind) => (
                <option value={kind}>{t.sumKinds[kind]}</option>
              ))}
            </select>
            <select aria-label={t.range} value={since} onChange={(e) => set('since', e.currentTarget.value)}>
              {days.map((one) => (
                <option value={String(one)}>{t.lastDays(one)}</option>
              ))}
            </select>
            <input
              type="search"
              aria-label={t.namespace}
              placeholder={t.namespace}
              value={namespace}
              maxLength={63}
              onChange={(e) => set('namespace', e.currentTarget.value.trim())}
            />
            <a href={historyLink(new URLSearchParams())}>{t.history}</a>
          </form>
          {error && (
            <p class="banner warning lined" role="alert">
              {error}
            </p>
          )}
          {!data && !error && <Skeleton />}
          {data?.truncated && <p class="banner">{t.sumsSince(data.since.slice(0, 10))}</p>}
          {data && data.items.length === 0 && <p class="empty">{t.noRecorded}</p>}
          {data && data.items.length > 0 && <Table items={data.items} by={by} since={data.since} />}
        </>
      )}
    </div>
  )
}

function Table({ items, by, since }: { items: HistorySum[]; by: Kind; since: string }) {
  const { t } = useApp()
  const most = Math.max(...items.map((item) => item.gpuHours), 0)
  const mostDaily = Math.max(...items.flatMap((item) => item.daily ?? []))
  return (
    <div class="wide card" role="group" tabIndex={0} aria-label={t.sums}>
      <table class="plain recorded stacked">
        <thead>
          <tr>
            <th scope="col">{t.sumKinds[by]}</th>
            <th scope="col">{t.gpuHours}</th>
            {mostDaily > 0 && <th scope="col">{t.gpuHoursDaily}</th>}
            <th scope="col">{t.jobs}</th>
            <th scope="col">{t.unsuccessful}</th>
            <th scope="col">{t.waitedHours}</th>
            <th scope="col">{t.cpuUsed}</th>
            <th scope="col">{t.memoryUsed}</th>
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={item.key}>
              <th scope="row">{nameOf(item, by, t.succeededCause, t.none)}</th>
              <td class="num" data-title={t.gpuHours}>
                {hours(item.gpuHours)}
                {most > 0 && <progress class="share" max={most} value={item.gpuHours} aria-hidden="true" />}
              </td>
              {mostDaily > 0 && <td class="long" data-title={t.gpuHoursDaily}>{item.daily && <Days hours={item.daily} most={mostDaily} since={since} />}</td>}
              <td class="num" data-title={t.jobs}>{item.jobs}</td>
              <td class="num" data-title={t.unsuccessful}>{item.unsuccessful || ''}</td>
              <td class="num" data-title={t.waitedHours}>{hours(item.waitedHours)}</td>
              <td class="num" data-title={t.cpuUsed}>{percent(item.cpuUsed)}</td>
              <td class="num" data-title={t.memoryUsed}>{percent(item.memoryUsed)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

/** Days draws a bar for each day, all rows on one scale. */
function Days({ hours: daily, most, since }: { hours: number[]; most: number; since: string }) {
  const { t } = useApp()
  const width = 180 / daily.length
  const top = daily.indexOf(Math.max(...daily))
  const dayOf = (i: number) => new Date(Date.parse(since) + i * 86_400_000).toISOString().slice(0, 10)
  const highest = daily[top] ?? 0
  return (
    <svg class="days" width="180" height="22" viewBox="0 0 180 22" role="img" aria-label={highest > 0 ? t.mostOnDay(hours(highest), dayOf(top)) : t.none}>
      {daily.map((value, i) => (
        <rect x={i * width} y={22 - (value / most) * 22} width={Math.max(width - 1, 1)} height={(value / most) * 22}>
          <title>{`${dayOf(i)}: ${hours(value)}`}</title>
        </rect>
      ))}
    </svg>
  )
}

function nameOf(item: HistorySum, by: Kind, succeeded: string, none: string): string {
  return item.key || (by === 'cause' ? succeeded : none)
}

function hours(value: number): string {
  return value.toFixed(value < 10 ? 1 : 0)
}

function percent(share: number | undefined): string {
  return share === undefined ? '' : `${Math.round(100 * share)}%`
}
