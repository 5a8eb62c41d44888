// What recorded jobs took together: by namespace, group, user, cause or day.
import type { HistorySum, HistorySums } from './api'
import { useAnswer } from './answer'
import { useApp } from './app'
import { HistoryOff } from './history'
import { days } from './recorded'
import { historyLink, replace } from './route'
import { Skeleton } from './skeleton'

const kinds = ['namespace', 'group', 'user', 'cause', 'day'] as const
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
          {data && data.items.length > 0 && <Table items={data.items} by={by} />}
        </>
      )}
    </div>
  )
}

function Table({ items, by }: { items: HistorySum[]; by: Kind }) {
  const { t } = useApp()
  const most = Math.max(...items.map((item) => item.gpuHours), 0)
  return (
    <div class="wide card" role="group" tabIndex={0} aria-label={t.sums}>
      <table class="plain recorded">
        <thead>
          <tr>
            <th scope="col">{t.sumKinds[by]}</th>
            <th scope="col">{t.gpuHours}</th>
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
              <td class="num">
                {hours(item.gpuHours)}
                {most > 0 && <progress class="share" max={most} value={item.gpuHours} aria-hidden="true" />}
              </td>
              <td class="num">{item.jobs}</td>
              <td class="num">{item.unsuccessful || ''}</td>
              <td class="num">{hours(item.waitedHours)}</td>
              <td class="num">{percent(item.cpuUsed)}</td>
              <td class="num">{percent(item.memoryUsed)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
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
