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

/** tops returns the row at which each line begins, and after the last line the number of all rows. */
export function tops(lines: Line[], columns: number): Float64Array {
  const all = new Float64Array(lines.length + 1)
  for (let i = 0; i < lines.length; i++) all[i + 1] = (all[i] ?? 0) + rowsOf(lines[i]?.text ?? '', columns)
  return all
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

/** found returns the places of the lines that have a text, whatever its case. */
export function found(lines: Line[], text: string): number[] {
  const wanted = text.toLowerCase()
  const all: number[] = []
  if (!wanted) return all
  lines.forEach((line, i) => {
    if (line.text.toLowerCase().includes(wanted)) all.push(i)
  })
  return all
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
