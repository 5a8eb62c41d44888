// What happened to a job, and when: its curves and a list.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useAnswer } from './answer'
import { recordedPath, type HistoryCurves, type JobDetail } from './api'
import { useApp, useNow } from './app'
import { nearest } from './axis'
import { Charts } from './chart'
import { stamp } from './format'
import { merged } from './recorded'
import { Section } from './section'

/** How often the recorded curves of a job are read again. What is newer is what the page saw. */
const again = 60_000

export function Timeline({ detail }: { detail: JobDetail }) {
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
      <Curves detail={detail} />
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

/** Curves shows whole curves where the history keeps them, and else what the page saw. It says which. */
function Curves({ detail }: { detail: JobDetail }) {
  const { t, session } = useApp()
  const now = useNow()
  const { job } = detail
  const reachable = session?.history.reachable
  const { data, error } = useAnswer<HistoryCurves>(reachable ? recordedPath(job.namespace, job.name, job.uid, 'curves') : undefined, again)
  const curves = useMemo(() => (data ? merged(data.curves, detail.curves) : detail.curves), [data, detail.curves])
  return (
    <Section title={t.curves}>
      <Charts timeline={detail.timeline} curves={curves} now={now} />
      <p class="quiet source">
        {data ? t.fromHistory : error ? t.fromPageFailed(error) : session && !reachable ? `${t.fromPage} ${t.say(session.history.why ?? '')}` : t.loading}
      </p>
    </Section>
  )
}
