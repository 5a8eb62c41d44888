// Several recorded jobs side by side. The first is what the others are compared with.
import type { ComponentChildren } from 'preact'
import { useMemo } from 'preact/hooks'
import type { ComparedSeries, HistoryComparison, HistoryPage } from './api'
import { useAnswer } from './answer'
import { useApp } from './app'
import { dashes } from './chart'
import { short } from './format'
import { HistoryOff } from './history'
import { StateText } from './mark'
import { Overlay } from './overlay'
import { bestOf, keyOf, mostCompared, namesOf, seconds } from './recorded'
import { historyLink, recordedLink } from './route'
import { Notes, Section } from './section'
import { Skeleton } from './skeleton'

export function ComparisonView({ query }: { query: URLSearchParams }) {
  const { t, session } = useApp()
  const { jobs, error: groupError } = useJobs(query)
  const search = new URLSearchParams((jobs ?? []).map((job) => ['job', job])).toString()
  const enough = (jobs ?? []).length > 1
  const { data, error: compareError } = useAnswer<HistoryComparison>(session?.history.reachable && enough ? `api/v1/history/comparison?${search}` : undefined)
  const error = groupError || compareError
  const group = query.get('group')
  return (
    <div class="page">
      <p class="crumbs">
        <a href={historyLink(query)}>{t.history}</a>
      </p>
      <h1>{group ? t.runsOf(group) : t.comparison}</h1>
      <HistoryOff />
      {!enough && jobs && <p class="empty">{group ? t.fewRuns : t.compareHint(mostCompared)}</p>}
      {error && (
        <p class="banner warning lined" role="alert">
          {error}
        </p>
      )}
      {(enough || !jobs) && !data && !error && session?.history.reachable && <Skeleton lines={8} />}
      {data && <Compared of={data} />}
    </div>
  )
}

/** useJobs returns the jobs that a link names, or the newest runs of its group; undefined while these are read. */
function useJobs(query: URLSearchParams): { jobs: string[] | undefined; error: string } {
  const { session } = useApp()
  const group = query.get('group')
  const search = new URLSearchParams({ group: group ?? '', namespace: query.get('namespace') ?? '' })
  const { data, error } = useAnswer<HistoryPage>(group && session?.history.reachable ? `api/v1/history/jobs?${search}` : undefined)
  if (!group) return { jobs: query.getAll('job').slice(0, mostCompared), error: '' }
  return { jobs: data?.items.slice(0, mostCompared).map(keyOf), error }
}

/** BestRun says which run was best, and what only it has. */
function BestRun({ of, names }: { of: HistoryComparison; names: string[] }) {
  const { t } = useApp()
  const best = bestOf(of)
  const job = best && of.jobs[best.place]?.job
  if (!best || !job) return null
  return (
    <Section title={t.bestRun}>
      <p class="first">
        <Swatch place={best.place} /> <a href={recordedLink(job)}>{names[best.place]}</a> <b>{t.bestValue(best.series, short(best.value))}</b>{' '}
        {best.next !== undefined && <span class="quiet">{t.nextBest(short(best.next))}</span>}
      </p>
      {best.fields.length === 0 && <p class="quiet">{t.bestWithoutFields}</p>}
      {best.fields.length > 0 && (
        <>
          <h3>{t.onlyBest}</h3>
          <ul>
            {best.fields.slice(0, mostFields).map((one) => (
              <li>
                <code>{one.field}</code> <b>{one.value || t.none}</b> <span class="quiet">{t.othersHave(one.others.map((value) => value || t.none).join(', '))}</span>
              </li>
            ))}
          </ul>
          <p class="quiet">{t.noProof}</p>
        </>
      )}
    </Section>
  )
}

/** mostFields bounds the fields that are named of the best run. */
const mostFields = 12

function Compared({ of }: { of: HistoryComparison }) {
  const { t } = useApp()
  const names = useMemo(() => namesOf(of.jobs), [of])
  return (
    <>
      <BestRun of={of} names={names} />
      <Outcome of={of} names={names} />
      {of.series.length > 0 && (
        <Section title={t.curves}>
          {of.series.map((one) => (
            <Overlay key={one.name} series={one} names={names} />
          ))}
          <SeriesTable series={of.series} names={names} />
        </Section>
      )}
      <Section title={t.differences}>
        <Notes notes={of.notes} />
        {of.fields.length === 0 && of.notes.length === 0 && <p class="empty">{t.noDifferences}</p>}
        {of.fields.length > 0 && (
          <Table title={t.differences} columns={[t.field]} names={names}>
            {of.fields.map((one) => (
              <tr>
                <th scope="row">{one.field}</th>
                {one.values.map((value) => (
                  <td class={`long ${value === one.values[0] ? '' : 'changed'}`}>{value}</td>
                ))}
              </tr>
            ))}
          </Table>
        )}
        {of.more && <p class="quiet">{t.moreFields(of.more)}</p>}
      </Section>
      {of.resources.length > 0 && (
        <Section title={t.resources}>
          <Table title={t.resources} columns={[t.task, t.of]} names={names}>
            {of.resources.map((one) => (
              <tr>
                <th scope="row">{one.task}</th>
                <td>{t.whats[one.what] ?? one.what}</td>
                {one.values.map((value) => (
                  <td class="long">{value === '<none>' ? '' : value}</td>
                ))}
              </tr>
            ))}
          </Table>
        </Section>
      )}
    </>
  )
}

function Table({ title, columns, names, children }: { title: string; columns: string[]; names: string[]; children: ComponentChildren }) {
  return (
    <div class="wide rows" role="group" tabIndex={0} aria-label={title}>
      <table class="plain compared">
        <thead>
          <tr>
            {[...columns, ...names].map((name) => (
              <th scope="col">{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  )
}

function Outcome({ of, names }: { of: HistoryComparison; names: string[] }) {
  const { t } = useApp()
  return (
    <Section title={t.outcome}>
      <div class="wide" role="group" tabIndex={0} aria-label={t.outcome}>
        <table class="plain">
          <thead>
            <tr>
              {[t.name, t.namespace, t.phase, t.cause, t.timeToStart, t.duration, t.restarts, t.reschedules].map((title) => (
                <th scope="col">{title}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {of.jobs.map(({ job, ...one }, i) => (
              <tr key={keyOf(job)}>
                <td>
                  <Swatch place={i} /> <a href={recordedLink(job)}>{names[i]}</a> {i === 0 && <span class="quiet">{t.first}</span>}
                </td>
                <td>{job.namespace}</td>
                <td>
                  <StateText state={job.phase} />
                </td>
                <td>{job.reason}</td>
                <td class="num">{seconds(one.timeToStart)}</td>
                <td class="num">{seconds(one.duration)}</td>
                <td class="num">{one.restarts}</td>
                <td class="num">{one.reschedules}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  )
}

/** Swatch is the line that a job has in the curves. */
function Swatch({ place }: { place: number }) {
  return (
    <svg class="swatch" width="28" height="10" viewBox="0 0 28 10" aria-hidden="true">
      <line x1="0" y1="5" x2="28" y2="5" class={`l-${place}`} stroke-dasharray={(dashes[place] ?? []).join(' ')} />
    </svg>
  )
}

/** SeriesTable says which value each job reached, and when. */
function SeriesTable({ series, names }: { series: ComparedSeries[]; names: string[] }) {
  const { t } = useApp()
  const value = (one: number | null | undefined) => (one === null || one === undefined ? '' : short(one))
  return (
    <Table title={t.curves} columns={[t.curve, t.what]} names={names}>
      {series.flatMap((one) => [
        <tr>
          <th scope="row">{one.name}</th>
          <td>{one.lowest ? t.bestLow : t.bestHigh}</td>
          {one.best.map((best) => (
            <td class="num">{value(best)}</td>
          ))}
        </tr>,
        <tr>
          <th scope="row">{one.name}</th>
          <td>{t.reached}</td>
          {one.reached.map((reached) => (
            <td class="num">{seconds(reached)}</td>
          ))}
        </tr>,
        <tr>
          <th scope="row">{one.name}</th>
          <td>{t.lastValue}</td>
          {one.last.map((last) => (
            <td class="num">{value(last)}</td>
          ))}
        </tr>,
      ])}
    </Table>
  )
}
