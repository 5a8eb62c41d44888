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

/** Pair says in words what a line would draw. */
export interface Pair {
  from: string
  to: string
  kind: Edge['kind']
}

export interface Picture {
  width: number
  height: number
  boxes: Box[]
  lines: Line[]
  /** Instead of lines, where boxes are below one another. */
  pairs: Pair[]
}

export const tile = { width: 148, height: 26, dense: 24 }
const gap = { boxes: 76, head: 30, inner: 10, tiles: 6 }
const most = { named: 8, tiles: 160, lines: 80, columns: 10 }
/** lane is the height of a line below the boxes. */
const lane = 14
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

function box(role: string, parts: Part[], x: number, room = 0): Box {
  const dense = parts.length > most.named
  // What needs attention is drawn even if not all is.
  const sorted = parts.length > most.tiles ? [...parts].sort((a, b) => weight(kindOf(a.state, a.ready)) - weight(kindOf(b.state, b.ready))) : parts
  const width = dense ? tile.dense : tile.width
  const fitting = Math.max(1, Math.floor((room - 2 * gap.inner + gap.tiles) / (width + gap.tiles)))
  const columns = Math.min(room ? fitting : dense ? most.columns : 1, parts.length)
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

/**
 * draw returns the picture of parts: a box for each role from left to right, centred. Where a width is given that these
 * exceed, they are below one another, and lines become words.
 */
export function draw(parts: Part[], edges: Edge[], width = Infinity): Picture {
  const server = edges.some((e) => e.from === 'di-server' || e.to === 'di-server')
  const all = server && !parts.some((p) => p.name === 'di-server') ? [outside, ...parts] : parts
  const roles = group(all)
  let x = 1
  const boxes: Box[] = []
  for (const [role, members] of roles) {
    const next = box(role, members, x)
    boxes.push(next)
    x += next.width + gap.boxes
  }
  const wide = Math.max(1, x - gap.boxes + loop)
  if (wide > width) return stacked(roles, edges, width)
  const height = Math.max(0, ...boxes.map((b) => b.height)) + 2
  for (const one of boxes) {
    one.y = (height - one.height) / 2
    for (const t of one.tiles) t.y += one.y
  }
  const below = bypasses(boxes, edges, height)
  const extra = below.length > 0 ? (below.length + 1) * lane : 0
  return { width: wide, height: height + extra, boxes, lines: [...connect(boxes, edges), ...below], pairs: [] }
}

function stacked(roles: Map<string, Part[]>, edges: Edge[], width: number): Picture {
  let y = 1
  const boxes: Box[] = []
  for (const [role, members] of roles) {
    const next = box(role, members, 1, width - 2)
    next.width = width - 2
    next.y = y
    for (const t of next.tiles) t.y += y
    boxes.push(next)
    y += next.height + gap.inner
  }
  return { width, height: y, boxes, lines: [], pairs: pairsOf(boxes, edges) }
}

function pairsOf(boxes: Box[], edges: Edge[]): Pair[] {
  const role = new Map(boxes.flatMap((b) => b.tiles.map((t) => [t.part.name, b.role])))
  const pairs = new Map<string, Pair>()
  for (const { from: a, to: b, kind } of edges) {
    const [from, to] = [role.get(a), role.get(b)]
    if (from && to) pairs.set(`${from} ${to} ${kind}`, { from, to, kind })
  }
  return [...pairs.values()]
}

/** bypasses returns the lines between boxes that others are between: they run below all boxes, one for each pair. */
function bypasses(boxes: Box[], edges: Edge[], height: number): Line[] {
  const place = (role: string) => boxes.findIndex((b) => b.role === role)
  return pairsOf(boxes, edges)
    .filter(({ from, to }) => Math.abs(place(from) - place(to)) > 1)
    .map(({ from, to, kind }, i) => {
      const [a, b] = [boxes[place(from)], boxes[place(to)]]
      if (!a || !b) return { path: '', kind }
      const y = height + (i + 1) * lane
      const [start, end] = [a.x + a.width / 2 + i * 10, b.x + b.width / 2 + i * 10]
      const turn = start < end ? 8 : -8
      return { path: `M${start} ${a.y + a.height}V${y - 8}Q${start} ${y} ${start + turn} ${y}H${end - turn}Q${end} ${y} ${end} ${y - 8}V${b.y + b.height + 1}`, kind }
    })
}

/** loop is the room right of a box for lines between its own tiles. */
const loop = 16

const outside: Part = { name: 'di-server', role: 'di-server', state: 'Running', ready: true, restarts: 0 }

interface End {
  /** The place of its box. */
  place: number
  left: number
  right: number
  middle: number
}

/** connect returns the lines of edges between neighbours: between tiles if they are few, else between boxes. They touch no box. */
function connect(boxes: Box[], edges: Edge[]): Line[] {
  const between = edges.length > most.lines
  const ends = new Map<string, End>()
  for (const [place, b] of boxes.entries()) {
    for (const t of b.tiles) {
      const middle = between || b.dense ? b.y + b.height / 2 : t.y + tile.height / 2
      ends.set(t.part.name, { place, left: b.x, right: b.x + b.width, middle })
    }
  }
  const lines = new Map<string, Line>()
  for (const edge of edges) {
    const [from, to] = [ends.get(edge.from), ends.get(edge.to)]
    if (!from || !to || Math.abs(from.place - to.place) > 1) continue
    const path = curve(from, to)
    if (path) lines.set(edge.kind + path, { path, kind: edge.kind })
  }
  return [...lines.values()]
}

function curve(from: End, to: End): string {
  if (from.place === to.place) {
    if (from.middle === to.middle) return ''
    // A curve goes three quarters of the way to its handles.
    const out = from.right + 1.25 * loop
    return `M${from.right} ${from.middle}C${out} ${from.middle} ${out} ${to.middle} ${to.right} ${to.middle}`
  }
  const [a, b] = from.left < to.left ? [from.right, to.left] : [from.left, to.right]
  const half = (a + b) / 2
  return `M${a} ${from.middle}C${half} ${from.middle} ${half} ${to.middle} ${b} ${to.middle}`
}
