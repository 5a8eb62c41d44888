// The last lines of a log: pure.
import { levelOf, type Level } from './lines'

export interface Line {
  replica: string
  text: string
  time?: string
  /** Whether the server says it, and no replica. */
  notice?: boolean
  /** How bad it is, once a buffer has it. */
  level?: Level
}

/** mostLines bounds the lines of a page. */
export const mostLines = 100_000

/** Buffer keeps a bounded number of lines, and counts what it dropped. */
export class Buffer {
  lines: Line[] = []
  dropped = 0

  constructor(private readonly most = mostLines) {}

  add(lines: Line[]): void {
    for (const line of lines) {
      if (!line.notice) line.level = levelOf(line.text)
      this.lines.push(line)
    }
    // A tenth at once, because each removal moves all others.
    if (this.lines.length > this.most * 1.1) {
      const excess = this.lines.length - this.most
      this.lines.splice(0, excess)
      this.dropped += excess
    }
  }
}
