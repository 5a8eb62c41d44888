// Where the fields of a manifest are in its text: pure.

interface Line {
  at: number
  indent: number
  /** The text without its indentation and the dashes of lists. */
  text: string
  isItem: boolean
}

/** lineOf returns the line of a field such as spec.tasks[0].replicas, from 0 on, or that of the nearest field above it; -1 if there is none. */
export function lineOf(yaml: string, field: string): number {
  const lines = yaml.split('\n').flatMap(parsed)
  let [from, end, found] = [0, lines.length, -1]
  for (const step of field.match(/[^.[\]]+/g) ?? []) {
    const children = childrenOf(lines, from, end)
    const isIndex = /^\d+$/.test(step)
    const place = isIndex ? children.filter((i) => lines[i]?.isItem)[Number(step)] : children.find((i) => keyOf(lines[i]?.text ?? '') === step)
    if (place === undefined) break
    // The items of a list may be indented as its key is.
    const next = children.find((i) => i > place && (isIndex || !lines[i]?.isItem))
    found = lines[place]?.at ?? found
    ;[from, end] = [place + 1, next ?? end]
  }
  return found
}

/** parsed returns a line of YAML, and once more for the first field of an item. */
function parsed(text: string, at: number): Line[] {
  const trimmed = text.trimStart()
  if (trimmed === '' || trimmed.startsWith('#')) return []
  const indent = text.length - trimmed.length
  const dash = /^-\s+/.exec(trimmed)
  if (!dash) return [{ at, indent, text: trimmed, isItem: trimmed === '-' }]
  const inner = dash[0].length
  return [
    { at, indent, text: '', isItem: true },
    { at, indent: indent + inner, text: trimmed.slice(inner), isItem: false },
  ]
}

/** childrenOf returns the lines of a block that are not within others of it. */
function childrenOf(lines: Line[], from: number, end: number): number[] {
  const places = Array.from({ length: Math.max(0, end - from) }, (_, i) => from + i)
  const indent = Math.min(...places.map((i) => lines[i]?.indent ?? Infinity))
  return places.filter((i) => lines[i]?.indent === indent)
}

function keyOf(text: string): string {
  return /^["']?([^"':]+)["']?\s*:/.exec(text)?.[1] ?? ''
}

/** renamed returns a manifest whose metadata has another name. */
export function renamed(yaml: string, name: string): string {
  const at = lineOf(yaml, 'metadata.name')
  return at < 0 ? yaml : yaml.split('\n').map((line, i) => (i === at ? line.replace(/name:.*$/, `name: ${name}`) : line)).join('\n')
}
