// The jobs that wait: who is next, since when, and for what.
import type { Waiting } from './api'
import { useApp, useNow } from './app'
import { age } from './format'
import { Owner } from './holders'
import { useScroll } from './scroll'
import { Section } from './section'
import { visible } from './window'

// As in style.css.
const rowHeight = 78

export function WaitingJobs({ waiting: all }: { waiting: Waiting[] }) {
  const { t } = useApp()
  const now = useNow()
  const [box, view] = useScroll<HTMLDivElement>()
  const waiting = all.filter((one) => !one.suspended)
  const suspended = all.length - waiting.length
  const { first, end } = visible(view.top, view.height, rowHeight, waiting.length)
  return (
    <Section title={t.waiting}>
      {waiting.length === 0 && <p class="empty">{t.noWaiting}</p>}
      <div class="waiting" ref={box} role="group" tabIndex={0} aria-label={t.waiting}>
        <ul style={{ paddingTop: `${first * rowHeight}px`, height: `${waiting.length * rowHeight}px` }}>
          {waiting.slice(first, end).map((one, i) => (
            <li key={`${one.namespace}/${one.name}`} aria-setsize={waiting.length} aria-posinset={first + i + 1}>
              <p>
                <Owner namespace={one.namespace} name={one.name} />{' '}
                {one.place && <span class={`badge ${one.place === 1 ? 'is-next' : ''}`}>{one.place === 1 ? t.isNext : t.inLine(one.place)}</span>}
                <span class="quiet"> {[one.since && t.since(age(one.since, now)), one.gpus && t.gpuCount(one.gpus)].filter(Boolean).join(' · ')}</span>
              </p>
              <p title={t.say(one.why)}>{t.say(one.why)}</p>
              <p class="quiet" title={one.remedies.map(t.say).join(' ')}>
                {one.remedies.length > 0 && `${t.remedies}: ${one.remedies.map(t.say).join(' ')}`}
              </p>
            </li>
          ))}
        </ul>
      </div>
      {suspended > 0 && (
        <p class="quiet">
          <a href="#/jobs?search=suspended">{t.suspendedJobs(suspended)}</a>
        </p>
      )}
    </Section>
  )
}
