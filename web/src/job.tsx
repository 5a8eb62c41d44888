// The view of one job.
import { Actions } from './actions'
import { jobPath, type Cost, type JobDetail, type JobRow } from './api'
import { useApp, useNow } from './app'
import { Banner } from './banner'
import { Cause } from './cause'
import { First } from './charts'
import { CostCard, CostStat, useCost } from './cost'
import { age, short, stamp } from './format'
import { causeOf, endOf, progressOf, stepsOf, trendOf } from './glance'
import { Owner } from './holders'
import { Logs } from './logs'
import { ManifestTab } from './manifest'
import { Mark, Pill } from './mark'
import { Parts } from './parts'
import { Picture } from './picture'
import { Plans } from './plans'
import { seconds } from './recorded'
import { Problem } from './problem'
import { Result } from './result'
import { historyLink, jobLink, jobsLink, tabs, type Route } from './route'
import { FactList, Notes, Section, Stat } from './section'
import { Skeleton } from './skeleton'
import { isFinished, kindOf, why } from './state'
import { useStream, type Stream } from './stream'
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
      <Banner stream={stream} missing={<Missing route={route} stream={stream} />} />
      {detail && <Known detail={detail} route={route} />}
      {!detail && stream.state.kind === 'connecting' && <Skeleton lines={8} />}
    </div>
  )
}

/** Known is what is shown of a job that exists. */
function Known({ detail, route }: { detail: JobDetail; route: JobRoute }) {
  const { t } = useApp()
  const cost = useCost(detail)
  return (
    <>
      <Numbers detail={detail} cost={cost} />
      <nav class="tabs" aria-label={t.sections}>
        {tabs.map((tab) => (
          <a href={jobLink(route.namespace, route.name, tab)} aria-current={tab === route.tab ? 'page' : undefined}>
            {t[tab]}
          </a>
        ))}
      </nav>
      <Notes notes={detail.notes} grants={detail.grants} />
      {route.tab === 'overview' && <Overview detail={detail} cost={cost} />}
      {route.tab === 'timeline' && <Timeline detail={detail} query={route.query} />}
      {route.tab === 'logs' && <Logs detail={detail} query={route.query} />}
      {route.tab === 'manifest' && <ManifestTab namespace={route.namespace} name={route.name} />}
    </>
  )
}

/** Missing says that there is no such job, and which others there are. */
function Missing({ route, stream }: { route: JobRoute; stream: Stream<unknown> }) {
  const { t, session } = useApp()
  const near = stream.state.kind === 'refused' ? stream.state.error.near : []
  return (
    <Problem kind="missing" title={t.noSuchJob(route.name, route.namespace)}>
      {near.length > 0 && (
        <p>
          {t.nearJobs}{' '}
          {near.map((name) => (
            <>
              <a href={jobLink(route.namespace, name)}>{name}</a>{' '}
            </>
          ))}
        </p>
      )}
      <p>
        <a class="button" href={jobsLink(new URLSearchParams(), { namespace: route.namespace })}>
          {t.jobsOf(route.namespace)}
        </a>{' '}
        {session?.history.reachable && (
          <a class="button" href={historyLink(new URLSearchParams(), { text: route.name })}>
            {t.inHistory}
          </a>
        )}
      </p>
    </Problem>
  )
}

/** Numbers says how far a job is, and how long it runs. */
function Numbers({ detail, cost }: { detail: JobDetail; cost: Cost | undefined }) {
  const { t, session } = useApp()
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
          <b>{job.gpus}</b> {job.gpuType && <span class="quiet">{job.gpuType}</span>}
        </Stat>
      )}
      <CostStat cost={cost} />
      <AwaitedStat detail={detail} />
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
          <b>
            <a href={groupLink(job, session?.history.reachable)}>{job.group}</a>
          </b>
        </Stat>
      )}
      <Stat title={t.version}>
        <b>{job.version}</b>
      </Stat>
    </dl>
  )
}

/** mostNamed is how many jobs in line are named beside the numbers of a job. */
const mostNamed = 2

/** AwaitedStat names the next jobs in line for GPUs, while this one holds some. */
function AwaitedStat({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const all = detail.awaited ?? []
  if (all.length === 0) return null
  return (
    <Stat title={t.inLineForGPUs}>
      <span class="names">
        {all.slice(0, mostNamed).map((one) => (
          <>
            <Owner namespace={one.namespace} name={one.name} />{' '}
          </>
        ))}
        {all.length > mostNamed && <span class="quiet">{t.andMore(all.length - mostNamed)}</span>}
      </span>
    </Stat>
  )
}

/** Awaited says which jobs are in line for the GPUs of this one. */
function Awaited({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const all = detail.awaited ?? []
  if (all.length === 0) return null
  return (
    <Section title={t.awaited(detail.job.gpus)}>
      <ul class="awaited">
        {all.map((one) => (
          <li>
            <Owner namespace={one.namespace} name={one.name} /> <span class="quiet">{[one.since && t.since(age(one.since, now)), t.gpuCount(one.gpus ?? 0)].filter(Boolean).join(' · ')}</span>{' '}
            {t.say(one.why)}
          </li>
        ))}
      </ul>
    </Section>
  )
}

function Overview({ detail, cost }: { detail: JobDetail; cost: Cost | undefined }) {
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
      <Awaited detail={detail} />
      <CostCard cost={cost} />
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

/** groupLink leads to the runs of the group of a job: compared where the history has them, and else sorted by their curves. */
function groupLink(job: JobRow, isRecorded: boolean | undefined): string {
  const group = job.group ?? ''
  if (isRecorded) return historyLink(new URLSearchParams(), { group, namespace: job.namespace }, 'compare')
  return jobsLink(new URLSearchParams(), { namespace: job.namespace, search: group, sort: '-curve' })
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
  // A job that has finished rises and falls no longer.
  const trend = isFinished(job) ? undefined : trendOf(curves)
  return (
    <Section title={t.curves}>
      {isFinished(job) && <Result curves={curves} now={now} />}
      {trend && (
        <p class={`trend ${trend.way}`}>
          <b>{t.trend[trend.way](trend.name)}</b> <span class="quiet">{t.trendText(short(trend.from), short(trend.to), seconds(trend.span))}</span>
        </p>
      )}
      <First job={job.name} timeline={timeline} curves={curves} now={now} end={endOf(job)} />
      <p class="quiet source">
        {source} <a href={jobLink(job.namespace, job.name, 'timeline')}>{t.allCurves}</a>
      </p>
    </Section>
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
