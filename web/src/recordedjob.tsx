// What is recorded of one job.
import { recordedPath, type HistoryCurves, type HistoryJob, type HistoryPart, type HistoryTail, type HistoryTails } from './api'
import { useAnswer } from './answer'
import { useApp, useNow } from './app'
import { Charts } from './charts'
import { CostCard } from './cost'
import { age, stamp } from './format'
import { HistoryOff } from './history'
import { Pill } from './mark'
import { isTime, lines, took } from './recorded'
import { Result } from './result'
import type { Route } from './route'
import { FactList, Notes, Section } from './section'
import { Skeleton } from './skeleton'

export function RecordedView({ route }: { route: Extract<Route, { view: 'recorded' }> }) {
  const { t, session } = useApp()
  const uid = route.query.get('uid') ?? ''
  const path = (part = '') => (session?.history.reachable ? recordedPath(route.namespace, route.name, uid, part) : undefined)
  const { data, error } = useAnswer<HistoryJob>(path())
  return (
    <div class="page">
      <p class="crumbs">
        <a href="#/history">{t.history}</a> / <a href={`#/history?namespace=${encodeURIComponent(route.namespace)}`}>{route.namespace}</a>
      </p>
      <div class="heading">
        <h1>{route.name}</h1>
        {data && <Headline of={data} />}
      </div>
      <HistoryOff />
      {error && (
        <p class="banner warning lined" role="alert">
          {error}
        </p>
      )}
      {!data && !error && session?.history.reachable && <Skeleton />}
      {data && (
        <>
          <Notes notes={data.notes} />
          <Cause of={data} />
          <CostCard cost={data.cost} />
          <Curves of={data} path={path('curves')} />
          <Tails path={path('tails')} />
          {data.parts.map((part) => (
            <PartTable key={part.title} part={part} />
          ))}
          <Section title={t.facts}>
            <FactList facts={data.facts} />
          </Section>
        </>
      )}
    </div>
  )
}

function Headline({ of: { job } }: { of: HistoryJob }) {
  const { t } = useApp()
  const now = useNow(30_000)
  return (
    <p class="headline">
      <Pill state={job.phase} />
      {job.reason && <b>{job.reason}</b>}
      {job.startedAt && (
        <span>
          {t.duration} {took(job, now)}
        </span>
      )}
      {job.endedAt && <span title={job.endedAt}>{`${t.ended} ${t.ago(age(job.endedAt, now))}`}</span>}
      <span>
        {t.restarts} {job.restarts}
      </span>
      {job.group && <span>{`${t.group} ${job.group}`}</span>}
      {job.user && <span>{`${t.createdBy} ${job.user}`}</span>}
    </p>
  )
}

/** Text shows a text with its line ends. The first line is what matters most. */
export function Text({ text }: { text: string }) {
  const [first, rest] = lines(text)
  return (
    <>
      <b>{first}</b>
      {rest && `\n${rest}`}
    </>
  )
}

function Cause({ of: { job } }: { of: HistoryJob }) {
  const { t } = useApp()
  if (!job.message) return null
  return (
    <section class="card why" aria-label={t.cause}>
      <h2>{job.reason ?? t.cause}</h2>
      <p class="lined">
        <Text text={job.message} />
      </p>
    </section>
  )
}

function Curves({ of, path }: { of: HistoryJob; path: string | undefined }) {
  const { t } = useApp()
  const now = useNow(30_000)
  const { data, error } = useAnswer<HistoryCurves>(path)
  return (
    <Section title={t.curves}>
      {error && <p class="banner warning lined">{error}</p>}
      {!data && !error && <Skeleton />}
      {data && of.job.endedAt && <Result curves={data.curves} now={now} />}
      {data && <Charts job={of.job.name} timeline={of.timeline} curves={data.curves} now={now} end={of.job.endedAt ? Date.parse(of.job.endedAt) : undefined} />}
      {data && <p class="quiet">{data.until ? t.fromHistoryUntil(stamp(data.until, now)) : t.fromHistory}</p>}
    </Section>
  )
}

function Tails({ path }: { path: string | undefined }) {
  const { t } = useApp()
  const { data, error } = useAnswer<HistoryTails>(path)
  return (
    <Section title={t.lastLines}>
      {error && <p class="banner warning lined">{error}</p>}
      {!data && !error && <Skeleton />}
      {data?.tails.length === 0 && <p class="empty">{t.noTails}</p>}
      {data?.tails.map((tail) => (
        <Tail tail={tail} />
      ))}
    </Section>
  )
}

function Tail({ tail }: { tail: HistoryTail }) {
  const { t } = useApp()
  const now = useNow(30_000)
  const title = t.tailOf(tail.replica, tail.container, tail.exitCode, tail.reason ?? '')
  return (
    <>
      <h3>
        {title} <span class="quiet">{stamp(tail.endedAt, now)}</span> {tail.restarts > 0 && <span class="quiet">{t.restartsBefore(tail.restarts)}</span>}
      </h3>
      <pre tabIndex={0} aria-label={title}>
        {tail.truncated && '…\n'}
        {tail.text ? <Text text={tail.text.trimEnd()} /> : t.noText}
      </pre>
    </>
  )
}

function PartTable({ part }: { part: HistoryPart }) {
  const { t } = useApp()
  const now = useNow(30_000)
  const title = t.say(part.title)
  return (
    <Section title={title}>
      {part.more && <p class="quiet">{t.olderRows(part.more)}</p>}
      <div class="wide rows" role="group" tabIndex={0} aria-label={title}>
        <table class="plain stacked">
          <thead>
            <tr>
              {part.columns.map((column) => (
                <th scope="col">{t.say(column)}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {part.rows.map((row) => (
              <tr>
                {row.map((cell, i) => (
                  <Cell title={t.say(part.columns[i] ?? '')} text={cell} now={now} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  )
}

function Cell({ title, text, now }: { title: string; text: string; now: number }) {
  const { t } = useApp()
  if (isTime(text)) {
    return (
      <td class="num" data-title={title}>
        <time dateTime={text} title={text}>
          {stamp(text, now)}
        </time>
      </td>
    )
  }
  if (text.includes('\n')) {
    return (
      <td class="long lined" data-title={title}>
        <Text text={text} />
      </td>
    )
  }
  return (
    <td class={text.length > 40 ? 'long' : ''} data-title={title}>
      {text === '<none>' ? '' : (t.phases[text] ?? text)}
    </td>
  )
}
