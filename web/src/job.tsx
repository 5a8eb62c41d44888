// The view of one job.
import { useState } from 'preact/hooks'
import { Actions } from './actions'
import { jobPath, type JobDetail, type Part } from './api'
import { useApp, useNow } from './app'
import { Banner } from './banner'
import { age } from './format'
import { Logs } from './logs'
import { ManifestTab } from './manifest'
import { StateText } from './mark'
import { Picture } from './picture'
import { Plans } from './plans'
import { jobLink, tabs, type Route } from './route'
import { FactList, Notes, Section } from './section'
import { isFinished, kindOf, weight, why } from './state'
import { useStream } from './stream'
import { Timeline } from './timeline'

type JobRoute = Extract<Route, { view: 'job' }>

export function JobView({ route }: { route: JobRoute }) {
  const { t } = useApp()
  const path = jobPath(route.namespace, route.name)
  const stream = useStream<JobDetail>(`${path}/stream`, 'job', path)
  const detail = stream.data
  return (
    <div class="page">
      <p class="crumbs">
        <a href="#/jobs">{t.back}</a> / <a href={`#/jobs?namespace=${encodeURIComponent(route.namespace)}`}>{route.namespace}</a>
      </p>
      <div class="heading">
        <h1>{route.name}</h1>
        {detail && <Headline detail={detail} />}
        {detail && stream.state.kind !== 'gone' && <Actions detail={detail} />}
      </div>
      <Banner stream={stream} />
      <nav class="tabs" aria-label={t.sections}>
        {tabs.map((tab) => (
          <a href={jobLink(route.namespace, route.name, tab)} aria-current={tab === route.tab ? 'page' : undefined}>
            {t[tab]}
          </a>
        ))}
      </nav>
      {!detail && stream.state.kind === 'connecting' && <p class="empty">{t.loading}</p>}
      {detail && <Notes notes={detail.notes} />}
      {detail && route.tab === 'overview' && <Overview detail={detail} />}
      {detail && route.tab === 'timeline' && <Timeline detail={detail} />}
      {detail && route.tab === 'logs' && <Logs detail={detail} replicas={route.query.getAll('replica')} />}
      {detail && route.tab === 'manifest' && <ManifestTab namespace={route.namespace} name={route.name} />}
    </div>
  )
}

function Headline({ detail: { job } }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  return (
    <p class="headline">
      <StateText state={job.phase} />
      {why(job, t) && <b>{why(job, t)}</b>}
      {!isFinished(job) && (
        <span>
          {t.ready} {job.ready}/{job.wanted}
        </span>
      )}
      <span>
        {t.gpus} {job.gpus}
      </span>
      <span>
        {t.restarts} {job.restarts + job.reschedules}
      </span>
      <span title={job.createdAt}>
        {t.age} {age(job.createdAt, now)}
      </span>
      {job.queue && <span>{job.queue}</span>}
      <span title={t.version}>{job.version}</span>
    </p>
  )
}

function Overview({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  return (
    <>
      <Why detail={detail} />
      <LastFailure detail={detail} />
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

/** Why answers first why a job does not run as desired. */
function Why({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const { job, waiting } = detail
  if (!waiting && !job.message) return null
  return (
    <section class="card why" aria-label={t.reason}>
      <h2>{waiting ? t.whyWaiting : t.reason}</h2>
      <p>
        {job.reason && <b>{job.reason} </b>}
        {t.say(waiting?.why ?? job.message ?? '')} {waiting?.since && <span class="quiet">{t.since(age(waiting.since, now))}</span>}
      </p>
      {waiting && waiting.remedies.length > 0 && (
        <>
          <h3>{t.remedies}</h3>
          <ul>
            {waiting.remedies.map((remedy) => (
              <li>{t.say(remedy)}</li>
            ))}
          </ul>
        </>
      )}
    </section>
  )
}

/** LastFailure says which replica failed last, and links to its log. */
function LastFailure({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const failure = detail.timeline.findLast((m) => m.kind === 'failure')
  if (!failure) return null
  const part = detail.parts.find((p) => p.pod && p.name === failure.object)
  return (
    <section class="card why" aria-label={t.lastFailure}>
      <h2>{t.lastFailure}</h2>
      <p>
        {failure.title && <b>{failure.title} </b>}
        {t.say(failure.text)} <span class="quiet">{t.ago(age(failure.at, now))}</span>
        {part && <> <a href={jobLink(detail.job.namespace, detail.job.name, 'logs', { replica: part.name })}>{t.readLog(part.name)}</a></>}
      </p>
    </section>
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
      <td class="num">{part.gpus}</td>
      <td class="num">{part.restarts || ''}</td>
      <td class="num">{part.exitCode}</td>
      <td class="num">{age(part.createdAt, now)}</td>
      <td class="long">{part.message}</td>
    </tr>
  )
}

function Conditions({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  return (
    <Section title={t.conditions}>
      <ul class="conditions">
        {detail.conditions.length === 0 && <li>{t.noConditions}</li>}
        {detail.conditions.map((c) => (
          <li class={c.trouble ? 'trouble' : ''}>
            <b>
              {t.conditionStatus[c.status]}
              {t.phases[c.type] ?? c.type}
            </b>
            {(c.message || c.reason) && `: ${c.message || c.reason}`} {c.since && <span class="quiet">{t.since(age(c.since, now))}</span>}
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
