// Why a job does not run as desired, or failed, in one place.
import type { JobDetail } from './api'
import { useApp, useNow } from './app'
import { age, stamp } from './format'
import { causeOf, fragment, parted } from './glance'
import { jobLink } from './route'

export function Cause({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const now = useNow()
  const cause = causeOf(detail)
  if (!cause) return null
  const { job } = detail
  const part = detail.parts.find((p) => p.pod && p.name === cause.object)
  const isBad = job.phase === 'Failed'
  // A job that runs on has overcome it.
  const isOver = job.phase === 'Running' && !job.reason
  const title = cause.object ? t.lastFailure : cause.lasts && !isBad ? t.whyWaiting : t.reason
  const find = fragment(cause.first)
  return (
    <section class={`card why ${isBad ? 'bad' : isOver ? 'over' : ''}`} aria-label={title}>
      <h2>
        {title} {cause.at && <span class="quiet">{cause.lasts ? t.since(age(cause.at, now)) : t.ago(age(cause.at, now))}</span>}
      </h2>
      <p class="first">
        {cause.reason && cause.reason !== cause.first && <span class="reason">{cause.reason}</span>} <b>{t.say(cause.first)}</b>{' '}
        {part && (
          <a class="button" href={jobLink(job.namespace, job.name, 'logs', { replica: part.name, ...(find && { find }) })}>
            {t.readLog(part.name)}
          </a>
        )}
      </p>
      {cause.whole && (
        <details>
          <summary>{t.wholeText}</summary>
          <pre tabIndex={0} aria-label={t.wholeText}>
            {cause.whole}
          </pre>
        </details>
      )}
      {cause.remedies.length > 0 && (
        <>
          <h3>{cause.lasts ? t.remedies : t.wouldHelp}</h3>
          <ul>
            {cause.remedies.map((remedy) => (
              <li>{t.say(remedy)}</li>
            ))}
          </ul>
        </>
      )}
      {cause.earlier && (
        <p class="earlier">
          <span class="quiet">{t.before(stamp(cause.earlier.at, now))}</span> {cause.earlier.title && <b>{cause.earlier.title}</b>} {t.say(parted(cause.earlier.text).first)}
        </p>
      )}
    </section>
  )
}
