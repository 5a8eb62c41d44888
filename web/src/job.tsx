// The view of one job.
import { useState } from 'preact/hooks'
import { Actions } from './actions'
import { jobPath, type JobDetail, type Part } from './api'
import { useApp, useNow } from './app'
import { Banner } from './banner'
import { Cause } from './cause'
import { First } from './charts'
import { age, short, stamp } from './format'
import { causeOf, endOf, progressOf, stepsOf } from './glance'
import { Logs } from './logs'
import { ManifestTab } from './manifest'
import { Mark, Pill, StateText } from './mark'
import { Picture } from './picture'
import { Plans } from './plans'
import { seconds } from './recorded'
import { jobLink, tabs, type Route } from './route'
import { FactList, Notes, Section, Stat } from './section'
import { isFinished, kindOf, weight, why } from './state'
import { useStream } from './stream'
import { Timeline, useCurves } from './timeline'

type JobRoute = Extract<Route, { view: 'job' }>

export function JobView({ route }: { route: JobRoute }) {
  const { t } = useApp()
  const path = jobPath(route.namespace, route.name)
  const stream = useStream<JobDetail>(`${path}/stream`, 'job', path)
  const detail = stream.data
  const isGone = stream.state.kind === 'gone'
  return (
    <div class="page">
      <p class="crumbs">
        <a href="#/jobs">{t.back}</a> / <a href={`#/jobs?namespace=${encodeURIComponent(route.namespace)}`}>{route.namespace}</a>
      </p>
      <div class="heading">
        <h1>{route.name}</h1>
        {detail && (
          <p class="headline">
            <Pill state={detail.job.phase} />
            {(route.tab !== 'overview' || !causeOf(detail)) && why(detail.job, t) && <b>{why(detail.job, t)}</b>}
          </p>
        )}
        {detail && !isGone && <Actions detail={detail} />}
      </div>
      <Banner stream={stream} />
      {detail && <Numbers detail={detail} />}
      {(detail || stream.state.kind === 'connecting') && (
        <nav class="tabs" aria-label={t.sections}>
          {tabs.map((tab) => (
            <a href={jobLink(route.namespace, route.name, tab)} aria-current={tab === route.tab ? 'page' : undefined}>
              {t[tab]}
            </a>
          ))}
        </nav>
      )}
      {!detail && stream.state.kind === 'connecting' && <p class="empty">{t.loading}</p>}
      {detail && <Notes notes={detail.notes} />}
      {detail && route.tab === 'overview' && <Overview detail={detail} />}
      {detail && route.tab === 'timeline' && <Timeline detail={detail} query={route.query} />}
      {detail && route.tab === 'logs' && <Logs detail={detail} query={route.query} />}
      {detail && route.tab === 'manifest' && <ManifestTab namespace={route.namespace} name={route.name} />}
    </div>
  )
}

/** Numbers says how far a job is, and how long it runs. */
function Numbers({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const { job } = detail
  const end = endOf(job)
  const progress = progressOf(detail)
  const lasted = seconds(((end ?? now) - Date.parse(job.createdAt)) / 1000)
  return (
    <dl class="stats">
      {progress && (
        <Stat title={t.progress} wide>
          <b>{short(progress.done)}</b>
          {progress.total ? ` ${t.ofTotal(short(progress.total), progress.unit)}` : ` ${progress.unit}`}
          {progress.left !== undefined && <span class="quiet"> · {t.left(seconds(progress.left))}</span>}
          {progress.total ? <progress class="bar" value={progress.done} max={progress.total} aria-label={t.progress} /> : null}
        </Stat>
      )}
      <Stat title={end ? t.duration : t.age}>
        <b title={job.createdAt}>{lasted}</b>
      </Stat>
      {end ? (
        <Stat title={t.ended}>
          <b title={job.completedAt}>{stamp(end, now)}</b>
        </Stat>
      ) : (
        !isFinished(job) && (
          <Stat title={t.ready}>
            <b>{`${job.ready}/${job.wanted}`}</b>
          </Stat>
        )
      )}
      {job.gpus > 0 && (
        <Stat title={t.gpus}>
          <b>{job.gpus}</b>
        </Stat>
      )}
      <Stat title={t.restarts}>
        <b class={job.restarts + job.reschedules ? '' : 'quiet'}>{job.restarts + job.reschedules}</b>
      </Stat>
      {job.queue && (
        <Stat title={t.queue}>
          <b>{job.queue}</b>
        </Stat>
      )}
      {job.group && (
        <Stat title={t.group}>
          <b>{job.group}</b>
        </Stat>
      )}
      <Stat title={t.version}>
        <b>{job.version}</b>
      </Stat>
    </dl>
  )
}

function Overview({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  return (
    <>
      <Cause detail={detail} />
      <Steps detail={detail} />
      <Learning detail={detail} />
      <Section title={t.parts}>
        <Picture detail={detail} />
        <Parts detail={detail} />
      </Section>
      <div class="columns">
        <Conditions detail={detail} />
        <Facts detail={detail} />
      </div>
      {detail.plans.length > 0 && (
        <Section title={t.plans}>
          <Plans plans={detail.plans} />
        </Section>
      )}
    </>
  )
}

/** mostSteps is how many phases are shown. */
const mostSteps = 7

/** Steps shows the phases of a job as a line of steps, each with how long it lasted. */
function Steps({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const all = stepsOf(detail, now)
  if (all.length === 0) return null
  const shown = all.slice(-mostSteps)
  return (
    <ol class="steps" aria-label={t.phaseSteps}>
      {all.length > shown.length && <li class="quiet">{t.earlierSteps(all.length - shown.length)}</li>}
      {shown.map((step, i) => {
        const isLast = i === shown.length - 1
        return (
          <li class={isLast ? `k-${kindOf(step.phase)}` : ''} aria-current={isLast ? 'step' : undefined}>
            <Mark kind={kindOf(step.phase)} />
            <b>{t.phases[step.phase] ?? step.phase}</b>
            <span class="quiet" title={new Date(step.from).toISOString()}>
              {step.to > step.from ? seconds((step.to - step.from) / 1000) : stamp(step.from, now)}
            </span>
          </li>
        )
      })}
    </ol>
  )
}

/** Learning shows what the job reports: that which matters most is large. */
function Learning({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const { curves, source } = useCurves(detail)
  const { job, timeline } = detail
  if (!curves.some((c) => c.x !== 'replicas')) return null
  return (
    <Section title={t.curves}>
      <First job={job.name} timeline={timeline} curves={curves} now={now} end={endOf(job)} />
      <p class="quiet source">
        {source} <a href={jobLink(job.namespace, job.name, 'timeline')}>{t.allCurves}</a>
      </p>
    </Section>
  )
}

function Parts({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const [all, setAll] = useState(false)
  const sorted = [...detail.parts].sort((a, b) => weight(kindOf(a.state, a.ready)) - weight(kindOf(b.state, b.ready)))
  const shown = all ? sorted : sorted.slice(0, 20)
  return (
    <div class="wide" role="group" tabIndex={0} aria-label={t.parts}>
      <table class="plain">
        <thead>
          <tr>
            {[t.state, t.name, t.role, t.rank, t.node, t.gpus, t.restarts, t.exitCode, t.age, t.message].map((title) => (
              <th scope="col">{title}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((part) => (
            <PartRow key={part.name} part={part} detail={detail} now={now} />
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

function PartRow({ part, detail, now }: { part: Part; detail: JobDetail; now: number }) {
  return (
    <tr>
      <td>
        <StateText state={part.state} ready={part.ready} />
      </td>
      <td>
        {part.pod ? <a href={jobLink(detail.job.namespace, detail.job.name, 'logs', { replica: part.name })}>{part.name}</a> : part.name}
      </td>
      <td>{part.role}</td>
      <td class="num">{part.rank}</td>
      <td>{part.node}</td>
      <td class="num">{part.gpus || ''}</td>
      <td class="num">{part.restarts || ''}</td>
      <td class="num">{part.exitCode}</td>
      <td class="num">{age(part.createdAt, now)}</td>
      <td class="long">{part.message}</td>
    </tr>
  )
}

const phases = ['Pending', 'Starting', 'Running', 'Restarting', 'Rescheduling', 'Succeeded', 'Failed', 'Unknown']

/** Conditions shows what holds, and what does not where that explains a trouble. The phases are above. */
function Conditions({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const all = detail.conditions.filter((c) => c.trouble || (c.status !== 'False' && !phases.includes(c.type)))
  return (
    <Section title={t.conditions}>
      <ul class="conditions">
        {all.length === 0 && <li>{t.noConditions}</li>}
        {all.map((c) => (
          <li class={c.trouble ? 'trouble' : ''}>
            <b>{t.phases[c.type] ?? c.type}</b> <span class="quiet">{[t.conditionStatus[c.status], c.since && t.since(age(c.since, now))].filter(Boolean).join(', ')}</span>
            {(c.message || c.reason) && <p>{c.message || c.reason}</p>}
          </li>
        ))}
      </ul>
    </Section>
  )
}

function Facts({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  return (
    <Section title={t.facts}>
      <FactList facts={detail.facts} />
      {detail.profilings && (
        <details>
          <summary>{t.lastReport}</summary>
          <pre tabIndex={0}>{detail.profilings}</pre>
        </details>
      )}
    </Section>
  )
}
