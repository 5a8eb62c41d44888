// The lines of a log as they are found, coloured and drawn: pure.
import type { Line } from './buffer'

export type Level = 'error' | 'warning' | 'debug' | ''

const errors = /\b(?:fatal|critical|error|panic)\b|\b\w*(?:Error|Exception)\b:|^Traceback \(|^[EF]\d{4} /i
const warnings = /\bwarn(?:ing)?\b|^W\d{4} /i
const debugs = /\b(?:debug|trace)\b/i
/** The level of a line is at its beginning, and not in a quotation at its end. */
const examined = 120

/** levelOf returns how bad a line is, by the words of common logs: klog, JSON, Python and Rust. */
export function levelOf(text: string): Level {
  const begin = text.slice(0, examined)
  const named = /"?\b(?:level|lvl|severity)"?\s*[=:]\s*"?(\w+)/i.exec(begin)?.[1]
  const said = named ?? begin
  if (errors.test(said)) return 'error'
  if (warnings.test(said)) return 'warning'
  return debugs.test(said) ? 'debug' : ''
}

/** rowsOf returns how many rows a text takes at a width in characters, of which wide ones take two. */
export function rowsOf(text: string, columns: number): number {
  if (columns < 1) return 1
  let cells = text.length
  // eslint-disable-next-line no-control-regex
  if (/[^\x00-\x7f]/.test(text)) for (const sign of text) if (sign > '\u1100') cells += 2 - sign.length
  return Math.max(1, Math.ceil(cells / columns))
}

/** Seen remembers which lines it was asked about, so that only those that came since are looked at. A log has 100,000, in each frame. */
class Seen {
  private count = 0
  private ends: [Line | undefined, Line | undefined] = [undefined, undefined]

  /** known returns how many of these lines were there before; 0 if the first ones were dropped, or they are others. */
  known(lines: Line[]): number {
    const [first, last] = this.ends
    const known = this.count <= lines.length && lines[0] === first && lines[this.count - 1] === last ? this.count : 0
    this.count = lines.length
    this.ends = [lines[0], lines.at(-1)]
    return known
  }
}

/** Tops knows the rows at which lines begin. */
export class Tops {
  private readonly seen = new Seen()
  private rows = new Float64Array(1024)
  private columns = 0

  /** of returns the row at which each line begins, and after the last line the number of all rows. */
  of(lines: Line[], columns: number): Float64Array {
    let from = this.seen.known(lines)
    if (columns !== this.columns) [this.columns, from] = [columns, 0]
    if (this.rows.length <= lines.length) {
      const grown = new Float64Array(2 * (lines.length + 1))
      grown.set(this.rows.subarray(0, from + 1))
      this.rows = grown
    }
    for (let i = from; i < lines.length; i++) this.rows[i + 1] = (this.rows[i] ?? 0) + rowsOf(lines[i]?.text ?? '', columns)
    return this.rows.subarray(0, lines.length + 1)
  }
}

/** lineAt returns the line that a row is of. */
export function lineAt(tops: Float64Array, row: number): number {
  let [low, high] = [0, tops.length - 1]
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if ((tops[middle] ?? 0) <= row) low = middle
    else high = middle - 1
  }
  return Math.min(low, Math.max(0, tops.length - 2))
}

/** Finder knows the lines that have a text, whatever its case, and the first line that is an error. */
export class Finder {
  /** The lines that have the text, and their places among all. They are other lists once the text or the first line is another. */
  lines: Line[] = []
  places: number[] = []
  /** The places of the first error among all lines and among those that have the text; -1 without one. */
  firstError = -1
  firstFoundError = -1

  private readonly seen = new Seen()
  private wanted = ''

  find(lines: Line[], text: string): this {
    const wanted = text.toLowerCase()
    const known = this.seen.known(lines)
    if (known === 0) this.firstError = -1
    for (let i = known; this.firstError < 0 && i < lines.length; i++) if (lines[i]?.level === 'error') this.firstError = i
    const from = wanted === this.wanted ? known : 0
    if (from === 0) [this.wanted, this.lines, this.places, this.firstFoundError] = [wanted, [], [], -1]
    for (let i = from; wanted && i < lines.length; i++) {
      const line = lines[i]
      if (!line?.text.toLowerCase().includes(wanted)) continue
      if (line.level === 'error' && this.firstFoundError < 0) this.firstFoundError = this.lines.length
      this.lines.push(line)
      this.places.push(i)
    }
    return this
  }
}

/** pieces returns the parts of a text outside and inside of what is searched, in turn. */
export function pieces(text: string, search: string): string[] {
  const wanted = search.toLowerCase()
  const lower = text.toLowerCase()
  // Some letters have another length in lower case, so that places differ.
  if (!wanted || lower.length !== text.length) return [text]
  const all: string[] = []
  let from = 0
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    all.push(text.slice(from, at), text.slice(at, at + wanted.length))
    from = at + wanted.length
  }
  return [...all, text.slice(from)]
}

/** next returns the place in a list that follows or precedes another one, around its ends. */
export function next(count: number, at: number, step: 1 | -1): number {
  return count === 0 ? -1 : (at + step + count) % count
}

/** asText returns lines as a file has them. */
export function asText(lines: Line[]): string {
  return lines.map((line) => `${line.time ? `${line.time} ` : ''}${line.replica ? `${line.replica} ` : ''}${line.text}\n`).join('')
}
