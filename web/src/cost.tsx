// What a job cost: what its pods requested for as long as they ran.
import type { Cost, JobDetail } from './api'
import { recordedPath } from './api'
import { useAnswer } from './answer'
import { useApp } from './app'
import { short } from './format'
import { Section, Stat } from './section'

/** again is how often the recorded cost of a job is read, in milliseconds. */
const again = 60_000

/** useCost returns what the history knows of all pods, or else what is known of those that exist. */
export function useCost({ job, cost }: JobDetail): Cost | undefined {
  const { session } = useApp()
  const { data } = useAnswer<Cost>(session?.history.reachable ? recordedPath(job.namespace, job.name, job.uid, 'cost') : undefined, again)
  return data?.pods ? data : cost
}

/** CostStat is the dearest part of a cost, and what it comes to where prices are given. */
export function CostStat({ cost }: { cost: Cost | undefined }) {
  const { t, session } = useApp()
  if (!cost) return null
  const { prices } = session ?? {}
  return (
    <Stat title={t.cost}>
      <b>{short(cost.gpuHours || cost.cpuHours)}</b>{' '}
      <span class="quiet">{[cost.gpuHours > 0 ? t.gpuHours : t.cpuHours, prices && t.priceOf(short(priceOf(cost, prices)))].filter(Boolean).join(' · ')}</span>
    </Stat>
  )
}

/** priceOf returns what a cost comes to, where prices are given. */
function priceOf(cost: Cost, prices: Record<string, number>): number {
  return cost.gpuHours * (prices.gpu ?? 0) + cost.cpuHours * (prices.cpu ?? 0) + cost.memoryHours * (prices.memory ?? 0)
}

export function CostCard({ cost }: { cost: Cost | undefined }) {
  const { t, session } = useApp()
  if (!cost) return null
  const { prices } = session ?? {}
  const parts: [string, number, string][] = [
    [t.resource.gpus, cost.gpuHours, t.hours],
    [t.resource.cpu, cost.cpuHours, t.hours],
    [t.resource.memory, cost.memoryHours, t.gibHours],
    [t.pods, cost.podHours, t.hours],
  ]
  return (
    <Section title={t.cost}>
      <dl class="stats">
        {parts
          .filter(([, hours]) => hours > 0)
          .map(([title, hours, unit]) => (
            <Stat title={title}>
              <b>{short(hours)}</b> <span class="quiet">{unit}</span>
            </Stat>
          ))}
        {prices && (
          <Stat title={t.price}>
            <b>{short(priceOf(cost, prices))}</b> <span class="quiet">{t.pricesOf(Object.entries(prices).map(([name, price]) => `${name} ${price}`).join(', '))}</span>
          </Stat>
        )}
      </dl>
      <p class="quiet source">{cost.recorded ? t.costRecorded(cost.pods) : t.costSeen(cost.pods)}</p>
    </Section>
  )
}
