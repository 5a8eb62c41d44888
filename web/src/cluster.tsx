// The view of the cluster: nodes, waiting jobs, decisions, plans, queues, the takeover and migrations.
import { useState } from 'preact/hooks'
import type { Cluster } from './api'
import { useApp, useNow } from './app'
import { Banner } from './banner'
import { age, stamp } from './format'
import { StateText } from './mark'
import { Plans } from './plans'
import { jobLink } from './route'
import { useScroll } from './scroll'
import { Notes, Section } from './section'
import { useStream } from './stream'
import { visible } from './window'

type Node = Cluster['nodes'][number]

// What is drawn of a large cluster. A click shows all nodes.
const fewNodes = 24
const mostHolders = 100
const mostCells = 64

// As in style.css.
const cellWidth = 14
const waitingHeight = 78

export function ClusterView() {
  const { t } = useApp()
  const stream = useStream<Cluster>('api/v1/cluster/stream', 'cluster', 'api/v1/cluster')
  const cluster = stream.data
  const changes = cluster?.takeovers.some((one) => one.state !== 'Done' && one.state !== 'Unknown')
  return (
    <div class="page">
      <h1>{t.cluster}</h1>
      <Banner stream={stream} />
      {!cluster && stream.state.kind === 'connecting' && <p class="empty">{t.loading}</p>}
      {cluster && (
        <>
          <Notes notes={cluster.notes} />
          {changes && <Takeovers cluster={cluster} />}
          <Nodes cluster={cluster} />
          <WaitingJobs cluster={cluster} />
          <Decisions cluster={cluster} />
          <Section title={t.plans}>{cluster.plans.length ? <Plans plans={cluster.plans} job /> : <p class="empty">{t.noPlans}</p>}</Section>
          <div class="columns">
            <Queues cluster={cluster} />
            {!changes && <Takeovers cluster={cluster} />}
          </div>
        </>
      )}
    </div>
  )
}

function Nodes({ cluster }: { cluster: Cluster }) {
  const { t } = useApp()
  const [all, setAll] = useState(false)
  const total = new Map<string, { namespace: string; name: string; gpus: number }>()
  for (const node of cluster.nodes) {
    for (const share of node.jobs) {
      const key = `${share.namespace}/${share.name}`
      const sum = total.get(key)?.gpus ?? 0
      total.set(key, { namespace: share.namespace, name: share.name, gpus: sum + share.gpus })
    }
  }
  const holders = [...total.values()].filter((h) => h.gpus > 0).sort((a, b) => b.gpus - a.gpus)
  const drawn = all ? cluster.nodes : cluster.nodes.slice(0, fewNodes)
  return (
    <Section title={t.nodes}>
      <p>
        <b>{t.gpusUsed(cluster.gpus.used, cluster.gpus.total)}</b>
      </p>
      {holders.length > 0 && (
        <>
          <h3>{t.holders}</h3>
          <ol class="holders">
            {holders.slice(0, mostHolders).map((h) => (
              <li key={`${h.namespace}/${h.name}`}>
                <Holder namespace={h.namespace} name={h.name} /> <b>{h.gpus}</b>
              </li>
            ))}
          </ol>
        </>
      )}
      {cluster.nodes.length === 0 && <p class="empty">{t.noNodes}</p>}
      <ul class="nodes">
        {drawn.map((node) => (
          <NodeCard key={node.name} node={node} />
        ))}
      </ul>
      {drawn.length < cluster.nodes.length && (
        <button type="button" onClick={() => setAll(true)}>
          {t.showAll(cluster.nodes.length)}
        </button>
      )}
    </Section>
  )
}

function Holder({ namespace, name }: { namespace: string; name: string }) {
  const { t } = useApp()
  if (!name) return <span>{t.others}</span>
  return <a href={jobLink(namespace, name)}>{`${namespace}/${name}`}</a>
}

function NodeCard({ node }: { node: Node }) {
  const { t } = useApp()
  const cells = (count: number) => ({ width: `${Math.min(count, mostCells) * cellWidth}px` })
  return (
    <li>
      <p class="nodename">
        <b>{node.name}</b> {!node.ready && <StateText state={t.notReady} />} {node.ready && !node.schedulable && <span class="quiet">{t.unschedulable}</span>}
        <span class="quiet right">{[node.cpu && t.cores(node.cpu), node.memory].filter(Boolean).join(', ')}</span>
      </p>
      {node.gpus.total > 0 && (
        <span class="gpus free" style={cells(node.gpus.total)} role="img" aria-label={t.gpusOf(node.name, node.gpus.used, node.gpus.total)}>
          <span class="gpus used" style={cells(node.gpus.used)} />
        </span>
      )}
      {node.gpus.total > 0 && (
        <span class="quiet">
          {' '}
          {node.gpus.used}/{node.gpus.total} {t.gpus}
        </span>
      )}
      <ul class="shares">
        {node.jobs.slice(0, 20).map((share) => (
          <li>
            <Holder namespace={share.namespace} name={share.name} /> <span class="quiet">{share.gpus > 0 ? `${share.gpus} ${t.gpus}` : t.podCount(share.pods)}</span>
          </li>
        ))}
      </ul>
    </li>
  )
}

function WaitingJobs({ cluster: { waiting } }: { cluster: Cluster }) {
  const { t } = useApp()
  const now = useNow()
  const [box, view] = useScroll<HTMLDivElement>()
  const { first, end } = visible(view.top, view.height, waitingHeight, waiting.length)
  return (
    <Section title={t.waiting}>
      {waiting.length === 0 && <p class="empty">{t.noWaiting}</p>}
      <div class="waiting" ref={box} role="group" tabIndex={0} aria-label={t.waiting}>
        <ul style={{ paddingTop: `${first * waitingHeight}px`, height: `${waiting.length * waitingHeight}px` }}>
          {waiting.slice(first, end).map((w, i) => (
            <li key={`${w.namespace}/${w.name}`} aria-setsize={waiting.length} aria-posinset={first + i + 1}>
              <p>
                <Holder namespace={w.namespace} name={w.name} />{' '}
                <span class="quiet">
                  {w.since && t.since(age(w.since, now))} {w.gpus ? `${w.gpus} ${t.gpus}` : ''}
                </span>
              </p>
              <p title={t.say(w.why)}>{t.say(w.why)}</p>
              <p class="quiet" title={w.remedies.map(t.say).join(' ')}>
                {w.remedies.length > 0 && `${t.remedies}: ${w.remedies.map(t.say).join(' ')}`}
              </p>
            </li>
          ))}
        </ul>
      </div>
    </Section>
  )
}

function Decisions({ cluster }: { cluster: Cluster }) {
  const { t } = useApp()
  const now = useNow()
  if (cluster.rounds.length === 0) {
    return (
      <Section title={t.rounds}>
        <p class="empty">{t.noRounds}</p>
      </Section>
    )
  }
  return (
    <Section title={t.rounds}>
      <ol class="moments" tabIndex={0} aria-label={t.rounds}>
        {cluster.rounds.map((d) => (
          <li>
            {d.at ? <time dateTime={d.at}>{stamp(d.at, now)}</time> : <time />}
            <span class="kind">{t.who[d.who]}</span>
            <span>
              <Holder namespace={d.namespace} name={d.name} /> {d.reason && <b>{d.reason} </b>}
              {d.text}
            </span>
          </li>
        ))}
      </ol>
    </Section>
  )
}

function Queues({ cluster }: { cluster: Cluster }) {
  const { t } = useApp()
  return (
    <Section title={t.queues}>
      {cluster.queues.length === 0 && <p class="empty">{t.noQueues}</p>}
      {cluster.queues.length > 0 && (
        <div class="wide" role="group" tabIndex={0} aria-label={t.queues}>
          <table class="plain">
            <thead>
              <tr>
                {[t.name, t.namespace, t.jobs, t.waiting, t.gangs, t.gpus].map((title) => (
                  <th scope="col">{title}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {cluster.queues.map((q) => (
                <tr>
                  <td>{q.name || t.noQueue}</td>
                  <td>{q.namespace}</td>
                  <td class="num">{q.jobs}</td>
                  <td class="num">{q.waiting}</td>
                  <td class="num">{q.gangs}</td>
                  <td class="num">{q.gpus}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  )
}

function Takeovers({ cluster }: { cluster: Cluster }) {
  const { t } = useApp()
  return (
    <Section title={t.takeovers}>
      <ul class="takeovers">
        {cluster.takeovers.map((one) => (
          <li class={one.state === 'Stalled' ? 'trouble' : ''}>
            <b>{t.takeoverState[one.state]}</b> {t.say(one.what)}: {t.say(one.text)}
            {one.waits && (
              <ul>
                {one.waits.map((wait) => (
                  <li>{t.say(wait)}</li>
                ))}
              </ul>
            )}
          </li>
        ))}
      </ul>
    </Section>
  )
}
