// The view of the cluster: what is free, who waits, who holds what, nodes, decisions, the takeover and migrations.
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Cluster } from './api'
import { useApp, useNow } from './app'
import { Banner } from './banner'
import { bytes, cores, stamp } from './format'
import { Holders, Owner } from './holders'
import { StateText } from './mark'
import { Cell, Meter, type Kind } from './meter'
import { Notes, Section } from './section'
import { Skeleton } from './skeleton'
import { useStream } from './stream'
import { WaitingJobs } from './waiting'

type Node = Cluster['nodes'][number]

// What is drawn of a large cluster. A click shows all nodes.
const fewNodes = 24
const mostShares = 20

export function ClusterView({ query }: { query: URLSearchParams }) {
  const { t } = useApp()
  const stream = useStream<Cluster>('api/v1/cluster/stream', 'cluster', 'api/v1/cluster')
  const cluster = stream.data
  return (
    <div class="page">
      <h1>{t.cluster}</h1>
      <Banner stream={stream} />
      {!cluster && stream.state.kind === 'connecting' && <Skeleton lines={10} />}
      {cluster && (
        <>
          <Notes notes={cluster.notes} grants={cluster.grants} />
          <Takeovers all={cluster.takeovers.filter(({ state }) => state !== 'Done' && state !== 'Unknown')} />
          <Free cluster={cluster} />
          <div class="columns top-aligned">
            <WaitingJobs waiting={cluster.waiting} />
            <Holders cluster={cluster} />
          </div>
          <Nodes cluster={cluster} named={query.get('node') ?? ''} />
          <Decisions cluster={cluster} />
          <Takeovers all={cluster.takeovers.filter(({ state }) => state === 'Unknown')} />
        </>
      )}
    </div>
  )
}

/** Free says what is requested of the cluster, and what would still fit. */
function Free({ cluster }: { cluster: Cluster }) {
  const { t } = useApp()
  const { fit } = cluster
  if (cluster.nodes.length === 0) return null
  const size = fit && [fit.gpus && t.gpuCount(fit.gpus), fit.cpu && t.cores(cores(fit.cpu)), fit.memory && bytes(fit.memory)].filter(Boolean).join(', ')
  return (
    <Section title={t.room}>
      <dl class="meters">
        {(['gpus', 'cpu', 'memory'] as Kind[]).map((kind) => (
          <Meter room={cluster} kind={kind} />
        ))}
      </dl>
      {fit && size && (
        <p class="fit">
          <b>{fit.pods > 0 ? t.fits(fit.pods, fit.nodes) : t.fitsNone}</b> <span class="quiet">{t.usualSize(size)}</span>
          {(fit.stranded ?? 0) > 0 && <span class="stranded"> {t.stranded(fit.stranded ?? 0)}</span>}
        </p>
      )}
      {cluster.types.length > 1 && <Types cluster={cluster} />}
    </Section>
  )
}

/** kindsOf returns the resources that there are. */
function kindsOf(cluster: Cluster): Kind[] {
  return cluster.gpus.total > 0 ? ['gpus', 'cpu', 'memory'] : ['cpu', 'memory']
}

function Types({ cluster }: { cluster: Cluster }) {
  const { t } = useApp()
  return (
    <table class="plain bars stacked">
      <thead>
        <tr>
          <th scope="col">{t.nodeType}</th>
          {kindsOf(cluster).map((kind) => (
            <th scope="col">{t.resource[kind]}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {cluster.types.map((one) => (
          <tr key={one.name}>
            <th scope="row">
              {one.name || t.withoutGPUs}
              <span class="second">{t.nodesOf(one.nodes)}</span>
            </th>
            {kindsOf(cluster).map((kind) => (
              <Cell room={one} kind={kind} of={one.name || t.withoutGPUs} />
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  )
}

/** Nodes shows all nodes. The one that a link names is marked, and in view. */
function Nodes({ cluster, named }: { cluster: Cluster; named: string }) {
  const { t } = useApp()
  const [all, setAll] = useState(false)
  const body = useRef<HTMLTableSectionElement>(null)
  const at = cluster.nodes.findIndex((node) => node.name === named)
  const drawn = all || at >= fewNodes ? cluster.nodes : cluster.nodes.slice(0, fewNodes)
  useLayoutEffect(() => {
    body.current?.querySelector('.found')?.scrollIntoView({ block: 'center' })
  }, [named, at >= 0])
  if (cluster.nodes.length === 0) return null
  const kinds = kindsOf(cluster)
  return (
    <Section title={t.nodes}>
      <table class="plain bars stacked nodes">
        <thead>
          <tr>
            <th scope="col">{t.node}</th>
            {kinds.map((kind) => (
              <th scope="col">{t.resource[kind]}</th>
            ))}
            <th scope="col" class="c-jobs">
              {t.jobs}
            </th>
          </tr>
        </thead>
        <tbody ref={body}>
          {drawn.map((node) => (
            <NodeRow key={node.name} node={node} kinds={kinds} found={node.name === named} />
          ))}
        </tbody>
      </table>
      {drawn.length < cluster.nodes.length && (
        <button type="button" onClick={() => setAll(true)}>
          {t.showAll(cluster.nodes.length)}
        </button>
      )}
    </Section>
  )
}

function NodeRow({ node, kinds, found }: { node: Node; kinds: Kind[]; found: boolean }) {
  const { t } = useApp()
  return (
    <tr class={found ? 'found' : ''} aria-current={found ? 'true' : undefined}>
      <th scope="row">
        {node.name}
        <span class="second">
          {!node.ready && <StateText state={t.notReady} />}
          {node.ready && !node.schedulable && t.unschedulable} {node.type}
        </span>
      </th>
      {kinds.map((kind) => (
        <Cell room={node} kind={kind} of={node.name} />
      ))}
      <td class="c-jobs">
        <ul class="shares">
          {node.jobs.slice(0, mostShares).map((share) => (
            <li>
              <Owner namespace={share.namespace} name={share.name} />{' '}
              <span class="quiet">{share.gpus > 0 ? t.gpuCount(share.gpus) : t.podCount(share.pods)}</span>
            </li>
          ))}
          {node.jobs.length > mostShares && <li class="quiet">{t.andMore(node.jobs.length - mostShares)}</li>}
        </ul>
      </td>
    </tr>
  )
}

interface Decided {
  at: string | undefined
  who: string
  namespace: string
  name: string
  title: string
  text: string
}

/** decided returns what was decided and what plans ask for as one list, the newest first. */
function decided(cluster: Cluster, who: Record<string, string>): Decided[] {
  const plans = cluster.plans.map((plan) => ({
    at: plan.createdAt, who: who.plan ?? '', namespace: plan.namespace, name: plan.job, title: plan.phase,
    text: [`${plan.name}: ${plan.change}`, plan.reason, plan.message].filter(Boolean).join(' — '),
  }))
  const rounds = cluster.rounds.map((one) => ({ at: one.at, who: who[one.who] ?? one.who, namespace: one.namespace, name: one.name, title: one.reason ?? '', text: one.text }))
  return [...plans, ...rounds].sort((a, b) => (b.at ?? '').localeCompare(a.at ?? ''))
}

function Decisions({ cluster }: { cluster: Cluster }) {
  const { t } = useApp()
  const now = useNow()
  const all = decided(cluster, t.who)
  if (all.length === 0) return null
  return (
    <Section title={t.rounds}>
      <ol class="moments" tabIndex={0} aria-label={t.rounds}>
        {all.map((one) => (
          <li>
            {one.at ? <time dateTime={one.at}>{stamp(one.at, now)}</time> : <time />}
            <span class="kind">{one.who}</span>
            <span>
              <Owner namespace={one.namespace} name={one.name} /> {one.title && <b>{t.say(one.title)} </b>}
              {one.text}
            </span>
          </li>
        ))}
      </ol>
    </Section>
  )
}

type Takeover = Cluster['takeovers'][number]

/** Takeovers shows changes of the installation. Each that is stalled has a card of its cause. */
function Takeovers({ all }: { all: Takeover[] }) {
  const { t } = useApp()
  const others = all.filter(({ state }) => state !== 'Stalled')
  return (
    <>
      {all.filter(({ state }) => state === 'Stalled').map((one) => (
        <Stalled one={one} />
      ))}
      {others.length > 0 && (
        <Section title={t.takeovers}>
          <ul class="takeovers">
            {others.map((one) => (
              <li>
                <b>{t.takeoverState[one.state]}</b> {t.say(one.what)}: {t.say(one.text)}
                <Waits of={one} />
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  )
}

function Stalled({ one }: { one: Takeover }) {
  const { t } = useApp()
  const title = t.stalled(t.say(one.what))
  return (
    <section class="card why" aria-label={title}>
      <h2>{title}</h2>
      <p class="first">
        <b>{t.say(one.text)}</b>
      </p>
      <Waits of={one} />
    </section>
  )
}

function Waits({ of: { waits } }: { of: Takeover }) {
  const { t } = useApp()
  if (!waits?.length) return null
  return (
    <ul>
      {waits.map((wait) => (
        <li>{t.say(wait)}</li>
      ))}
    </ul>
  )
}
