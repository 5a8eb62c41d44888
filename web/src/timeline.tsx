// What happened to a job, and when: its curves and a list.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useAnswer } from './answer'
import { jobPath, recordedPath, type HistoryCurves, type JobDetail, type Usage } from './api'
import { useApp, useNow } from './app'
import { nearest } from './axis'
import { Charts } from './charts'
import { Compare, named, useOthers } from './compare'
import { stamp } from './format'
import { endOf } from './glance'
import { merged, withUsage } from './recorded'
import { Section } from './section'

/** How often the recorded curves of a job are read again. What is newer is what the page saw. */
const again = 60_000

/** How often what the pods use is read again. That of a job that has finished changes no longer. */
const usageAgain = 15_000

export function Timeline({ detail, query }: { detail: JobDetail; query: URLSearchParams }) {
  const { t } = useApp()
  const now = useNow()
  const list = useRef<HTMLOListElement>(null)
  const [time, setTime] = useState('')
  const found = time ? nearest(detail.timeline, time) : -1
  const latest = detail.timeline.map((moment, i) => ({ moment, i })).reverse()
  useEffect(() => {
    list.current?.querySelector('.found')?.scrollIntoView({ block: 'center' })
  }, [found])
  return (
    <>
      <Curves detail={detail} query={query} />
      <Section title={t.events}>
        <label class="field">
          {t.atTime} <input type="time" value={time} onInput={(e) => setTime(e.currentTarget.value)} />
        </label>
        {detail.timeline.length === 0 && <p class="empty">{t.noEvents}</p>}
        <ol class="moments" ref={list} tabIndex={0} aria-label={t.events}>
          {latest.map(({ moment, i }) => (
            <li class={`${i === found ? 'found' : ''} ${moment.warning ? 'trouble' : ''}`} aria-current={i === found ? 'true' : undefined}>
              <time dateTime={moment.at}>{stamp(moment.at, now)}</time>
              <span class="kind">{t.kinds[moment.kind]}</span>
              <span>
                {moment.title && <b>{moment.title} </b>}
                {t.say(moment.text)} {moment.object && <span class="quiet">{moment.object}</span>}{' '}
                {(moment.count ?? 1) > 1 && <span class="quiet">{t.times(moment.count ?? 1)}</span>}
              </span>
            </li>
          ))}
        </ol>
      </Section>
    </>
  )
}

/**
 * useCurves returns whole curves where the history keeps them, and else what the page saw, and what the pods used where
 * a Prometheus is known, with a text that says which.
 */
export function useCurves(detail: JobDetail): { curves: JobDetail['curves']; source: string } {
  const { t, session } = useApp()
  const { job } = detail
  const reachable = session?.history.reachable
  const { data, error } = useAnswer<HistoryCurves>(reachable ? recordedPath(job.namespace, job.name, job.uid, 'curves') : undefined, again)
  const usage = useUsage(job)
  const used = usage.curves
  const curves = useMemo(() => withUsage(data ? merged(data.curves, detail.curves) : detail.curves, used), [data, detail.curves, used])
  const source = data ? t.fromHistory : error ? t.fromPageFailed(error) : session && !reachable ? `${t.fromPage} ${t.say(session.history.why ?? '')}` : t.loading
  return { curves, source: usage.source ? `${source} ${usage.source}` : source }
}

/** useUsage returns what the pods of a job used, and a text that says where this comes from; empty if no Prometheus is known. */
function useUsage(job: JobDetail['job']): { curves: Usage['curves']; source: string } {
  const { t, session } = useApp()
  const path = session?.usage ? `${jobPath(job.namespace, job.name)}/usage` : undefined
  const { data, error } = useAnswer<Usage>(path, endOf(job) ? again : usageAgain)
  const curves = data?.curves ?? none
  const source = error ? t.usageFailed(error) : !data ? '' : curves.length > 0 ? t.usageFrom : t.usageNone
  return { curves, source }
}

const none: Usage['curves'] = []

function Curves({ detail, query }: { detail: JobDetail; query: URLSearchParams }) {
  const { t } = useApp()
  const now = useNow()
  const { curves, source } = useCurves(detail)
  const names = named(query)
  const { others, missing } = useOthers(detail.job, names)
  return (
    <Section title={t.curves}>
      <Charts job={detail.job.name} timeline={detail.timeline} curves={curves} now={now} end={endOf(detail.job)} others={others}>
        <Compare job={detail.job} names={names} missing={missing} />
      </Charts>
      <p class="quiet source">{source}</p>
    </Section>
  )
}
