// The picture of a job's parts.
import type { JobDetail } from './api'
import { useApp } from './app'
import { useWidth } from './chart'
import { draw, tile, type Box, type Tile } from './layout'
import { Shape } from './mark'
import { jobLink } from './route'
import { isFinished, kindOf } from './state'

export function Picture({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const [box, width] = useWidth()
  // Parts of a finished job do not work together any more.
  const picture = draw(detail.parts, isFinished(detail.job) ? [] : detail.edges, width || Infinity)
  const kinds = [...new Set(picture.lines.map((l) => l.kind))]
  return (
    <figure class="picture" aria-label={t.picture}>
      <div ref={box}>
        {width > 0 && (
          <svg width={picture.width} height={picture.height} viewBox={`0 0 ${picture.width} ${picture.height}`}>
            <defs>
              {kinds.map((kind) => (
                <marker id={`arrow-${kind}`} viewBox="0 0 8 8" refX="7.500" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                  <path class={`arrow e-${kind}`} d="M0 0.500 8 4 0 7.500z" />
                </marker>
              ))}
            </defs>
            {picture.boxes.map((one) => (
              <RoleBox box={one} detail={detail} />
            ))}
            {picture.lines.map((line) => (
              <path class={`edge e-${line.kind}`} d={line.path} marker-end={line.kind === 'peers' ? undefined : `url(#arrow-${line.kind})`} />
            ))}
          </svg>
        )}
      </div>
      <figcaption>
        {kinds.map((kind) => (
          <span class="legend">
            <svg width="28" height="8" aria-hidden="true">
              <path class={`edge e-${kind}`} d="M0 4H28" />
            </svg>
            {t.edges[kind]}
          </span>
        ))}
        {picture.pairs.map(({ from, to, kind }) => (
          <span class="legend">{from === to ? `${from}: ${t.edges[kind]}` : `${from} → ${to}: ${t.edges[kind]}`}</span>
        ))}
      </figcaption>
    </figure>
  )
}

function RoleBox({ box, detail }: { box: Box; detail: JobDetail }) {
  const { t } = useApp()
  return (
    <g>
      <rect class="rolebox" x={box.x} y={box.y} width={box.width} height={box.height} rx="8" />
      <text class="rolename" x={box.x + 10} y={box.y + 19}>
        {box.role}
        {box.role !== 'di-server' && (isFinished(detail.job) ? ` ${box.total}` : ` ${box.ready}/${box.total}`)}
      </text>
      {box.hidden > 0 && (
        <text class="more" x={box.x + box.width - 10} y={box.y + 19} text-anchor="end">
          {t.pictureMore(box.hidden)}
        </text>
      )}
      {box.tiles.map((one) => (
        <PartTile one={one} dense={box.dense} detail={detail} />
      ))}
    </g>
  )
}

function PartTile({ one, dense, detail }: { one: Tile; dense: boolean; detail: JobDetail }) {
  const { t } = useApp()
  const { part, x, y } = one
  const kind = kindOf(part.state, part.ready)
  const width = dense ? tile.dense : tile.width
  const height = dense ? tile.dense : tile.height
  const text = [part.name, t.phases[part.state] ?? part.state, part.node, part.message].filter(Boolean).join(', ')
  const content = (
    <>
      <title>{text}</title>
      <rect class={`tile k-${kind}`} x={x} y={y} width={width} height={height} rx="5" />
      <Shape kind={kind} x={x + (dense ? 5 : 6)} y={y + (height - 14) / 2} />
      {!dense && (
        <text class="tilename" x={x + 26} y={y + 17}>
          {part.name.length > 17 ? `…${part.name.slice(-16)}` : part.name}
        </text>
      )}
    </>
  )
  if (!part.pod) return <g>{content}</g>
  return (
    <a href={jobLink(detail.job.namespace, detail.job.name, 'logs', { replica: part.name })} aria-label={text}>
      {content}
    </a>
  )
}
