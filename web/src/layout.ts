// Where the parts of a job and their edges are drawn: pure.
import type { Edge, Part } from './api'
import { kindOf, weight } from './state'

export interface Tile {
  part: Part
  x: number
  y: number
}

export interface Box {
  role: string
  x: number
  y: number
  width: number
  height: number
  ready: number
  total: number
  tiles: Tile[]
  /** Parts that have no tile. */
  hidden: number
  /** Whether tiles are marks without names. */
  dense: boolean
}

export interface Line {
  path: string
  kind: Edge['kind']
}

export interface Picture {
  width: number
  height: number
  boxes: Box[]
  lines: Line[]
}

export const tile = { width: 148, height: 26, dense: 24 }
const gap = { boxes: 76, head: 30, inner: 10, tiles: 6 }
const most = { named: 12, tiles: 160, lines: 80, columns: 10 }
const order = ['di-server', 'coordinator', 'learner', 'aggregator', 'ddp-learner', 'collector', 'actor', 'evaluator']

/** place returns the order of a role from left to right. Other roles come last. */
function place(role: string): number {
  const index = order.indexOf(role)
  return index < 0 ? order.length : index
}

function group(parts: Part[]): Map<string, Part[]> {
  const roles = new Map<string, Part[]>()
  for (const part of parts) roles.set(part.role, [...(roles.get(part.role) ?? []), part])
  return new Map([...roles].sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b)))
}

function box(role: string, parts: Part[], x: number): Box {
  const dense = parts.length > most.named
  // What needs attention is drawn even if not all is.
  const sorted = parts.length > most.tiles ? [...parts].sort((a, b) => weight(kindOf(a.state, a.ready)) - weight(kindOf(b.state, b.ready))) : parts
  const columns = dense ? Math.min(most.columns, parts.length) : 1
  const width = dense ? tile.dense : tile.width
  const height = dense ? tile.dense : tile.height
  const tiles = sorted.slice(0, most.tiles).map((part, i) => ({
    part,
    x: x + gap.inner + (i % columns) * (width + gap.tiles),
    y: gap.head + Math.floor(i / columns) * (height + gap.tiles),
  }))
  const lines = Math.ceil(tiles.length / columns)
  return {
    role,
    x,
    y: 0,
    width: Math.max(columns * (width + gap.tiles) - gap.tiles, tile.width) + 2 * gap.inner,
    height: gap.head + lines * (height + gap.tiles) + gap.inner - gap.tiles,
    ready: parts.filter((p) => p.ready).length,
    total: parts.length,
    tiles,
    hidden: parts.length - tiles.length,
    dense,
  }
}

/** draw returns the picture of parts: a box for each role from left to right, centred. */
export function draw(parts: Part[], edges: Edge[]): Picture {
  const server = edges.some((e) => e.from === 'di-server' || e.to === 'di-server')
  const all = server && !parts.some((p) => p.name === 'di-server') ? [outside, ...parts] : parts
  let x = 1
  const boxes: Box[] = []
  for (const [role, members] of group(all)) {
    const next = box(role, members, x)
    boxes.push(next)
    x += next.width + gap.boxes
  }
  const height = Math.max(0, ...boxes.map((b) => b.height)) + 2
  for (const one of boxes) {
    one.y = (height - one.height) / 2
    for (const t of one.tiles) t.y += one.y
  }
  return { width: Math.max(1, x - gap.boxes + loop), height, boxes, lines: connect(boxes, edges) }
}

/** loop is the room right of a box for lines between its own tiles. */
const loop = 16

const outside: Part = { name: 'di-server', role: 'di-server', state: 'Running', ready: true, restarts: 0 }

interface End {
  left: number
  right: number
  middle: number
  top: number
}

/** connect returns the lines of edges: between tiles if they are few, else between boxes. */
function connect(boxes: Box[], edges: Edge[]): Line[] {
  const between = edges.length > most.lines
  const ends = new Map<string, End>()
  for (const b of boxes) {
    for (const t of b.tiles) {
      ends.set(
        t.part.name,
        between || b.dense
          ? { left: b.x, right: b.x + b.width, middle: b.y + b.height / 2, top: b.y }
          : { left: t.x, right: t.x + tile.width, middle: t.y + tile.height / 2, top: t.y },
      )
    }
  }
  const lines = new Map<string, Line>()
  for (const edge of edges) {
    const [from, to] = [ends.get(edge.from), ends.get(edge.to)]
    if (!from || !to || from === to) continue
    const path = curve(from, to)
    if (path) lines.set(edge.kind + path, { path, kind: edge.kind })
  }
  return [...lines.values()]
}

function curve(from: End, to: End): string {
  if (from.left === to.left) {
    if (from.middle === to.middle) return ''
    // It must pass the edge of the box, which hides what is below it.
    const out = from.right + 2 * loop
    return `M${from.right} ${from.middle}C${out} ${from.middle} ${out} ${to.middle} ${to.right} ${to.middle}`
  }
  const [a, b] = from.left < to.left ? [from.right, to.left] : [from.left, to.right]
  const half = (a + b) / 2
  return `M${a} ${from.middle}C${half} ${from.middle} ${half} ${to.middle} ${b} ${to.middle}`
}
