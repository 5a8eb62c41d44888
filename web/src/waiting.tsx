// The jobs that wait: who is next, since when, and for what.
import type { Waiting } from './api'
import { useApp, useNow } from './app'
import { age } from './format'
import { Owner } from './holders'
import { Section } from './section'

export function WaitingJobs({ waiting: all }: { waiting: Waiting[] }) {
  const { t } = useApp()
  const now = useNow()
  const waiting = all.filter((one) => !one.suspended)
  const suspended = all.length - waiting.length
  if (all.length === 0) return null
  return (
    <Section title={t.waiting}>
      {waiting.length > 0 && (
        <div class="waiting" role="group" tabIndex={0} aria-label={t.waiting}>
          <ul>
            {waiting.map((one) => (
              <li key={`${one.namespace}/${one.name}`}>
                <p>
                  <Owner namespace={one.namespace} name={one.name} />{' '}
                  {one.place && <span class={`badge ${one.place === 1 ? 'is-next' : ''}`}>{one.place === 1 ? t.isNext : t.inLine(one.place)}</span>}
                  <span class="quiet"> {[one.since && t.since(age(one.since, now)), one.gpus && t.gpuCount(one.gpus)].filter(Boolean).join(' · ')}</span>
                </p>
                <p>{t.say(one.why)}</p>
                {one.remedies.length > 0 && <p class="quiet">{`${t.remedies}: ${one.remedies.map(t.say).join(' ')}`}</p>}
              </li>
            ))}
          </ul>
        </div>
      )}
      {suspended > 0 && (
        <p class="quiet">
          <a href="#/jobs?search=suspended">{t.suspendedJobs(suspended)}</a>
        </p>
      )}
    </Section>
  )
}
