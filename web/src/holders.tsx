// Who holds what of the cluster: jobs, namespaces, groups and queues.
import { useState } from 'preact/hooks'
import type { Cluster, Team } from './api'
import { useApp } from './app'
import { bytes, cores } from './format'
import { Bar } from './meter'
import { historyLink, jobLink, jobsLink } from './route'
import { Section } from './section'

/** mostHolders bounds what is drawn. */
const mostHolders = 100

type Holder = Pick<Team, 'namespace' | 'name' | 'gpus' | 'cpu' | 'memory'> & Partial<Pick<Team, 'jobs' | 'waiting'>>

/** Owner is the link to a job, or names what is of no job. */
export function Owner({ namespace, name }: { namespace: string; name: string }) {
  const { t } = useApp()
  if (!name) return <span>{t.others}</span>
  return <a href={jobLink(namespace, name)}>{`${namespace}/${name}`}</a>
}

/** jobsOf sums up what each job holds on all nodes: those with the most GPUs first. */
function jobsOf(cluster: Cluster): Holder[] {
  const sums = new Map<string, Holder>()
  for (const share of cluster.nodes.flatMap((node) => node.jobs)) {
    const key = `${share.namespace}/${share.name}`
    const sum = sums.get(key) ?? { namespace: share.namespace, name: share.name, gpus: 0, cpu: 0, memory: 0 }
    sums.set(key, { ...sum, gpus: sum.gpus + share.gpus, cpu: sum.cpu + share.cpu, memory: sum.memory + share.memory })
  }
  return [...sums.values()].sort((a, b) => b.gpus - a.gpus || b.cpu - a.cpu)
}

export function Holders({ cluster }: { cluster: Cluster }) {
  const { t, session } = useApp()
  const [chosen, choose] = useState('job')
  const all: Record<string, Holder[]> = { job: jobsOf(cluster) }
  for (const team of cluster.teams) (all[team.kind] ??= []).push(team)
  const offered = ['job', 'namespace', 'group', 'queue'].filter((kind) => all[kind]?.length)
  const kind = offered.includes(chosen) ? chosen : (offered[0] ?? 'job')
  if (offered.length === 0) return null
  return (
    <Section title={t.holders}>
      {offered.length > 1 && (
        <div class="chips" role="group" aria-label={t.holders}>
          {offered.map((one) => (
            <button type="button" class="chip" aria-pressed={one === kind} onClick={() => choose(one)}>
              {t.holderKinds[one]}
            </button>
          ))}
        </div>
      )}
      {session?.history.reachable && kind !== 'job' && (
        <p>
          <a href={historyLink(new URLSearchParams(), { by: kind }, 'sums')}>{t.overTime}</a>
        </p>
      )}
      <Table cluster={cluster} kind={kind} holders={all[kind] ?? []} />
    </Section>
  )
}

function Table({ cluster, kind, holders }: { cluster: Cluster; kind: string; holders: Holder[] }) {
  const { t } = useApp()
  const hasGPUs = cluster.gpus.total > 0
  const numbers = [kind !== 'job' && t.jobs, kind !== 'job' && t.waitingCount, hasGPUs && t.gpus, t.resource.cpu, t.resource.memory].filter(Boolean)
  return (
    <div class="wide holders" role="group" tabIndex={0} aria-label={t.holderKinds[kind]}>
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">{t.name}</th>
            {numbers.map((title) => (
              <th scope="col" class="num">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {holders.slice(0, mostHolders).map((one) => (
            <tr key={`${one.namespace}/${one.name}`}>
              <td class="holder">
                {kind === 'job' ? <Owner namespace={one.namespace} name={one.name} /> : <TeamLink kind={kind} team={one} />}
                {(hasGPUs ? one.gpus : one.cpu) > 0 && (
                  <Bar
                    requested={hasGPUs ? one.gpus : one.cpu}
                    total={hasGPUs ? cluster.gpus.total : cluster.cpu.allocatable}
                    label={t.shareOf(one.name || t.others, hasGPUs ? t.gpuCount(one.gpus) : t.cores(cores(one.cpu)))}
                  />
                )}
              </td>
              {kind !== 'job' && <td class="num">{one.jobs}</td>}
              {kind !== 'job' && <td class="num">{one.waiting || ''}</td>}
              {hasGPUs && <td class="num">{one.gpus || ''}</td>}
              <td class="num">{one.cpu ? cores(one.cpu) : ''}</td>
              <td class="num">{one.memory ? bytes(one.memory) : ''}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function TeamLink({ kind, team }: { kind: string; team: Holder }) {
  const query: Record<string, string> = kind === 'namespace' ? { namespace: team.name } : { namespace: team.namespace, search: team.name }
  return (
    <>
      <a href={jobsLink(new URLSearchParams(), query)}>{team.name}</a> {kind !== 'namespace' && <span class="quiet">{team.namespace}</span>}
    </>
  )
}
